"""Which measured rates are worse than in the last good run, beyond what they differ by anyway."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from llmdeploy.facts.active.measured import AllReduce, Measured
from llmdeploy.units import show_bytes, show_seconds

COMPUTE_RATIO = 0.85
"""Products, memory reads and copies inside a host: told below this share of the last run.
Source: as for one core's speeds in `compare`, which differ by up to 10 % between two runs."""
DISK_RATIO = 0.7
"""Source: own choice; two reads of one disk differ by up to 20 % (see `judge_hosts`)."""
NETWORK_RATIO = 0.7
"""TCP between two hosts, and collectives over them, which share links with other traffic.
Source: own choice, beyond the disk's spread; half of the usual is a finding (`judge_network`)."""
LATENCY_RATIO, LATENCY_S = 2.0, 1e-4
"""A round trip is told beyond both. Source: own choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worse:
    """A rate or time that got worse."""

    host: str
    fact: str
    before: str
    now: str


def worse_rates(before: Measured | None, now: Measured | None) -> Iterator[Worse]:
    """Pairs of equal tests of both runs; what only one run has is compared with nothing."""
    if before is None or now is None:
        return
    yield from _slower(_compute(before), _compute(now), least_ratio=COMPUTE_RATIO)
    yield from _slower(_disks(before), _disks(now), least_ratio=DISK_RATIO)
    yield from _slower(_links(before), _links(now), least_ratio=NETWORK_RATIO)
    yield from _later(before, now)
    yield from _collectives(before, now)


Rates = dict[tuple[str, str], float]
"""By host and the fact's place."""


def _compute(measured: Measured) -> Rates:
    rates = {
        (p.host, f"products/{p.device}/{p.dtype} {p.size}"): p.flops_per_s
        for p in measured.products
        if not p.wrong
    }
    for pattern in measured.patterns:
        if pattern.read_bytes_per_s is not None:
            rates[pattern.host, f"memory read/{pattern.device}"] = pattern.read_bytes_per_s
    for copy in measured.copies:
        rates[copy.host, f"copies/{copy.source} to {copy.target}"] = copy.bytes_per_s
    return rates


def _disks(measured: Measured) -> Rates:
    usable = [disk for disk in measured.disks if disk.correct is not False]
    return {(d.host, f"disks/{d.folder} ({d.past_cache})"): d.bytes_per_s for d in usable}


def _links(measured: Measured) -> Rates:
    return {
        (link.source, f"links/to {link.target}"): link.bytes_per_s
        for link in measured.links
        if link.bytes_per_s is not None
    }


def _slower(before: Rates, now: Rates, *, least_ratio: float) -> Iterator[Worse]:
    for (host, fact), is_now in now.items():
        was = before.get((host, fact))
        if was and is_now < least_ratio * was:
            share = f"{is_now / was:.0%} of before"
            yield Worse(host=host, fact=fact, before=f"{was:.3g}", now=f"{is_now:.3g} ({share})")


def _later(before: Measured, now: Measured) -> Iterator[Worse]:
    times_s = {(ln.source, ln.target): ln.latency_p50_s for ln in before.links}
    for link in now.links:
        was_s, now_s = times_s.get((link.source, link.target)), link.latency_p50_s
        if was_s and now_s and now_s > max(LATENCY_RATIO * was_s, was_s + LATENCY_S):
            words = f"{show_seconds(now_s)} ({now_s / was_s:.1f} times)"
            fact = f"links/to {link.target}/round trip"
            yield Worse(host=link.source, fact=fact, before=show_seconds(was_s), now=words)


def _collectives(before: Measured, now: Measured) -> Iterator[Worse]:
    """Of each group the size that got slower most: one cause slows several sizes."""
    last = {_group(one): one for one in before.all_reduces}
    for one in now.all_reduces:
        was = last.get(_group(one))
        times_s = {s.size_bytes: s.duration_s for s in was.samples} if was else {}
        ratios = [(s.duration_s / times_s[s.size_bytes], s) for s in one.samples
                  if times_s.get(s.size_bytes)]  # fmt: skip
        ratio, sample = max(ratios, key=lambda pair: pair[0], default=(0.0, None))
        if sample is None or ratio * NETWORK_RATIO <= 1:
            continue
        size, count = show_bytes(sample.size_bytes), len(one.hosts)
        yield Worse(
            host=one.hosts[0],
            fact=f"all-reduce/{one.backend}, {count} hosts, {one.ranks} ranks/{size}",
            before=show_seconds(times_s[sample.size_bytes]),
            now=f"{show_seconds(sample.duration_s)} ({ratio:.1f} times)",
        )


def _group(one: AllReduce) -> tuple[Any, ...]:
    return one.hosts, one.backend, one.device, one.ranks

"""What changed since the last good run: facts of every host, value by value, and rates."""

import json
from collections.abc import Iterator
from typing import Any

from llmdeploy.document import Document
from llmdeploy.facts.bundle import Bundle, HostFacts
from llmdeploy.facts.compare_rates import worse_rates

MOVING = frozenset({
    "load_1min", "memory_available_bytes", "memory_limit_used_bytes", "swap_used_bytes",
    "shm_free_bytes", "clock_offset_s", "card_processes", "listeners", "stuck_processes",
    "engine_processes", "core_matmul_flops_per_s", "core_memory_read_bytes_per_s",
    "memory_read_bytes_per_s", "disk_read_bytes_per_s", "exposed_secrets", "shm_segments",
})  # fmt: skip
"""Facts that differ from one minute to the next on a host that nobody touched."""
MOVING_PARTS = frozenset({
    "memory_free_bytes", "free_bytes", "free_inodes", "temperature_c", "temperature_margin_c",
    "power_w", "busy_ratio", "memory_used_ratio", "pcie_generation", "duration_s", "throttles",
    "errors", "drops", "carrier_changes",
})  # fmt: skip
RATE_RATIO = 0.85
"""A measured speed below this share of the last one is told. Source: own choice; two runs on one
idle host differed by up to 10 % (two Zen 3 cores)."""
RATES = (
    "core_matmul_flops_per_s", "core_memory_read_bytes_per_s", "memory_read_bytes_per_s",
    "disk_read_bytes_per_s",
)  # fmt: skip


class Change(Document):
    """One value that is another now."""

    host: str
    fact: str
    """With the place inside it, such as `accelerators/0/driver_version`."""
    before: str
    now: str


def changes(before: Bundle, now: Bundle) -> tuple[Change, ...]:
    """Differences of hosts in both bundles, hosts that are gone or new, and what is slower."""
    old, new = ({f.host: f for f in bundle.hosts} for bundle in (before, now))
    found = [Change(host=h, fact="host", before="there", now="gone") for h in old if h not in new]
    found += [Change(host=h, fact="host", before="none", now="new") for h in new if h not in old]
    for name, facts in new.items():
        if name in old:
            found += _of_host(old[name], facts)
    for worse in worse_rates(before.measured, now.measured):
        found.append(Change(host=worse.host, fact=worse.fact, before=worse.before, now=worse.now))
    return tuple(found)


def _of_host(before: HostFacts, now: HostFacts) -> Iterator[Change]:
    old, new = (json.loads(f.model_dump_json()) for f in (before, now))
    for fact in HostFacts.model_fields:
        if fact in ("host", "asked", "collected_s", "duration_s", "sources"):
            continue
        if fact in RATES:
            yield from _slower(now.host, fact, old[fact], new[fact])
        elif fact not in MOVING:
            for place, was, is_now in _leaves(old[fact], new[fact], fact):
                yield Change(host=now.host, fact=place, before=_word(was), now=_word(is_now))


def _slower(host: str, fact: str, before: float | None, now: float | None) -> Iterator[Change]:
    if before and now and now < RATE_RATIO * before:
        share = f"{now / before:.0%} of before"
        yield Change(host=host, fact=fact, before=f"{before:.3g}", now=f"{now:.3g} ({share})")


def _leaves(before: Any, now: Any, place: str) -> Iterator[tuple[str, Any, Any]]:
    """Places where two trees differ; a list of another length differs as a whole."""
    if place.rsplit("/", 1)[-1] in MOVING_PARTS or before == now:
        return
    if isinstance(before, dict) and isinstance(now, dict):
        for key in [*before, *(k for k in now if k not in before)]:
            yield from _leaves(before.get(key), now.get(key), f"{place}/{key}")
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for index, (was, is_now) in enumerate(zip(before, now, strict=True)):
            yield from _leaves(was, is_now, f"{place}/{index}")
    else:
        yield place, before, now


def _word(value: Any) -> str:
    if isinstance(value, list):
        if value and isinstance(value[0], dict):
            return f"{len(value)} entries"
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)[:120]

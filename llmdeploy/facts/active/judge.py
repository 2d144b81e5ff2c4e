"""All findings of active tests: pure functions over what was measured, replayable without hosts."""

import re
from collections.abc import Iterator, Sequence

from llmdeploy.facts.active.judge_hosts import hosts
from llmdeploy.facts.active.judge_network import network
from llmdeploy.facts.active.measured import AllReduce, Measured, RankState, Untested
from llmdeploy.facts.active.say import ALL, finding, hosts_in_words
from llmdeploy.facts.bundle import Bundle
from llmdeploy.facts.finding import Finding, Remedy, Status
from llmdeploy.units import show_bytes, show_seconds

FIXES = {
    "time.skew": "make `date +%s.%N` answer on this host",
    "sto.disk.speed": "make the model store a folder of a disk that this user may read and write",
    "net": "install python3 on this host (no package is needed), or set its data_address",
    "torch": "install the engine's packages there: pip install 'llmdeploy[engine]', and name that "
    "Python in cluster.yaml",
    "cards": "install torch for the cards of this host: see https://pytorch.org/get-started",
}
CHECKS = (
    "time.skew", "sto.disk.speed", "net.ifname.route", "net.ports.peer", "net.bandwidth",
    "net.latency", "net.loss", "net.path.mtu", "net.allreduce.cross", "fab.allreduce.intra",
    "cpu.compute.golden", "gpu.compute.golden", "cpu.memory.pattern", "gpu.vram.pattern",
    "fab.p2p.actual",
)  # fmt: skip
"""Ids of all findings that are made here."""
_NEEDS_CARDS = ("gpu.compute.golden", "gpu.vram.pattern", "fab.p2p.actual", "fab.allreduce.intra")


def active_findings(bundle: Bundle) -> tuple[Finding, ...]:
    """What the bundle's measurements say; none where only facts were asked for."""
    measured = bundle.measured
    if measured is None:
        return ()
    found = [*hosts(measured), *network(measured, bundle)]
    for group in measured.all_reduces:
        found += all_reduce_findings(group)
    return (*found, *_untested(measured))


def _untested(measured: Measured) -> Iterator[Finding]:
    """UNKNOWN, once for each test and host, with all reasons."""
    reasons: dict[tuple[str, str], list[Untested]] = {}
    for one in measured.untested:
        reasons.setdefault((one.test, one.host), []).append(one)
    for (test, host), told in reasons.items():
        words = "; ".join(dict.fromkeys(one.reason for one in told))
        yield finding(test, host, "to be tested", origin="the test itself")(
            Status.UNKNOWN, words, fix=_fix(test)
        )


def _fix(test: str) -> str:
    if test in FIXES:
        return FIXES[test]
    if test in _NEEDS_CARDS:
        return FIXES["cards"]
    return FIXES["net"] if test.startswith("net.") and "allreduce" not in test else FIXES["torch"]


def all_reduce_findings(group: AllReduce) -> Iterator[Finding]:
    """PASS for a group that summed right on every host, else a FAIL for each host that did not."""
    single = len(group.hosts) == 1
    check = "fab.allreduce.intra" if single else "net.allreduce.cross"
    origin = f"torch.distributed {group.backend} on {group.device}, {group.ranks} ranks"
    needed = "the known sum on every host, before the watchdog ends it"
    wrong = [state for state in group.states if state.wrong]
    late = [state for state in group.states if state.error]
    for state in wrong if len(wrong) < len(group.states) or single else ():
        yield finding(check, state.host, needed, origin=origin)(
            Status.FAIL, f"{state.wrong} elements of its sums are wrong",
            fix="run `llmdeploy preflight --level deep`: it tells whether memory or processor of "
            "this host spoils data", remedy=Remedy.HARDWARE,
        )  # fmt: skip
    if wrong and len(wrong) == len(group.states) and not single:
        yield finding(check, ALL, needed, origin=origin)(
            Status.FAIL, "all hosts have wrong sums: one of them sends spoilt data",
            fix="run `llmdeploy preflight --level deep`, then leave out one host at a time",
            remedy=Remedy.HARDWARE,
        )  # fmt: skip
    if late:
        yield from _failed(group, (check, needed, origin))
    if not wrong and not late:
        subject = group.hosts[0] if single else ALL
        yield finding(check, subject, needed, origin=origin)(Status.PASS, _curve(group))


def _curve(group: AllReduce) -> str:
    first, last = group.samples[0], group.samples[-1]
    return (
        f"{group.ranks} ranks over {group.backend}: {show_bytes(first.size_bytes)} in "
        f"{show_seconds(first.duration_s)}, {show_bytes(last.size_bytes)} in "
        f"{show_seconds(last.duration_s)}"
    )


def _failed(group: AllReduce, said: tuple[str, str, str]) -> Iterator[Finding]:
    """The hosts that are behind caused it; where all are level, the one that the others name."""
    check, needed, origin = said
    guilty = _behind(group.states) or _seen_closed(group.states)
    fix = (
        "see net.ports.peer and net.ifname.route, and the log of that host: journalctl -k; "
        "run preflight again"
    )
    if not guilty:
        all_words = {f"{state.stage}: {state.error}" for state in group.states if state.error}
        yield finding(check, ALL, needed, origin=origin)(Status.FAIL, min(all_words), fix=fix)
    for state in guilty:
        others = [s.host for s in group.states if s not in guilty]
        waited = f"; {hosts_in_words(others)} waited for it" if others else ""
        words = f"ended {state.stage}: {state.error}{waited}"
        yield finding(check, state.host, needed, origin=origin)(Status.FAIL, words, fix=fix)


def _behind(states: Sequence[RankState]) -> list[RankState]:
    least = min(state.steps for state in states)
    behind = [state for state in states if state.steps == least and state.error]
    return behind if len(behind) < len(states) else []


def _seen_closed(states: Sequence[RankState]) -> list[RankState]:
    """Gloo tells the address of the peer that left: the one that most others name. A peer that
    only did not answer in time may itself have waited."""
    seen = [
        address
        for state in states
        if "closed" in (state.error or "").lower() or "reset" in (state.error or "").lower()
        for address in set(re.findall(r"\[?(\d+\.\d+\.\d+\.\d+)\]?", state.error or ""))
        if address != state.address
    ]
    counts = {state.host: seen.count(state.address or "") for state in states}
    most = max(counts.values())
    named = [state for state in states if counts[state.host] == most]
    return named if most and len(named) == 1 else []

"""Asking many hosts: one that fails or hangs is named, and delays no other."""

import threading

from llmdeploy.edge import Completed
from llmdeploy.errors import InputError, Unreachable
from llmdeploy.facts.collect import Depth, Paths
from llmdeploy.facts.collect_all import AT_ONCE, Ask, Phase, Progress, collect_all
from llmdeploy.facts.examine import examine
from llmdeploy.facts.finding import Status

from ..fakes import FakeClock, FakeShell
from . import hosts

PATHS = Paths(state_root="/var/lib/llm", model_store="/srv/models", service="chat", model="tiny")
ANSWER = "@begin uname 5 uname -srm\n|Linux 6.1 x86_64\n@end 0\n"


def _good(argv: tuple[str, ...], stdin: str) -> Completed:
    return Completed(argv=argv, exit_code=0, stdout=ANSWER, stderr="")


def _hung(argv: tuple[str, ...], stdin: str) -> Completed:
    raise Unreachable("gpu2: `sh -s` did not end in 30 s and was killed", fix="see where it hangs")


def _ask(name: str, answer: object) -> Ask:
    return Ask(host=name, python="python3", shell=lambda: FakeShell(on_run=answer))  # type: ignore[arg-type]


def _refused() -> FakeShell:
    raise InputError("gpu3: host key changed", fix="compare it")


def test_hosts_that_fail_are_kept_beside_the_facts_of_the_others() -> None:
    told: list[Progress] = []
    asks = [
        _ask("gpu1", _good),
        _ask("gpu2", _hung),
        Ask(host="gpu3", python="python3", shell=_refused),
        _ask("gpu4", _good),
    ]
    bundle = collect_all(
        asks, PATHS, depth=Depth.FIND, timeout_s=30, report=told.append, clock=FakeClock()
    )
    assert [facts.host for facts in bundle.hosts] == ["gpu1", "gpu4"]
    assert [(host.host, host.found, host.fix) for host in bundle.unreached] == [
        ("gpu2", "`sh -s` did not end in 30 s and was killed", "see where it hangs"),
        ("gpu3", "host key changed", "compare it"),
    ]
    ends = {p.host: p.phase for p in told if p.phase != Phase.ASKED}
    assert ends == {
        "gpu1": Phase.ANSWERED,
        "gpu2": Phase.FAILED,
        "gpu3": Phase.FAILED,
        "gpu4": Phase.ANSWERED,
    }


def test_hosts_are_asked_at_the_same_time() -> None:
    all_here = threading.Barrier(AT_ONCE, timeout=30)

    def wait(argv: tuple[str, ...], stdin: str) -> Completed:
        all_here.wait()
        return _good(argv, stdin)

    asks = [_ask(f"gpu{number}", wait) for number in range(AT_ONCE)]
    bundle = collect_all(
        asks, PATHS, depth=Depth.FIND, timeout_s=30, report=lambda p: None, clock=FakeClock()
    )
    assert len(bundle.hosts) == AT_ONCE


def test_a_host_that_was_not_reached_is_a_fail_that_blocks() -> None:
    bundle = collect_all(
        [_ask("local", _hung)],
        PATHS,
        depth=Depth.FIND,
        timeout_s=30,
        report=lambda p: None,
        clock=FakeClock(),
    )
    report = examine(bundle, service=hosts.engine(), inventory=hosts.inventory())
    assert not report.fit
    assert report.blocked_by == ("net.ssh.reach",)
    finding = report.findings[0]
    assert (finding.status, finding.subject) == (Status.FAIL, "local")
    assert finding.fix == "see where it hangs"

"""The order of active tests over hosts that are fakes: who is left out, and with which reason."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from llmdeploy.edge import Completed
from llmdeploy.errors import Unreachable
from llmdeploy.facts.active.measure import measure
from llmdeploy.facts.active.measured import Measured
from llmdeploy.facts.active.send import Seat
from llmdeploy.facts.bundle import Bundle, HostFacts
from llmdeploy.facts.interface import Interface
from llmdeploy.facts.runtime import Package

from ...fakes import FakeClock, FakeShell
from .. import hosts

NAMES = ("a", "b")
Answers = Callable[[str, Mapping[str, Any]], list[dict[str, Any]]]


def _facts(number: int, name: str) -> HostFacts:
    interface = Interface(
        name="eth0", kind="physical", up=True, mtu=1500, networks=(f"10.0.0.{number}/24",)
    )
    torch = Package(name="torch", version=None)
    said = hosts.facts(interfaces=(interface,), packages=(torch,))
    return said.model_copy(update={"host": name})


def _shell(clock: FakeClock, answers: Answers, *, gone: bool = False) -> FakeShell:
    def ran(argv: tuple[str, ...], stdin: str) -> Completed:
        if gone:
            raise Unreachable("b: the host is frozen", fix="look at it")
        if argv[0] == "date":
            return Completed(argv=argv, exit_code=0, stdout=f"{clock.now_s():.6f}\n", stderr="")
        lines = answers("disk" if "O_TMPFILE" in stdin else "wire", json.loads(argv[-1]))
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        return Completed(argv=argv, exit_code=0, stdout=text, stderr="")

    return FakeShell(on_run=ran)


def _well(program: str, request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What a healthy host prints."""
    if program == "disk":
        return [{"kind": "disk", "read_bytes": 1 << 28, "duration_s": 0.1, "own": True, "wrong": 0,
                 "past_cache": "O_DIRECT"}]  # fmt: skip
    do = request.get("do")
    if do in ("ready", "end"):
        return [{"kind": "bound", "ports": [21000, 40000], "taken": [], "udp": 41000}]
    if do == "ports":
        (peer,) = request["peers"]
        mine = "10.0.0.1" if peer["name"] == "b" else "10.0.0.2"
        return [{"kind": "row", "target": peer["name"], "opened": [21000, 40000], "closed": [],
                 "slowest_s": 0.001}, {"kind": "sources", "addresses": [mine]}]  # fmt: skip
    if do == "link":
        return [
            {"kind": "latency", "p50_s": 1e-4, "p99_s": 2e-4},
            {"kind": "loss", "answered": 50, "sent": 50},
            {"kind": "mtu", "path_bytes": 1500, "source_bytes": 1500, "hop": None},
            {"kind": "bandwidth", "bytes_per_s": 1.1e9, "retransmits": 0},
        ]
    return []


def _measured(*, answers: Answers = _well, gone: bool = False) -> Measured:
    clock = FakeClock()
    bundle = Bundle(
        schema=1,
        llmdeploy="0",
        hosts=tuple(_facts(number, name) for number, name in enumerate(NAMES, start=1)),
    )
    seats = [
        Seat(host=name, python="/py", shell=_shell(clock, answers, gone=gone and name == "b"))
        for name in NAMES
    ]
    return measure(
        seats,
        bundle,
        level="standard",
        declared={},
        ports=(21000,),
        report=lambda words: None,
        clock=clock,
    )


def test_two_healthy_hosts_give_every_rate_in_both_directions() -> None:
    found = _measured()
    assert {(row.source, row.target) for row in found.port_rows} == {("a", "b"), ("b", "a")}
    assert found.usable_link_bytes_per_s("a", "b") == 1.1e9
    assert found.usable_link_bytes_per_s("b", "a") == 1.1e9
    assert [round(found.usable_disk_bytes_per_s(name) or 0) for name in NAMES] == [2684354560] * 2
    assert [choice.sources for choice in found.choices] == [("10.0.0.1",), ("10.0.0.2",)]
    assert {one.test for one in found.untested} == {"net.allreduce.cross"}


def test_a_host_that_answers_no_more_is_untested_everywhere_and_asked_once() -> None:
    found = _measured(gone=True)
    assert {one.host for one in found.untested if "frozen" in one.reason} == {"b"}
    lonely = {one.test for one in found.untested if one.host == "a"}
    assert {"net.ports.peer", "net.allreduce.cross"} <= lonely
    assert {one.test for one in found.untested if one.host == "b"} == {
        "time.skew", "sto.disk.speed", "net.ports.peer", "net.latency", "net.bandwidth",
        "net.path.mtu", "net.allreduce.cross",
    }  # fmt: skip
    assert [disk.host for disk in found.disks] == ["a"]


def test_a_host_whose_listener_does_not_start_is_untested_with_its_words() -> None:
    def answers(program: str, request: Mapping[str, Any]) -> list[dict[str, Any]]:
        if request.get("do") == "ready" and request["name"] == "b":
            return [{"kind": "problem", "reason": "10.0.0.2: Cannot assign requested address"}]
        if request.get("do") == "ports":
            return []
        return _well(program, request)

    found = _measured(answers=answers)
    told = {one.test: one.reason for one in found.untested if one.host == "b"}
    assert "Cannot assign" in told["net.ports.peer"]
    assert "Cannot assign" in told["net.allreduce.cross"]


def test_closed_ports_leave_no_link_to_measure() -> None:
    def answers(program: str, request: Mapping[str, Any]) -> list[dict[str, Any]]:
        if request.get("do") == "ports" and request["name"] == "a":
            closed = [[21000, "no answer in 3 s"], [40000, "no answer in 3 s"]]
            return [{"kind": "row", "target": "b", "opened": [], "closed": closed, "slowest_s": 0}]
        return _well(program, request)

    found = _measured(answers=answers)
    (link,) = [link for link in found.links if link.source == "a"]
    assert (link.bytes_per_s, link.problem) == (None, "none of its ports is open")

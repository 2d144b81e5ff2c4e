"""Which hosts can sum together, over which devices, and why others cannot."""

import threading
from typing import Any

from llmdeploy.edge import Completed
from llmdeploy.errors import Unreachable
from llmdeploy.facts.active import group
from llmdeploy.facts.active.send import Seat
from llmdeploy.facts.bundle import HostFacts
from llmdeploy.facts.runtime import Package

from ...fakes import FakeClock, FakeShell
from .. import hosts, spoiled


def _seats(*names: str) -> list[Seat]:
    return [
        Seat(host=name, python="/py", shell=FakeShell(), address=f"10.0.0.{at}", interface="eth0")
        for at, name in enumerate(names, start=1)
    ]


def _facts(**changed: dict[str, Any]) -> dict[str, HostFacts]:
    return {
        name: hosts.facts(**values).model_copy(update={"host": name})
        for name, values in changed.items()
    }


def test_hosts_without_cards_sum_over_gloo() -> None:
    made, untested = group.plans(_seats("a", "b"), _facts(a={}, b={}), ports={"a": 21007})
    assert untested == ()
    (plan,) = made
    assert (plan.backend, plan.device, plan.ranks, plan.port) == ("gloo", "cpu", 2, 21007)


def test_hosts_with_as_many_cards_sum_over_nccl_and_each_alone_too() -> None:
    eight = {"torch_cuda_devices": 8, "accelerators": spoiled.cards(8)}
    made, untested = group.plans(
        _seats("a", "b"), _facts(a=eight, b=eight), ports={"a": 21007, "b": 21007}
    )
    assert untested == ()
    assert [(p.test, p.backend, p.ranks) for p in made] == [
        (group.WITHIN, "nccl", 8), (group.WITHIN, "nccl", 8), (group.CROSS, "nccl", 16),
    ]  # fmt: skip


def test_cards_that_torch_does_not_see_are_told_and_the_processors_sum() -> None:
    fake = {"torch_cuda_devices": 0, "accelerators": spoiled.cards(8)}
    made, untested = group.plans(_seats("a", "b"), _facts(a=fake, b=fake), ports={"b": 21000})
    assert [(one.test, one.host) for one in untested] == [(group.WITHIN, "a"), (group.WITHIN, "b")]
    assert "torch sees 0 of the 8 cards" in untested[0].reason
    assert [plan.backend for plan in made] == ["gloo"]
    assert made[0].members[0].seat.host == "b"  # the one with an open port is met


def test_cards_in_use_are_left_alone_and_told() -> None:
    busy = {"torch_cuda_devices": 2, "accelerators": spoiled.cards(2, memory_free_bytes=2**30)}
    made, untested = group.plans(_seats("a", "b"), _facts(a=busy, b={}), ports={"b": 21000})
    assert [plan.backend for plan in made] == ["gloo"]
    assert [one.host for one in untested] == ["a"]
    assert "must not be disturbed" in untested[0].reason


def test_a_host_without_torch_is_left_out_with_the_reason() -> None:
    none = {"packages": (Package(name="torch", version=None),)}
    made, untested = group.plans(
        _seats("a", "b", "c"), _facts(a={}, b=none, c={}), ports={"a": 21000}
    )
    assert [plan.ranks for plan in made] == [2]
    assert [(one.host, one.reason) for one in untested] == [("b", "torch is not installed for /py")]


def test_one_host_that_could_is_not_enough() -> None:
    none = {"packages": ()}
    made, untested = group.plans(_seats("a", "b"), _facts(a={}, b=none), ports={"a": 21000})
    assert made == ()
    assert {one.host: one.reason for one in untested} == {
        "b": "torch is not installed for /py", "a": "no other host can take part",
    }  # fmt: skip


def test_without_an_open_port_nobody_can_meet() -> None:
    made, untested = group.plans(_seats("a", "b"), _facts(a={}, b={}), ports={})
    assert made == ()
    assert {one.reason for one in untested} == {
        "no port of the plan is open from all hosts to any of them"
    }


def test_one_host_alone_has_nothing_to_sum_with_and_nothing_is_missing() -> None:
    assert group.plans(_seats("a"), _facts(a={}), ports={"a": 21000}) == ((), ())


def test_once_a_host_failed_the_others_are_ended_and_not_waited_for() -> None:
    gone, waiting = _seats("gone", "waiting")
    told = threading.Event()

    def lose(argv: tuple[str, ...], stdin: str) -> Completed:
        raise Unreachable("gone: the connection was lost", fix="")

    def wait(argv: tuple[str, ...], stdin: str) -> Completed:
        if "kill" in argv[2]:
            told.set()
            return Completed(argv=argv, exit_code=0, stdout="", stderr="")
        assert told.wait(30)
        raise Unreachable("waiting: `sh -c` was killed there by a signal", fix="")

    for seat, act in ((gone, lose), (waiting, wait)):
        assert isinstance(seat.shell, FakeShell)
        seat.shell.on_run = act
    plan = group.Plan(
        test=group.CROSS, backend="gloo", device="cpu", name="cpu", port=21001,
        members=tuple(group.Ranks(seat=seat, local=1) for seat in (gone, waiting)),
        sizes_bytes=(1024,),
    )  # fmt: skip
    found = group.all_reduce(plan, report=lambda words: None, clock=FakeClock())
    assert [(one.host, one.error) for one in found.states] == [
        ("gone", "the connection was lost"),
        ("waiting", "it was told to end, as another host had failed"),
    ]
    assert isinstance(waiting.shell, FakeShell)
    started, ended = waiting.shell.ran
    assert ended[-1] == started[-1]  # the very process with that request among its words

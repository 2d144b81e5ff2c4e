"""Memory of cards: what was in use before a start is what is in use after a stop."""

import pytest

from llmdeploy.edge import Completed
from llmdeploy.errors import Refused
from llmdeploy.plan.document import Plan
from llmdeploy.release import device_memory
from llmdeploy.release.site import Site
from llmdeploy.release.state import Phase, ReleaseState, Standing
from tests.fakes import FakeClock, FakeShell

from .test_groups import cluster_plan, site

OLD = "GPU-a, 0, 41000\nGPU-b, 1, 5\nGPU-a, 77, 40900\n"
"""Another release holds most of card 0; 100 MiB of it are the driver's."""


def on_cards() -> Plan:
    plan = cluster_plan(("h1", "h2"))
    replica = plan.replicas[0]
    serve = replica.serve.model_copy(update={"device": "cuda"})
    return plan.model_copy(update={"replicas": (replica.model_copy(update={"serve": serve}),)})


def release(plan: Plan) -> ReleaseState:
    return ReleaseState(
        id=plan.id, phase=Phase.STARTED, standing=Standing.CANDIDATE, port_block=0, core_slot=None,
        endpoints=(), changed_s=0.0,
    )  # fmt: skip


def shell(where: Site, host: str) -> FakeShell:
    found = where.station(host).shell
    assert isinstance(found, FakeShell)
    return found


def shows(where: Site, host: str, text: str, *, exit_code: int = 0, stderr: str = "") -> None:
    shell(where, host).on_run = lambda argv, stdin: Completed(
        argv=argv, exit_code=exit_code, stdout=text, stderr=stderr
    )


def test_cards_and_what_processes_hold_of_them_are_read() -> None:
    first, second = device_memory.parse_cards(OLD)
    assert (first.index, first.used_bytes, first.stray_bytes) == ("0", 41000 << 20, 100 << 20)
    assert (second.index, second.stray_bytes) == ("1", 5 << 20)
    assert device_memory.parse_cards("GPU-a, 0, [N/A]\n")[0].used_bytes == 0
    assert device_memory.parse_cards("") == ()


def test_memory_that_is_back_is_asked_for_once() -> None:
    where, plan = site("h1", "h2"), on_cards()
    shows(where, "h1", OLD)
    device_memory.note(plan, site=where)
    path = f"/state/chat/runs/{plan.id}/devices.json"
    assert path in shell(where, "h1").files
    assert path not in shell(where, "h2").files  # it has no nvidia-smi
    shows(where, "h1", OLD)
    device_memory.check_back(release(plan), site=where)
    asked = len(shell(where, "h1").ran)
    device_memory.check_back(release(plan), site=where)
    assert len(shell(where, "h1").ran) == asked


def test_a_release_that_came_meanwhile_is_not_this_ones_memory() -> None:
    where, plan = site("h1", "h2"), on_cards()
    shows(where, "h1", OLD)
    device_memory.note(plan, site=where)
    shows(where, "h1", "GPU-a, 0, 41000\nGPU-b, 1, 70005\nGPU-a, 77, 40900\nGPU-b, 88, 70000\n")
    device_memory.check_back(release(plan), site=where)


def test_memory_that_no_process_has_is_refused_with_host_card_and_both_values() -> None:
    where, plan = site("h1", "h2"), on_cards()
    shows(where, "h1", OLD)
    shows(where, "h2", "GPU-c, 3, 400\n")
    device_memory.note(plan, site=where)
    shows(where, "h2", "GPU-c, 3, 20400\n")
    with pytest.raises(Refused) as failed:
        device_memory.check_back(release(plan), site=where)
    assert str(failed.value) == (
        f"release {plan.id}: h2: card 3 has 19.9 GiB in use by no process, needed the 400.0 MiB "
        "of before its start (at most 256.0 MiB more)"
    )


def test_the_driver_gets_time_to_give_memory_back() -> None:
    where, plan = site("h1", "h2"), on_cards()
    shows(where, "h1", "GPU-a, 0, 10\n")
    device_memory.note(plan, site=where)
    shows(where, "h1", "GPU-a, 0, 9000\n")
    clock = where.clock
    assert isinstance(clock, FakeClock)
    begun_s = clock.now_s()
    clock.on_sleep = lambda _: shows(
        where, "h1", "GPU-a, 0, 9000\n" if clock.now_s() - begun_s < 5 else "GPU-a, 0, 12\n"
    )
    device_memory.check_back(release(plan), site=where)
    assert clock.now_s() - begun_s == 5


def test_a_card_that_fell_off_and_a_tool_that_fails_never_pass() -> None:
    where, plan = site("h1", "h2"), on_cards()
    shows(where, "h1", "GPU-a, 0, 10\nGPU-b, 1, 10\n")
    device_memory.note(plan, site=where)
    shows(where, "h1", "GPU-a, 0, 10\n")
    with pytest.raises(Refused, match="h1: nvidia-smi no longer shows card 1"):
        device_memory.check_back(release(plan), site=where)
    shows(where, "h1", "", exit_code=1, stderr="Unable to determine the device handle")
    with pytest.raises(Refused, match=r"Unable to determine.* is not known"):
        device_memory.check_back(release(plan), site=where)


def test_a_release_on_processors_asks_no_cards() -> None:
    where, plan = site("h1", "h2"), cluster_plan(("h1", "h2"))
    shows(where, "h1", OLD)
    device_memory.note(plan, site=where)
    device_memory.check_back(release(plan), site=where)
    assert shell(where, "h1").ran == []

"""Two commands at one service: the second waits, is told who is there, or wins as a rollback."""

import pytest

from llmdeploy.errors import Busy, Refused
from llmdeploy.release import lock
from llmdeploy.release.owner import Owner
from llmdeploy.release.state import Standing
from llmdeploy.rollout.back import rollback, way_back
from llmdeploy.rollout.outcome import Result
from llmdeploy.rollout.overview import overview

from ..release.hosts import stat
from .test_gray import gray
from .world import LAYOUT, World

ALICE = Owner(user="alice", host="gw", pid=41, start_ticks=7, boot="unknown")


def taken(world: World, path: str, reason: str) -> None:
    """Alice's living process holds that lock file."""
    world.shell.files["/proc/41/stat"] = stat(41, ticks=7)
    now_s = world.clock.now_s()
    held = lock.Lock(owner=ALICE, reason=reason, taken_s=now_s, expires_s=now_s + 3600)
    world.shell.files[path] = held.model_dump_json().encode()


def roll_back(world: World) -> None:
    rollback(way_back("chat", site=world.site), reason="operator", site=world.site)


def once_confirmed(world: World, act) -> None:
    """Does something while a command waits for the gateway's word."""
    original = world.admin

    def admin():
        world.admin = original
        act()
        return original()

    world.admin = admin


def test_a_second_verify_is_refused_at_once_with_the_owner_of_the_first():
    world = World()
    gray(world)
    taken(world, LAYOUT.verify_lock, "verify aaa")
    world.clock.sleep(200)
    with pytest.raises(Busy, match=r"alice@gw \(process 41\).* 3 min 20 s to verify aaa") as error:
        world.verify()
    assert error.value.fix == "wait until that ends, or end it: kill 41 (on gw)"
    assert world.said == []
    assert "acceptance" not in "".join(world.shell.files)


def test_a_verify_that_was_killed_does_not_hold_up_the_next():
    world = World()
    gray(world)
    taken(world, LAYOUT.verify_lock, "verify aaa")
    del world.shell.files["/proc/41/stat"]
    assert world.verify().result == Result.PROMOTED
    assert "lock taken over" in world.journaled()
    assert LAYOUT.verify_lock not in world.shell.files


def test_the_next_step_waits_for_a_launch_and_says_whose():
    world = World()
    gray(world)
    world.verify(once=True)
    taken(world, LAYOUT.lock, "launch release ccc")
    began_s = world.clock.now_s()

    def ends(w):
        if w.clock.now_s() > began_s + 60:
            w.shell.files.pop(LAYOUT.lock, None)

    world.events.append(ends)
    assert world.verify().result == Result.PROMOTED
    line = "5 %: promote, once alice@gw (process 41) ends, who holds the service to launch release"
    assert any(said.startswith(line) for said in world.said)


def test_harm_is_found_while_the_next_step_waits():
    world = World()
    old, new = gray(world)
    world.verify(once=True)
    taken(world, LAYOUT.lock, "launch release ccc")
    began_s = world.clock.now_s()

    def dies(w):
        w.engines[new].alive = w.clock.now_s() < began_s + 60

    world.events.append(dies)
    outcome = world.verify()
    assert outcome.result == Result.ROLLED_BACK
    assert outcome.reasons[0].startswith("an engine process is gone")
    assert world.weights() == {old: 1.0}


@pytest.mark.parametrize("share", [0.0, 0.05])
def test_a_service_that_stays_held_holds_the_release_where_it_is(share):
    world = World()
    old, new = gray(world)
    if share:
        world.verify(once=True)
    taken(world, LAYOUT.lock, "launch release ccc")
    outcome = world.verify(timeout_s=120)
    assert (outcome.result, outcome.share) == (Result.HELD, share)
    assert "alice@gw (process 41) has held the service" in outcome.words()
    assert world.weights() == ({new: 0.05, old: 0.95} if share else {old: 1.0})


def test_a_rollback_waits_for_nobody():
    world = World()
    old, _ = gray(world)
    world.verify(once=True)
    taken(world, LAYOUT.lock, "launch release ccc")
    taken(world, LAYOUT.verify_lock, "verify aaa")
    roll_back(world)
    assert world.weights() == {old: 1.0}


def test_a_rollback_in_the_midst_of_a_step_wins():
    world = World()
    old, new = gray(world)
    world.verify(once=True)
    original = world.shell.append

    def append(path, content):
        original(path, content)
        if b'"step intended"' in content:  # checked and written down, its weights not yet set
            roll_back(world)

    world.shell.append = append
    with pytest.raises(Refused, match="moved it meanwhile, it is rolled_back now"):
        world.verify()
    assert world.weights() == {old: 1.0}
    assert world.standings()[new] == Standing.ROLLED_BACK


def test_a_step_in_the_midst_of_a_rollback_is_undone():
    world = World()
    old, new = gray(world)
    world.verify(once=True)
    once_confirmed(world, lambda: world.weigh({new: 0.25, old: 0.75}))
    roll_back(world)
    assert world.weights() == {old: 1.0}


def test_status_names_who_verifies():
    world = World()
    gray(world)
    taken(world, LAYOUT.verify_lock, "verify aaa")
    world.clock.sleep(5)
    assert overview(site=world.site).locked_by == "alice@gw (process 41) for 5 s: verify aaa"

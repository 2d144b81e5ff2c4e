"""Rollback: who takes over, at once and again after a kill, and when it is refused."""

import pytest

from llmdeploy.errors import Refused
from llmdeploy.gateway.apply import read_state
from llmdeploy.release import journal
from llmdeploy.release.state import Phase, Standing
from llmdeploy.rollout.back import rollback, way_back

from .world import LAYOUT, World


def promoted(world):
    """A previous and a live release."""
    old = world.live()
    new = world.launch(batched_tokens=32)
    world.verify()
    return old, new


def back(world, reason="asked for"):
    return rollback(way_back("chat", site=world.site), reason=reason, site=world.site)


def test_the_previous_release_takes_all_traffic_and_the_journal_says_why():
    world = World()
    old, new = promoted(world)
    returned = back(world, "bad answers")
    assert (returned.release, returned.rolled_back) == (old, new)
    assert world.weights() == {old: 1.0}
    assert world.standings() == {old: Standing.LIVE, new: Standing.ROLLED_BACK}
    last = journal.read(LAYOUT, world.shell)[-1]
    assert (last.event, last.release, last.data["reason"]) == ("rolled back", new, "bad answers")


def test_while_a_gray_release_is_on_the_live_one_takes_all():
    world = World()
    old, new = world.live(), world.launch(batched_tokens=32)
    world.verify(once=True)
    returned = back(world)
    assert (returned.release, returned.rolled_back) == (old, new)
    assert world.weights() == {old: 1.0}


def test_a_rollback_starts_no_engine_and_runs_no_analysis():
    world = World()
    promoted(world)
    before = len(world.shell.ran)
    back(world)
    ran = {argv[0] for argv in world.shell.ran[before:]}
    assert ran <= {"sh"}  # only to say who wrote the journal's line


def test_a_rollback_killed_after_the_weights_is_finished_by_the_next():
    world = World()
    old, new = promoted(world)
    world.weigh({old: 1.0})  # the command died here
    assert back(world).release == old
    assert world.standings() == {old: Standing.LIVE, new: Standing.ROLLED_BACK}


def test_a_gray_rollback_killed_after_the_weights_is_finished_by_the_next():
    world = World()
    old, new = world.live(), world.launch(batched_tokens=32)
    world.verify(once=True)
    world.weigh({old: 1.0})
    returned = back(world)
    assert (returned.release, returned.rolled_back) == (old, new)
    assert world.standings() == {old: Standing.LIVE, new: Standing.ROLLED_BACK}


def test_a_second_rollback_has_nothing_to_go_back_to():
    world = World()
    old, _ = promoted(world)
    back(world)
    with pytest.raises(Refused, match=f"nothing to go back to: release {old} is live"):
        back(world)
    assert world.weights() == {old: 1.0}


def test_a_stopped_previous_release_is_named_with_the_way_to_start_it():
    world = World()
    old, new = promoted(world)
    journal.mark_phase(old, Phase.STOPPED, layout=LAYOUT, shell=world.shell, clock=world.clock)
    with pytest.raises(Refused, match=f"release {new} is live, {old} stopped") as refused:
        back(world)
    assert f"llmdeploy launch plans/chat/{old}" in refused.value.fix


def test_a_dead_previous_release_gets_no_traffic():
    world = World()
    old, new = promoted(world)
    world.engines[old].alive = False
    with pytest.raises(Refused, match="needed it alive; no traffic was moved") as refused:
        back(world)
    assert f"llmdeploy launch {LAYOUT.release(old)}" in refused.value.fix
    assert world.weights() == {new: 1.0}


def test_a_dark_candidate_is_no_gray_release():
    world = World()
    old = world.live()
    world.launch(batched_tokens=32)
    with pytest.raises(Refused, match=f"nothing to go back to: release {old} is live"):
        back(world)


def test_what_was_rolled_back_answers_for_nobody():
    world = World()
    old, new = promoted(world)
    back(world)
    assert read_state(LAYOUT, world.shell).fallback in (None, old)
    assert world.weights().get(new) is None

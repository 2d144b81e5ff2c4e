"""The gray release in a world of fakes at the edges: promoted, held, rolled back, gone on."""

import pytest

from llmdeploy.errors import InputError, Refused
from llmdeploy.observe.signatures import catalogue
from llmdeploy.release import journal
from llmdeploy.release.state import Standing
from llmdeploy.rollout.back import rollback, way_back
from llmdeploy.rollout.outcome import Result
from llmdeploy.verdict.acceptance import AcceptanceRecord
from llmdeploy.verdict.judge import DecisionRecord, decide

from .world import LAYOUT, World


class Killed(BaseException):
    """Stands for SIGKILL: nothing catches it."""


def after(seconds, act):
    """An event that acts once, after so many seconds of waiting."""
    left = [seconds]

    def event(world):
        left[0] -= 1
        if left[0] == 0:
            act(world)

    return event


def gray(world, **candidate):
    """A live release and a candidate beside it; their ids."""
    return world.live(), world.launch(batched_tokens=32, **candidate)


def test_a_good_release_takes_all_steps_and_becomes_live():
    world = World()
    old, new = gray(world)
    outcome = world.verify()
    assert (outcome.result, outcome.release, outcome.old_release) == (Result.PROMOTED, new, old)
    assert world.weights() == {new: 1.0}
    assert world.standings() == {old: Standing.PREVIOUS, new: Standing.LIVE}
    assert [v.share for v in outcome.verdicts] == [0.05, 0.25, 0.5, 1.0]
    assert world.journaled().count("step begun") == 4


def test_the_first_release_is_accepted_and_then_gets_everything_at_once():
    world = World()
    new = world.launch()
    outcome = world.verify()
    assert outcome.result == Result.PROMOTED
    assert [v.share for v in outcome.verdicts] == [1.0]
    assert world.weights() == {new: 1.0}
    assert world.standings() == {new: Standing.LIVE}


def test_a_first_release_without_any_client_is_proven_by_its_own_requests():
    world = World(rate_per_s=0)
    world.launch()
    outcome = world.verify()
    assert outcome.result == Result.PROMOTED
    assert outcome.verdicts[-1].live_requests == 0
    assert outcome.verdicts[-1].synthetic_requests >= 20


def test_a_release_that_takes_twice_the_time_is_rolled_back():
    world = World()
    old, new = gray(world, time_per_token_s=0.04)
    outcome = world.verify()
    assert outcome.result == Result.ROLLED_BACK
    assert outcome.reasons[0].startswith(("tpot: ", "ttft: "))
    assert "of the old" in outcome.reasons[0]
    assert world.weights() == {old: 1.0}
    assert world.standings() == {old: Standing.LIVE, new: Standing.ROLLED_BACK}
    assert "live and" in outcome.words()


def test_a_release_that_fails_five_per_cent_is_rolled_back():
    world = World()
    old, _ = gray(world, error_ratio=0.05)
    outcome = world.verify()
    assert outcome.result == Result.ROLLED_BACK
    assert any(reason.startswith("errors: ") for reason in outcome.reasons)
    assert world.weights() == {old: 1.0}


def test_on_harm_the_weights_move_before_anything_is_written_down():
    world = World()
    gray(world, error_ratio=0.5)
    world.verify()
    last_routes = max(i for i, p in enumerate(world.shell.written) if p.endswith("/rds.json"))
    last_step = max(i for i, p in enumerate(world.shell.written) if p.endswith("acceptance.json"))
    between = [p for p in world.shell.written[last_step:last_routes] if "verdicts" in p]
    assert between == []
    entries = journal.read(LAYOUT, world.shell)
    assert [e.event for e in entries[-2:]] == ["standing", "rolled back"]
    assert entries[-1].data["reason"].startswith("errors: ")


FAULTS = {
    "an engine process is gone": lambda e: setattr(e, "alive", False),
    "was started again": lambda e: setattr(e, "pid", 999),
    "health page failed 2 times": lambda e: setattr(e, "healthy", False),
    "golden prompts failed 2 times": lambda e: setattr(e, "words", ["no"] * 17),
}


@pytest.mark.parametrize("said", FAULTS)
def test_a_hard_guard_rolls_back_without_statistics(said):
    world = World(rate_per_s=1)
    old, new = gray(world, policy={"min_requests": 500})
    world.events.append(after(3, lambda w: FAULTS[said](w.engines[new])))
    outcome = world.verify()
    assert outcome.result == Result.ROLLED_BACK
    assert said in outcome.reasons[0]
    assert world.weights() == {old: 1.0}


def test_a_token_counter_that_stands_still_while_requests_run_rolls_back():
    world = World(rate_per_s=1)
    policy = {"min_requests": 500, "golden": (), "synthetic": False}
    old, _ = gray(world, policy=policy, running=2)
    outcome = world.verify()
    assert outcome.result == Result.ROLLED_BACK
    assert outcome.reasons[0].startswith("2 requests run and no token came for 30 s")
    assert world.weights() == {old: 1.0}


def test_a_line_of_exhausted_memory_rolls_back():
    world = World(rate_per_s=1)
    _, new = gray(world, policy={"min_requests": 500})
    line = next(s.match for s in catalogue() if s.id == "memory.cpu_allocator")
    world.events.append(after(4, lambda w: w.log(new, line)))
    outcome = world.verify()
    assert outcome.result == Result.ROLLED_BACK
    assert "no memory left" in outcome.reasons[0]


def test_golden_prompts_that_fail_on_the_old_release_too_are_nobodys_fault():
    world = World()
    old, new = gray(world)

    def spoil(w):
        w.engines[old].words = w.engines[new].words = ["no"] * 17

    world.events.append(after(2, spoil))
    assert world.verify().result == Result.PROMOTED


def test_a_release_that_is_not_accepted_stays_dark():
    world = World()
    old, new = gray(world, words=["4"] * 17)
    outcome = world.verify()
    assert outcome.result == Result.REJECTED
    assert any(reason.startswith("accept.garbage") for reason in outcome.reasons)
    assert outcome.acceptance is not None
    failed, all_checks = len(outcome.acceptance.failed), len(outcome.acceptance.findings)
    assert outcome.words().endswith(f"stays dark: {failed} of {all_checks} checks did not pass")
    assert not [line for line in world.said if "FAIL" in line]
    assert world.weights() == {old: 1.0}
    assert world.standings()[new] == Standing.CANDIDATE


def test_acceptance_is_not_repeated_for_the_very_same_processes():
    world = World(rate_per_s=0)
    _, new = gray(world, policy={"synthetic": False, "step_timeout": "10s"})
    world.events.append(after(1, lambda w: (_ for _ in ()).throw(Killed)))
    with pytest.raises(Killed):
        world.verify()
    rollback(way_back("chat", site=world.site), reason="test", site=world.site)
    world.events.clear()
    world.verify(new)
    assert "acceptance: passed before by the same processes, not repeated" in world.said


def test_a_damaged_record_of_acceptance_is_made_again():
    world = World()
    _, new = gray(world)
    path = f"{world.site.layout.run(new)}/acceptance.json"
    world.site.shell.write(path, b"{")
    assert world.verify().result == Result.PROMOTED
    assert AcceptanceRecord.model_validate_json(world.site.shell.read(path)).accepted


def test_without_traffic_and_probes_the_step_is_held_and_says_what_is_missing():
    world = World(rate_per_s=0)
    policy = {"synthetic": False, "step_timeout": "30s", "golden": ()}
    old, new = gray(world, policy=policy)
    outcome = world.verify()
    assert outcome.result == Result.HELD
    assert outcome.reasons[-1] == "needs 20 more requests (nothing arrives at present)"
    assert world.weights() == {new: 0.05, old: 0.95}


def test_one_look_holds_and_changes_nothing_more():
    world = World()
    old, new = gray(world)
    outcome = world.verify(once=True)
    assert outcome.result == Result.HELD
    assert world.weights() == {new: 0.05, old: 0.95}


def test_a_slow_day_is_topped_up_and_counted_apart():
    world = World(rate_per_s=1)
    gray(world)
    outcome = world.verify()
    assert outcome.result == Result.PROMOTED
    assert outcome.verdicts[0].synthetic_requests > outcome.verdicts[0].live_requests


def test_a_killed_command_goes_on_at_its_step_with_its_evidence():
    world = World(rate_per_s=4)
    _, _ = gray(world, policy={"synthetic": False, "golden": ()})

    def kill(w):
        raise Killed

    world.events.append(after(60, kill))
    with pytest.raises(Killed):
        world.verify()
    begun = world.journaled().count("step begun")
    assert begun == 1
    world.events.clear()
    seen = world.verify(once=True).verdicts[-1]
    assert seen.live_requests > 0  # of before the kill
    assert world.journaled().count("step begun") == begun
    assert world.verify().result == Result.PROMOTED
    assert world.journaled().count("step begun") == 4


def test_a_command_killed_between_intent_and_confirmation_sets_that_step_again():
    world = World()
    old, new = gray(world)
    original = world.admin

    def die():
        raise Killed

    world.verify(once=True)  # 5 % is in place
    world.admin = die
    rolled = world.shell.files[LAYOUT.journal]
    with pytest.raises(Killed):
        world.verify()
    world.admin = original
    assert world.shell.files[LAYOUT.journal].startswith(rolled)
    assert world.verify().result == Result.PROMOTED
    assert world.weights() == {new: 1.0}
    assert world.standings() == {old: Standing.PREVIOUS, new: Standing.LIVE}


def test_a_rollback_whose_command_died_after_the_weights_is_finished():
    world = World()
    old, new = gray(world)
    world.verify(once=True)
    world.weigh({old: 1.0})  # as go_back does first
    outcome = world.verify()
    assert outcome.result == Result.ROLLED_BACK
    assert outcome.reasons == ("a rollback had begun when its command ended",)
    assert world.standings()[new] == Standing.ROLLED_BACK


def test_ctrl_c_leaves_the_step_as_it_is_and_says_so():
    world = World(rate_per_s=1)
    old, new = gray(world, policy={"min_requests": 500})

    def interrupt(w):
        raise KeyboardInterrupt

    world.events.append(after(5, interrupt))
    outcome = world.verify()
    assert outcome.result == Result.HELD
    assert outcome.reasons == ("interrupted; `llmdeploy verify chat` goes on from here",)
    assert world.weights() == {new: 0.05, old: 0.95}


def test_a_rollback_by_somebody_else_ends_the_watching():
    world = World(rate_per_s=1)
    old, _ = gray(world, policy={"min_requests": 500})

    def someone(w):
        rollback(way_back("chat", site=w.site), reason="operator", site=w.site)

    world.events.append(after(5, someone))
    with pytest.raises(
        Refused, match="a command of unknown@unknown moved it meanwhile, it is rolled_b"
    ):
        world.verify()
    assert world.weights() == {old: 1.0}


def test_a_rolled_back_release_is_verified_again_only_by_its_id():
    world = World()
    old, new = gray(world)
    world.verify(once=True)
    rollback(way_back("chat", site=world.site), reason="test", site=world.site)
    assert world.verify().result == Result.LIVE  # the old one: nothing to do
    assert world.weights() == {old: 1.0}
    assert world.verify(new).result == Result.PROMOTED
    assert world.weights() == {new: 1.0}


def test_each_step_leaves_a_record_that_replays():
    world = World()
    _, new = gray(world)
    world.verify()
    folder = f"{LAYOUT.run(new)}/verdicts"
    names = world.shell.entries(folder)
    assert names == (
        "005.0-promote.json", "025.0-promote.json", "050.0-promote.json", "100.0-promote.json"
    )  # fmt: skip
    for name in names:
        record = DecisionRecord.model_validate_json(world.shell.read(f"{folder}/{name}"))
        assert decide(record.look, record.guard) == record.verdict


def test_a_dead_engine_is_not_accepted():
    world = World()
    gray(world, alive=False)
    with pytest.raises(Refused, match="one does not run"):
        world.verify()


def test_without_a_ready_release_there_is_nothing_to_verify():
    world = World()
    with pytest.raises(Refused, match="found no candidate that is ready"):
        world.verify()


def test_an_unknown_release_is_named_with_the_known_ones():
    world = World()
    old = world.live()
    with pytest.raises(InputError, match=f"no release nope, there are: {old}"):
        world.verify("nope")

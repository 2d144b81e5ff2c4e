"""Where a gray release stands follows from the journal alone."""

from llmdeploy.release.entry import Entry
from llmdeploy.release.fold import PLANNED, STANDING
from llmdeploy.rollout.position import (
    ACCEPTED,
    STEP,
    STEP_INTENT,
    Position,
    next_share,
    position,
)


def entries(*events):
    """Journal entries of release `new`, one second apart."""
    return [
        Entry(
            seq=i, at_s=float(i), actor="me", event=event, release="new", data=data,
            previous="", sha256="",
        )
        for i, (event, data) in enumerate(events)
    ]  # fmt: skip


BEFORE = ((PLANNED, {}), (ACCEPTED, {"pids": "7"}))
FIVE = {"share": "0.05", "old": "old"}
MORE = {"share": "0.25", "old": "old"}


def test_nothing_is_known_of_a_release_that_was_only_launched():
    found = position(entries((PLANNED, {})), "new")
    assert found == Position(accepted_pids=None, steps=(), intended=None)


def test_confirmed_steps_are_kept_with_their_times():
    found = position(
        entries(*BEFORE, (STEP_INTENT, FIVE), (STEP, FIVE), (STEP_INTENT, MORE), (STEP, MORE)),
        "new",
    )
    assert [(s.share, s.started_s) for s in found.steps] == [(0.05, 3.0), (0.25, 5.0)]
    assert (found.step.old, found.intended, found.accepted_pids) == ("old", None, "7")


def test_an_intent_without_confirmation_is_seen():
    found = position(
        entries(*BEFORE, (STEP_INTENT, FIVE), (STEP, FIVE), (STEP_INTENT, MORE)), "new"
    )
    assert (found.step.share, found.intended.share) == (0.05, 0.25)


def test_a_decision_ends_the_steps_but_not_the_acceptance():
    found = position(
        entries(*BEFORE, (STEP_INTENT, FIVE), (STEP, FIVE), (STANDING, {"new": "rolled_back"})),
        "new",
    )
    assert (found.steps, found.accepted_pids) == ((), "7")


def test_a_decision_about_others_changes_nothing():
    found = position(entries(*BEFORE, (STEP, FIVE), (STANDING, {"old": "live"})), "new")
    assert found.step.share == 0.05


def test_another_launch_begins_anew():
    found = position(entries(*BEFORE, (STEP, FIVE), (PLANNED, {})), "new")
    assert found == Position(accepted_pids=None, steps=(), intended=None)


def test_shares_rise_and_a_first_release_gets_all():
    shares = (0.05, 0.25, 1.0)
    assert next_share(shares, now=0.0, first_release=False) == 0.05
    assert next_share(shares, now=0.05, first_release=False) == 0.25
    assert next_share(shares, now=0.25, first_release=False) == 1.0
    assert next_share(shares, now=0.0, first_release=True) == 1.0

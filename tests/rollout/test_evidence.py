"""What the judge sees of a step: samples with their load, and the old release's pace by load."""

import pytest

from llmdeploy.observe.access_log import Cursor
from llmdeploy.observe.flight import Flight
from llmdeploy.observe.requests import Ending, RequestRecord
from llmdeploy.rollout.evidence import HISTORY_S, Reading, look_at
from llmdeploy.rollout.position import Position, Step

from ..release.made import plan

STEP_S = 1000.0


def record(started_s: float, release: str) -> RequestRecord:
    return RequestRecord(
        id="r", started_s=started_s, release=release, served_by=release, ending=Ending.OK,
        status=200, probe=False, duration_s=2, ttft_s=1, completion_tokens=11,
    )  # fmt: skip


def seen(records, flights=()):
    step = Step(share=0.5, old="old", started_s=STEP_S)
    return look_at(
        Reading(
            records=tuple(records), cursor=Cursor(inode=0, offset_bytes=0), flights=tuple(flights)
        ),
        Position(steps=(step,), intended=None, accepted_pids=None),
        release_id="new",
        plan=plan(),
        at_s=STEP_S + 60,
    )


def test_samples_carry_what_was_in_flight_beside_them():
    flights = [
        Flight(at_s=STEP_S + second, by_release={"new": 6, "old": 26}) for second in range(60)
    ]
    samples = seen([record(STEP_S + 10, "new"), record(STEP_S + 12, "old")], flights).samples
    assert [(s.new, s.load) for s in samples] == [(True, 6), (False, 26)]


def test_the_pace_is_learnt_from_the_old_release_before_and_in_the_step():
    before = [record(STEP_S - 100 + second, "old") for second in range(12)]
    look = seen([*before, record(STEP_S + 10, "new")])
    assert [s.new for s in look.samples] == [True]
    assert look.pace.tpot is not None
    assert look.pace.tpot.at(1) == pytest.approx(0.1)  # 1 s for 10 tokens after the first


def test_what_lies_too_far_back_teaches_nothing():
    long_ago = [record(STEP_S - HISTORY_S - 50 + second, "old") for second in range(12)]
    assert seen(long_ago).pace.tpot is None

"""Latency compared at like load: the old release's curve, and what it keeps from a false alarm."""

import math
import random

import pytest

from llmdeploy.service import Objectives, ReleasePolicy
from llmdeploy.verdict.document import Decision
from llmdeploy.verdict.judge import judge
from llmdeploy.verdict.like_load import LEAST_ANSWERS, LoadCurve, curve_of
from llmdeploy.verdict.look import Look, Pace, Sample, pace_of

STEP_S = 1000.0


def test_a_curve_goes_through_the_medians_and_between_them():
    # 10 in flight take 0.1 s, 20 take 0.3 s: 15 lie halfway, at 0.2 s
    curve = curve_of([(10.0, 0.1)] * 6 + [(20.0, 0.3)] * 6)
    assert curve is not None
    assert curve.at(10) == pytest.approx(0.1)
    assert curve.at(15) == pytest.approx(0.2)
    assert curve.at(20) == pytest.approx(0.3)


def test_below_the_loads_seen_it_is_flat_and_above_it_grows_as_the_load_does():
    curve = LoadCurve(loads=(10.0, 20.0), latencies_s=(0.1, 0.3))
    assert curve.at(1) == 0.1
    assert curve.at(40) == pytest.approx(0.6)


def test_latencies_that_fall_with_load_are_pooled():
    curve = curve_of([(10.0, 0.4)] * 6 + [(20.0, 0.1)] * 6)
    assert curve is not None
    assert curve.loads == (15.0,)
    assert curve.latencies_s[0] == pytest.approx(math.sqrt(0.4 * 0.1))


def test_one_slow_answer_moves_nothing():
    curve = curve_of([(10.0, 0.1)] * 12 + [(10.0, 9.0)])
    assert curve is not None
    assert curve.at(10) == pytest.approx(0.1)


def test_too_few_answers_teach_nothing():
    assert curve_of([(10.0, 0.1)] * (LEAST_ANSWERS - 1)) is None


def drifted(rng: random.Random, *, slowdown: float) -> list[Sample]:
    """100 s at half of the traffic of 32 clients, of which the new release holds 16, then 24;
    before that 100 s in which the old one held 24 to 32. 18 ms a token for each in flight."""
    samples = []
    for i in range(300):
        ended_s = STEP_S - 100 + i / 1.5
        drift = 8 * min(1.0, max(0.0, (ended_s - STEP_S) / 30))
        new = ended_s > STEP_S and rng.random() < 0.5
        load = (16 + drift if new else 16 - drift) if ended_s > STEP_S else rng.uniform(24, 32)
        tpot_s = 0.018 * load * math.exp(rng.gauss(0, 0.1)) * (slowdown if new else 1)
        samples.append(
            Sample(
                new=new, probe=False, failed=False, ended_s=ended_s, ttft_s=0.5,
                tpot_s=tpot_s, output_tokens=16, load=load,
            )
        )  # fmt: skip
    return samples


def judged(samples: list[Sample], pace: Pace):
    return judge(
        Look(
            release="new", old_release="old", share=0.5, step_started_s=STEP_S,
            at_s=STEP_S + 100, policy=ReleasePolicy(), objectives=Objectives(),
            samples=tuple(s for s in samples if s.ended_s > STEP_S), pace=pace,
        )
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(10))
def test_an_equal_release_that_drifted_to_more_load_is_promoted(seed):
    samples = drifted(random.Random(seed), slowdown=1.0)
    assert judged(samples, pace_of(samples)).decision == Decision.PROMOTE
    assert judged(samples, Pace()).decision == Decision.ROLL_BACK  # compared as they are


@pytest.mark.parametrize("seed", range(10))
def test_a_release_twice_as_slow_is_rolled_back_and_like_loads_are_named(seed):
    samples = drifted(random.Random(seed), slowdown=2.0)
    verdict = judged(samples, pace_of(samples))
    assert verdict.decision == Decision.ROLL_BACK
    tpot = next(e for e in verdict.evidence if e.metric == "tpot")
    assert 1.7 < tpot.new_value / tpot.old_value < 2.3
    assert "of the old at like load" in verdict.reasons[0]


def at_all_traffic(slowdown: float):
    """32 clients on the new release alone; the old one took 0.58 s a token with as many."""
    rng = random.Random(3)
    olds = [one for one in drifted(rng, slowdown=1.0) if not one.new and one.ended_s < STEP_S]
    news = [
        Sample(
            new=True, probe=False, failed=False, ended_s=STEP_S + i, ttft_s=0.5, output_tokens=16,
            tpot_s=0.018 * 32 * math.exp(rng.gauss(0, 0.1)) * slowdown, load=32,
        )
        for i in range(60)
    ]  # fmt: skip
    return judge(
        Look(
            release="new", old_release="old", share=1.0, step_started_s=STEP_S, at_s=STEP_S + 60,
            policy=ReleasePolicy(), objectives=Objectives.model_validate({"tpot_p95": "500ms"}),
            samples=tuple(news), pace=pace_of(olds),
        )
    )  # fmt: skip


def test_at_all_traffic_an_objective_that_the_old_release_missed_at_like_load_is_excused():
    assert at_all_traffic(1.0).decision == Decision.PROMOTE


def test_at_all_traffic_a_release_that_misses_by_far_more_is_rolled_back():
    verdict = at_all_traffic(2.0)
    assert verdict.decision == Decision.ROLL_BACK
    assert "of the old at like load, 95 % promised under 500 ms" in verdict.reasons[0]

"""The tests' promises, simulated: false alarms under constant looking, and requests needed."""

import itertools
import math
import random
import statistics
import sys

import pytest

from llmdeploy.verdict.sequential import (
    EPISODE_MOST,
    EPISODE_S,
    Block,
    Ranked,
    block_requests,
    blocks_of,
    log_e_excess,
    log_e_origin,
    log_e_slower,
    upper_ratio,
)

ERROR_LIMIT, LATENCY_LIMIT = 667.0, 2000.0
"""What 1 % over four steps leaves: 4 / (0.01 x 0.6) and 4 / (0.01 x 0.2)."""


NEW_PER_S = 2


def alone(placing):
    """One block of that order."""
    return Block(order=placing, ended_s=0.0)


def stream(rng, *, share, slowdown=1.0, sigma=0.6, count, load=lambda i: 1.0):
    """Requests in order, old and new mixed by `share`, log-normal latency around 50 ms.

    Two of the new release a second.
    """
    for i in range(count):
        new = rng.random() < share
        value = 0.05 * math.exp(rng.gauss(0, sigma)) * load(i)
        yield Ranked(
            new=new, value=value * (slowdown if new else 1.0), ended_s=i * share / NEW_PER_S
        )


def new_requests_until(limit, requests, *, share, allowed_ratio):
    """Requests of the new release until the limit, looking after each block; None if never."""
    requests = list(requests)
    size = block_requests(share)
    blocks = []
    for end in range(size, len(requests) + 1, size):
        chunk = requests[end - size : end]
        blocks.extend(blocks_of(chunk, share=share, allowed_ratio=allowed_ratio))
        if log_e_slower(blocks) >= math.log(limit):
            return sum(r.new for r in requests[:end])
    return None


def failures_until(limit, rng, *, ratio, most):
    failures = 0
    for trials in range(1, most + 1):
        failures += rng.random() < ratio
        if log_e_excess(failures, trials, allowed_ratio=0.001) >= math.log(limit):
            return trials, failures
    return None


@pytest.mark.parametrize("share", [0.05, 0.25, 0.5])
def test_identical_releases_rarely_alarm_however_often_one_looks(share, capsys):
    rng = random.Random(20)
    runs, limit = 150, 20
    alarms = sum(
        new_requests_until(
            limit, stream(rng, share=share, count=int(100 / share)), share=share, allowed_ratio=0
        )
        is not None
        for _ in range(runs)
    )
    with capsys.disabled():
        sys.stdout.write(f"\nfalse alarms, share {share:.0%}, limit {limit}: {alarms} of {runs}\n")
    assert alarms <= runs / limit


def test_a_load_that_triples_meanwhile_raises_no_alarm_between_identical_releases():
    rng = random.Random(21)
    runs, limit = 150, 20
    alarms = 0
    for _ in range(runs):
        requests = stream(rng, share=0.25, count=400, load=lambda i: 1 + i / 200)
        alarms += new_requests_until(limit, requests, share=0.25, allowed_ratio=0) is not None
    assert alarms <= runs / limit


def test_promised_errors_never_alarm_in_a_thousand_requests():
    rng = random.Random(22)
    found = [failures_until(ERROR_LIMIT, rng, ratio=0.001, most=1000) for _ in range(300)]
    assert found.count(None) == len(found)


def test_power_is_printed_and_a_release_twice_as_slow_never_escapes(capsys):
    rng = random.Random(23)
    lines = ["\nnew requests until rolled back: median (90 %)"]
    for sigma, share in itertools.product((0.2, 0.6), (0.05, 0.25, 0.5)):
        found = []
        for _ in range(40):
            requests = stream(rng, share=share, slowdown=2, sigma=sigma, count=int(400 / share))
            found.append(
                new_requests_until(LATENCY_LIMIT, requests, share=share, allowed_ratio=0.25)
            )
        assert None not in found
        late = sorted(found)[int(0.9 * len(found))]
        lines.append(f"  time x2, sigma {sigma}, share {share:4.0%}: "
                     f"{statistics.median(found):4.0f} ({late})")  # fmt: skip
    found = [failures_until(ERROR_LIMIT, rng, ratio=0.05, most=2000) for _ in range(200)]
    trials = sorted(t for t, _ in found)
    lines.append(f"  5 % errors: {statistics.median(trials):.0f} ({trials[180]}), "
                 f"failures {statistics.median(f for _, f in found):.0f}")  # fmt: skip
    with capsys.disabled():
        sys.stdout.write("\n".join([*lines, ""]))


def test_three_failures_in_sixty_requests_are_enough():
    assert log_e_excess(3, 60, allowed_ratio=0.001) >= math.log(ERROR_LIMIT)


def test_two_failures_in_ten_requests_are_enough():
    assert log_e_excess(2, 10, allowed_ratio=0.001) >= math.log(ERROR_LIMIT)


def test_one_failure_is_not_enough():
    assert log_e_excess(1, 1, allowed_ratio=0.001) < math.log(ERROR_LIMIT)


def test_the_mean_of_the_excess_e_value_is_one_at_the_allowed_ratio():
    trials, allowed = 40, 0.05
    mean = sum(
        math.comb(trials, k)
        * allowed**k
        * (1 - allowed) ** (trials - k)
        * math.exp(log_e_excess(k, trials, allowed_ratio=allowed))
        for k in range(trials + 1)
    )
    assert mean == pytest.approx(1)


@pytest.mark.parametrize(("news", "olds", "cut"), [(1, 3, False), (2, 2, False), (3, 4, True)])
def test_the_mean_of_a_blocks_e_value_over_all_placings_is_one_or_less_where_cut(news, olds, cut):
    placings = set(itertools.permutations([True] * news + [False] * olds))
    mean = sum(math.exp(log_e_slower([alone(p)])) for p in placings) / len(placings)
    assert mean < 1 if cut else mean == pytest.approx(1)


def test_a_later_rank_of_the_new_release_only_adds_evidence():
    placings = set(itertools.permutations([True] * 3 + [False] * 4))
    for placing in placings:
        for i in range(6):
            if placing[i] and not placing[i + 1]:
                later = (*placing[:i], False, True, *placing[i + 2 :])
                assert log_e_slower([alone(later)]) > log_e_slower([alone(placing)])


def test_failures_that_follow_the_traffic_are_no_evidence_and_those_that_do_not_are():
    fair = [(True, 0.25)] + [(False, 0.25)] * 3
    assert log_e_origin(fair * 5) < 0
    assert log_e_origin([(True, 0.05)] * 4 + [(False, 0.05)]) > math.log(ERROR_LIMIT)


def test_an_unfinished_block_waits():
    few = [Ranked(new=i % 2 == 0, value=9.0 - i, ended_s=0.0) for i in range(6)]
    assert blocks_of(few, share=0.5, allowed_ratio=0.25) == ()


def test_the_allowed_slowdown_is_taken_off_before_ranking():
    block = [
        Ranked(new=i % 2 == 0, value=1.2 if i % 2 == 0 else 1.0, ended_s=float(i)) for i in range(8)
    ]
    assert blocks_of(block, share=0.5, allowed_ratio=0.25) == (
        Block(order=(True,) * 4 + (False,) * 4, ended_s=7.0),
    )


def test_one_episode_adds_only_so_much_and_takes_away_all_it_can():
    late, early = (False,) * 4 + (True,) * 4, (True,) * 4 + (False,) * 4
    once = [Block(order=late, ended_s=i / 10) for i in range(20)]
    assert math.exp(log_e_slower(once)) == pytest.approx(EPISODE_MOST)
    twice = once + [Block(order=late, ended_s=EPISODE_S + i / 10) for i in range(20)]
    assert math.exp(log_e_slower(twice)) == pytest.approx(EPISODE_MOST**2)
    better = [Block(order=early, ended_s=i / 10) for i in range(20)]
    assert math.exp(log_e_slower(better)) < EPISODE_MOST**-9


def test_the_upper_bound_covers_what_was_seen():
    # Wilson, z 1.645: (0 + 1.353 + 1.645 x sqrt(1.353/2)) / (20 + 2.706) = 0.119
    assert upper_ratio(0, 20) == pytest.approx(0.119, abs=5e-4)
    assert upper_ratio(20, 20) == pytest.approx(1.0)

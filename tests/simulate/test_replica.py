"""One replica step by step, against sums written out."""

import random

import pytest

from llmdeploy.simulate import Limits, by_mean
from llmdeploy.simulate.arrivals import Traffic, day_ratio, poisson
from llmdeploy.simulate.request import Request
from llmdeploy.simulate.result import busiest_hour_s, result
from llmdeploy.simulate.run import History, simulate

from .paces import LinearPace

PACE = LinearPace(
    weights_s=0.01, request_s=0.0, context_s_per_token=0.0, prefill_s_per_token=0.001,
    pass_overhead_s=0.0,
)  # fmt: skip
WIDE = Limits(kv_cache_tokens=10_000, max_num_seqs=8, max_num_batched_tokens=100)


def request(at_s: float, prompt: int, output: int) -> Request:
    return Request(arrival_s=at_s, input_tokens=prompt, output_tokens=output)


def run(*requests: Request, limits: Limits = WIDE, replicas: int = 1) -> History:
    return simulate(requests, PACE, replicas=replicas, limits=limits, random=random.Random(1))


def test_a_lone_request_takes_its_prefill_then_a_step_a_token() -> None:
    (served,) = run(request(5, 50, 11)).served
    assert served.ttft_s == pytest.approx(0.05)  # 50 x 1 ms
    assert served.end_s == pytest.approx(5.15)  # and 10 x 10 ms
    assert served.tpot_s == pytest.approx(0.01)


def test_a_long_prompt_is_cut_to_the_steps_budget() -> None:
    first, second = run(request(0, 10, 101), request(0.015, 250, 2)).served
    # steps end at 10, 20 ms; then budgets of 99: 99, 99, 52 tokens, each with 10 ms of decoding
    assert second.first_s == pytest.approx(0.02 + 0.109 + 0.109 + 0.062, rel=1e-4)
    assert second.end_s == pytest.approx(second.first_s + 0.01)
    assert first.end_s == pytest.approx(0.01 + 100 * 0.01 + 0.25, rel=1e-4)


def test_slots_are_given_first_come_first_served() -> None:
    one = Limits(kv_cache_tokens=10_000, max_num_seqs=1, max_num_batched_tokens=100)
    first, second = run(request(0, 10, 3), request(0.001, 10, 1), limits=one).served
    assert first.end_s == pytest.approx(0.03)
    assert second.first_s == pytest.approx(0.04)
    assert second.tpot_s is None


def test_a_full_cache_sends_the_newest_back() -> None:
    small = Limits(kv_cache_tokens=60, max_num_seqs=8, max_num_batched_tokens=100)
    history = run(request(0, 20, 30), request(0, 20, 30), limits=small)
    assert history.preempted >= 1
    assert [s.output_tokens for s in history.served] == [30, 30]
    assert history.kv_most_tokens <= 60
    first, second = history.served
    assert second.end_s > first.end_s


def test_what_never_fits_or_finds_a_full_queue_is_rejected() -> None:
    tight = Limits(kv_cache_tokens=100, max_num_seqs=1, max_num_batched_tokens=100, max_queue=1)
    history = run(
        request(0, 90, 20), request(1, 10, 5), request(1, 10, 5), request(1, 10, 5), limits=tight
    )
    assert history.rejected_s == (0, 1)
    assert len(history.served) == 2


def test_the_balancer_spreads_what_comes_together() -> None:
    alone = run(request(0, 10, 50)).served[0].e2e_s
    spread = run(*(request(0, 10, 50) for _ in range(3)), replicas=40).served
    assert all(s.e2e_s == pytest.approx(alone) for s in spread)


def test_the_same_seed_gives_the_same_history() -> None:
    traffic = Traffic(
        rate_per_s=2, peak_factor=3, input_tokens=by_mean(30, p95=90),
        output_tokens=by_mean(20, p95=60), most_tokens=200,
    )  # fmt: skip

    def once(seed: int) -> tuple[float, ...]:
        requests = list(poisson(traffic, random=random.Random(seed), duration_s=2000))
        assert all(r.input_tokens + r.output_tokens <= 200 for r in requests)
        history = simulate(requests, PACE, replicas=3, limits=WIDE, random=random.Random(seed))
        assert len(history.served) == len(requests)
        return tuple(s.end_s for s in history.served)

    assert once(1) == once(1)
    assert once(1) != once(2)


@pytest.mark.parametrize("peak_factor", [1, 1.3, 3, 8])
def test_a_day_has_its_mean_and_its_peak(peak_factor: float) -> None:
    ratios = [day_ratio(minute * 60, peak_factor) for minute in range(1440)]
    assert sum(ratios) / 1440 == pytest.approx(1, abs=0.002)
    assert max(ratios) == pytest.approx(peak_factor)
    assert min(ratios) > 0.1


def test_figures_of_a_window_are_of_its_arrivals_and_its_time() -> None:
    history = run(request(0, 50, 11), request(3600, 50, 11), request(3700, 50, 11))
    assert busiest_hour_s(history) == 3600
    found = result(history, limits=WIDE, begin_s=3600, end_s=7200)
    assert found.requests == 2
    assert found.ttft is not None
    assert found.ttft.p99_s == pytest.approx(0.05)
    assert found.output_tokens_per_s == pytest.approx(22 / 3600)
    assert found.busy_ratio == pytest.approx(2 * 0.15 / 3600)

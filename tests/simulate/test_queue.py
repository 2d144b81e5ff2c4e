"""The closed form against the simulation of the same engine model, over a grid of loads."""

import itertools
import math
import random
import statistics
import time
from dataclasses import dataclass

import pytest

from llmdeploy.simulate import Lengths, Limits, Peak, by_mean, peak
from llmdeploy.simulate.arrivals import Traffic, poisson
from llmdeploy.simulate.result import Result, result
from llmdeploy.simulate.run import simulate

from .paces import LinearPace

GPU = LinearPace()
CPU = LinearPace(
    weights_s=0.1, request_s=0.002, context_s_per_token=1e-6, prefill_s_per_token=0.001,
    pass_overhead_s=0.01,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Bed:
    """An engine and its load, to be used at several shares of what it sustains."""

    name: str
    pace: LinearPace
    prompt: Lengths
    output: Lengths
    limits: Limits
    utilisations: tuple[float, ...]
    requests: int = 4000


BEDS = (
    Bed(
        name="chat", pace=GPU, prompt=by_mean(1000, p95=3000), output=by_mean(300, p95=900),
        limits=Limits(
            kv_cache_tokens=400_000, max_num_seqs=256, max_num_batched_tokens=2048
        ),
        utilisations=(0.2, 0.5, 0.8),
    ),
    Bed(
        name="one core", pace=CPU, prompt=by_mean(128, p95=490), output=by_mean(64, p95=240),
        limits=Limits(kv_cache_tokens=40_000, max_num_seqs=19, max_num_batched_tokens=512),
        utilisations=(0.3, 0.6),
    ),
    Bed(
        name="small cache", pace=GPU, prompt=by_mean(4000, p95=9000),
        output=by_mean(200, p95=500),
        limits=Limits(kv_cache_tokens=60_000, max_num_seqs=64, max_num_batched_tokens=8192),
        utilisations=(0.4, 0.7),
    ),
    Bed(
        name="short answer", pace=GPU, prompt=by_mean(500, p95=1500), output=by_mean(20, p95=60),
        limits=Limits(kv_cache_tokens=400_000, max_num_seqs=256, max_num_batched_tokens=2048),
        utilisations=(0.2, 0.5),
    ),
    Bed(
        name="ten tokens", pace=GPU, prompt=by_mean(500, p95=1500), output=by_mean(10, p95=20),
        limits=Limits(kv_cache_tokens=400_000, max_num_seqs=256, max_num_batched_tokens=2048),
        utilisations=(0.5, 0.8),
    ),
    Bed(
        name="few slots", pace=GPU, prompt=by_mean(200, p95=500), output=by_mean(500, p95=1200),
        limits=Limits(kv_cache_tokens=2_000_000, max_num_seqs=64, max_num_batched_tokens=4096),
        utilisations=(0.5, 0.8),
    ),
)  # fmt: skip


def closed_form(bed: Bed, *, rate_per_s: float, replicas: int) -> Peak:
    return peak(
        bed.pace, rate_per_s=rate_per_s, replicas=replicas, input_tokens=bed.prompt,
        output_tokens=bed.output, limits=bed.limits,
    )  # fmt: skip


def simulated(bed: Bed, *, rate_per_s: float, replicas: int) -> Result:
    traffic = Traffic(
        rate_per_s=rate_per_s, peak_factor=1, input_tokens=bed.prompt, output_tokens=bed.output
    )
    duration_s = bed.requests / rate_per_s
    history = simulate(
        poisson(traffic, random=random.Random(1), duration_s=duration_s), bed.pace,
        replicas=replicas, limits=bed.limits, random=random.Random(2),
    )  # fmt: skip
    return result(history, limits=bed.limits, begin_s=0.2 * duration_s, end_s=duration_s)


def test_the_closed_form_follows_the_simulation(capsys: pytest.CaptureFixture[str]) -> None:
    """Errors of the closed form, in per cent of the simulation, printed as a table."""
    errors: dict[str, list[float]] = {}
    lines = [f"{'bed':12}{'replicas':>9}{'use':>6}" + "".join(
        f"{name:>16}" for name in ("TTFT p50", "TTFT p95", "TTFT p99", "TPOT mean", "TPOT p95")
    )]  # fmt: skip
    for bed in BEDS:
        sustained = closed_form(bed, rate_per_s=0.001, replicas=1).sustained_rate_per_s
        for replicas in (1, 4):
            for use in bed.utilisations:
                rate_per_s = use * sustained * replicas
                form = closed_form(bed, rate_per_s=rate_per_s, replicas=replicas)
                true = simulated(bed, rate_per_s=rate_per_s, replicas=replicas)
                assert true.ttft is not None
                assert true.tpot is not None
                cells = []
                for name, mine_s, its_s in (
                    ("ttft_p50", form.ttft_p50_s, true.ttft.p50_s),
                    ("ttft_p95", form.ttft_p95_s, true.ttft.p95_s),
                    ("ttft_p99", form.ttft_p99_s, true.ttft.p99_s),
                    ("tpot_mean", form.tpot_mean_s, true.tpot.mean_s),
                    ("tpot_p95", form.tpot_p95_s, true.tpot.p95_s),
                ):
                    error = mine_s / its_s - 1
                    errors.setdefault(name, []).append(abs(error))
                    cells.append(f"{its_s * 1e3:8.3g}ms{error * 100:+5.0f}%")
                lines.append(
                    f"{bed.name:12}{replicas:9d}{use:6.2f}" + "".join(f"{c:>16}" for c in cells)
                )
    medians = {name: statistics.median(values) for name, values in errors.items()}
    worst = {name: max(values) for name, values in errors.items()}
    lines.append(f"{'median':27}" + "".join(f"{m * 100:15.1f}%" for m in medians.values()))
    lines.append(f"{'worst':27}" + "".join(f"{m * 100:15.1f}%" for m in worst.values()))
    with capsys.disabled():
        print("\n" + "\n".join(lines))  # noqa: T201  (the table is the test's result)
    assert medians["ttft_p50"] < 0.05
    assert medians["ttft_p95"] < 0.10
    assert medians["ttft_p99"] < 0.11
    assert medians["tpot_mean"] < 0.03
    assert medians["tpot_p95"] < 0.10
    assert worst["tpot_mean"] < 0.12
    assert worst["tpot_p95"] < 0.35
    assert worst["ttft_p50"] < 0.25
    assert worst["ttft_p95"] < 0.42


def test_it_takes_about_a_millisecond() -> None:
    bed, taken_s = BEDS[0], []
    for _ in range(20):
        began_s = time.perf_counter()
        closed_form(bed, rate_per_s=30, replicas=4)
        taken_s.append(time.perf_counter() - began_s)
    assert min(taken_s) < 0.010


def test_an_idle_replica_is_its_prefill_and_its_step() -> None:
    bed = BEDS[0]
    found = closed_form(bed, rate_per_s=1e-5, replicas=1)
    median_s = bed.pace.prefill_s(bed.prompt.quantile_tokens(0.5))
    assert found.ttft_p50_s == pytest.approx(median_s, rel=0.05)
    assert found.tpot_mean_s == pytest.approx(bed.pace.decode_step_s(1, 1360), rel=0.01)
    assert found.waiting_ratio == 0


@pytest.mark.parametrize("bed", BEDS, ids=lambda bed: bed.name)
def test_more_load_never_makes_it_faster(bed: Bed) -> None:
    sustained = closed_form(bed, rate_per_s=0.001, replicas=1).sustained_rate_per_s
    for replicas in (1, 4, 1000):
        found = [
            closed_form(bed, rate_per_s=sustained * replicas * step / 40, replicas=replicas)
            for step in range(1, 40)
        ]
        assert all(one.stable for one in found)
        for before, after in itertools.pairwise(found):
            assert after.utilisation_ratio > before.utilisation_ratio
            assert after.ttft_p95_s > before.ttft_p95_s * 0.97
            assert after.tpot_mean_s > before.tpot_mean_s * 0.98
            assert 0 < after.ttft_p50_s <= after.ttft_p95_s <= after.ttft_p99_s < math.inf


def test_past_what_it_sustains_there_is_no_end_to_the_wait() -> None:
    bed = BEDS[0]
    sustained = closed_form(bed, rate_per_s=1, replicas=3).sustained_rate_per_s
    found = closed_form(bed, rate_per_s=sustained * 1.01, replicas=3)
    assert not found.stable
    assert found.ttft_p50_s == math.inf
    assert found.utilisation_ratio == pytest.approx(1.01)
    assert found.output_tokens_per_s == pytest.approx(sustained * 300)


def test_more_replicas_carry_more_at_the_same_latency() -> None:
    bed = BEDS[0]
    few = closed_form(bed, rate_per_s=8, replicas=1)
    many = closed_form(bed, rate_per_s=8000, replicas=1000)
    assert many.utilisation_ratio == pytest.approx(few.utilisation_ratio)
    assert many.ttft_p95_s <= few.ttft_p95_s


def test_one_output_token_needs_no_decoding() -> None:
    bed = BEDS[0]
    found = peak(
        bed.pace, rate_per_s=5, replicas=1, input_tokens=by_mean(500, p95=500),
        output_tokens=by_mean(1, p95=1), limits=bed.limits,
    )  # fmt: skip
    assert found.stable
    assert found.batch < 0.01
    assert found.ttft_p50_s < 0.1


def test_an_engine_that_takes_no_time_at_all_has_an_answer() -> None:
    free = LinearPace(
        weights_s=0, request_s=0, context_s_per_token=0, prefill_s_per_token=0, pass_overhead_s=0
    )
    found = peak(
        free, rate_per_s=5, replicas=1, input_tokens=by_mean(500, p95=900),
        output_tokens=by_mean(10, p95=30), limits=BEDS[0].limits,
    )  # fmt: skip
    assert found.ttft_p95_s < 0.001

"""The roofline against the engine it was fitted to."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmdeploy.plan.device import Speed, choose_device
from llmdeploy.plan.document import Origin
from llmdeploy.plan.memory import Numerics
from llmdeploy.plan.speed import KNEE, pace

from .cases import MANIFEST, facts, service

ZEN_4 = {"read_bytes_per_s": 20e9, "matmul_flops_per_s": 206e9}
AMX = {"read_bytes_per_s": 13e9, "matmul_flops_per_s": 1.2e12}
MEASURED_TPOT_S = [
    (ZEN_4, 1, 1, (0.0250, 0.0319)),
    (ZEN_4, 1, 8, (0.0594, 0.0635)),
    (ZEN_4, 1, 16, (0.0997, 0.1022)),
    (ZEN_4, 1, 32, (0.1761, 0.1931)),
    (AMX, 1, 1, (0.0342, 0.0348)),
    (AMX, 1, 8, (0.0512, 0.0531)),
    (AMX, 1, 16, (0.0677, 0.0719)),
    (AMX, 1, 32, (0.1024, 0.1084)),
    (AMX, 2, 1, (0.0226, 0.0242)),
    (AMX, 2, 8, (0.0341, 0.0346)),
    (AMX, 2, 16, (0.0467, 0.0474)),
    (AMX, 2, 32, (0.0713, 0.0757)),
]
"""Cores, requests of one worker, and the lowest and highest of closed-loop rounds, 128 in / 64 out
(estimate/speed/processors.py)."""


def one_thread(quantization="none"):
    return one_worker(1, quantization)


def one_worker(cores, quantization="none", read_bytes_per_s=20e9, matmul_flops_per_s=206e9):
    wanted = service(release={"side_by_side": False})
    device = dataclasses.replace(
        choose_device(facts(cpu_cores=cores, cpu_ids=tuple(range(cores))), wanted),
        speed=Speed(
            read_bytes_per_s=read_bytes_per_s,
            matmul_flops_per_s=matmul_flops_per_s,
            origin=Origin.MEASURED,
            source="test",
        ),
    )
    held = Numerics(dtype="bfloat16", quantization=quantization)
    return pace(MANIFEST, held, wanted.workload, device=device, workers=1, ranks=1)


@pytest.mark.parametrize(("rates", "cores", "batch", "measured"), MEASURED_TPOT_S)
def test_the_time_per_token_is_within_a_tenth_of_what_was_measured(rates, cores, batch, measured):
    low, high = measured
    assert 0.9 * low <= one_worker(cores, **rates).tpot_s(batch) <= 1.1 * high


def test_a_step_is_overheads_reading_and_products():
    # 10 ms + 2 x 0.8 ms + (269,030,016 + 2 x 3 x 160 x 23,040) / 20e9 + 2 x 2 x 134,479,872 / 206e9
    read_bytes = 269_030_016 + 2 * 3 * 160 * 23_040
    expected_s = 0.010 + 2 * 0.0008 + read_bytes / 20e9 + 2 * 268_959_744 / 206e9
    assert one_thread().step_s(2) == pytest.approx(expected_s)


def test_threads_read_side_by_side_and_share_products_less_well():
    one, four = one_worker(1), one_worker(4)
    assert four.read_bytes_per_s == 4 * one.read_bytes_per_s
    assert four.decode_flops_per_s == pytest.approx(4 * 0.78**2 * one.decode_flops_per_s)


def test_prefill_runs_the_matrices_alone():
    # 2 x 106,168,320 / (206e9 x 0.9) = 1.15 ms a token
    assert one_thread().prefill_s_per_token == pytest.approx(212_336_640 / (206e9 * 0.9))


def test_a_long_prompt_waits_for_a_step_at_each_of_its_chunks():
    pace = one_thread()
    # 512 tokens in chunks of 128: 4 decode steps of the 8 others
    expected_s = 512 * pace.prefill_s_per_token + 4 * pace.step_s(8)
    assert pace.ttft_s(512, chunk_tokens=128, batch=8) == pytest.approx(expected_s)


def test_int8_decodes_half_as_fast_where_products_bound():
    assert one_thread("int8").tokens_per_s(32) < 0.6 * one_thread().tokens_per_s(32)


def test_a_batch_is_cut_to_what_keeps_the_promise():
    pace = one_thread()
    within = pace.batch_within(0.1, knee=KNEE["cpu"])
    assert pace.tpot_s(within) <= 0.1 < pace.tpot_s(within + 1)
    assert pace.batch_within(10.0, knee=KNEE["cpu"]) == 32
    assert pace.batch_within(0.001, knee=KNEE["cpu"]) == 0


@given(batch=st.integers(1, 200), more=st.integers(1, 100))
def test_a_larger_batch_gives_more_tokens_at_more_time_each(batch, more):
    pace = one_thread()
    assert pace.tpot_s(batch + more) > pace.tpot_s(batch)
    assert pace.tokens_per_s(batch + more) > pace.tokens_per_s(batch)


@given(
    read=st.floats(1e8, 1e13), matmul=st.floats(1e9, 1e16), factor=st.floats(1, 100),
    batch=st.integers(1, 64),
)  # fmt: skip
def test_a_faster_device_is_never_predicted_slower(read, matmul, factor, batch):
    slow = one_worker(1, read_bytes_per_s=read, matmul_flops_per_s=matmul)
    fast = one_worker(1, read_bytes_per_s=read * factor, matmul_flops_per_s=matmul * factor)
    assert fast.tokens_per_s(batch) >= slow.tokens_per_s(batch)

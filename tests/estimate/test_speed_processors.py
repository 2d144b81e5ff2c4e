"""Speed on processors: no accelerator's coefficients, and within its interval of what vLLM does."""

from dataclasses import replace

import pytest

from llmdeploy.catalog import devices, engines, models
from llmdeploy.estimate import speed
from llmdeploy.estimate.case import Case
from llmdeploy.estimate.speed.coefficients import coefficients
from llmdeploy.estimate.speed.processors import STEP_OVERHEAD_S, fitted

CORE = replace(devices.find("cpu"), memory_bytes_per_s=25e9, bf16_flops_per_s=206e9)
"""One Zen 4 core: 206 GFLOP/s measured, 20 GB/s of 25 measured."""


def case(**changes):
    fields = {
        "shape": models.find("HuggingFaceTB/SmolLM2-135M-Instruct"),
        "weight_format": None,
        "engine": engines.find("vllm", "0.32.0"),
        "device": CORE,
        "device_memory_bytes": 24 * 2**30,
        "input_tokens": 128.0,
        "output_tokens": 128.0,
        "concurrency": 1.0,
    }
    return Case(**(fields | changes))


@pytest.mark.parametrize(("callers", "measured"), [(1, 25), (8, 130), (32, 193)])
def test_what_vllm_decodes_on_one_core_lies_within_the_interval(callers, measured):
    found = speed.estimate(case(concurrency=float(callers))).output_tokens_per_s
    assert found.low < measured < found.high
    assert found.method == "roofline"


@pytest.mark.parametrize("engine", ["vllm", "sglang", "embedded", "llama.cpp", "TensorRT-LLM"])
def test_no_engine_has_an_accelerators_coefficients_on_processors(engine):
    on_core = fitted(case(engine=engines.find(engine)))
    assert on_core.method == "roofline"
    assert on_core.coefficients.step_s == STEP_OVERHEAD_S
    on_card = case(engine=engines.find(engine), device=devices.find("h100-sxm"))
    assert fitted(on_card) == coefficients(on_card)


def test_a_step_on_a_core_reads_the_weights_and_multiplies_them():
    # 134,515,008 weights x 2 bytes / (25 GB/s x 0.8) = 13.5 ms; 2 x 134.5e6 operations at
    # 206 GFLOP/s x 0.5 x 0.49 = 5.3 ms; the root of both squared is 14.5 ms, beside 10 ms a step
    assert speed.pace(case()).decode_step_s(1, 0) == pytest.approx(0.0245, rel=0.01)

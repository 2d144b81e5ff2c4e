"""What a first token waits for, and the formats and layouts that change it or leave it open."""

import math
from dataclasses import replace

import pytest

from llmdeploy.catalog import devices, engines, models
from llmdeploy.estimate import speed
from llmdeploy.estimate.case import Case
from llmdeploy.estimate.speed.coefficients import NAMES, from_logs
from llmdeploy.estimate.speed.coefficients import coefficients as fitted
from llmdeploy.estimate.speed.serving import prompts_of_many, ttft_s
from llmdeploy.estimate.speed.work import work_of
from llmdeploy.model import weight_format


def case(model, **changes):
    fields = {
        "shape": models.find(model),
        "weight_format": None,
        "engine": engines.find("vllm", "0.19.0"),
        "device": devices.find("b200-sxm"),
        "device_memory_bytes": None,
        "input_tokens": 1024.0,
        "output_tokens": 1024.0,
        "concurrency": 64.0,
    }
    return Case(**(fields | changes))


def coefficients(**changes):
    return replace(from_logs(dict.fromkeys(NAMES, -50.0)), **changes)


def test_a_lone_client_waits_for_its_own_prompt_alone():
    found = coefficients(cohort=0.5, burst=0.1)
    assert ttft_s(0.2, 0.1, step_s=0.01, found=found, callers=1.0) == pytest.approx(0.2)


def test_a_burst_waits_for_its_share_of_full_passes():
    found = coefficients(burst=0.05)
    # 0.2 s + 0.05 x (33 - 1) x 0.1 s = 0.36 s
    waited_s = ttft_s(0.2, 0.1, step_s=0.01, found=found, callers=33.0)
    assert waited_s == pytest.approx(0.36)
    assert prompts_of_many(1024) == 8
    assert prompts_of_many(20_000) == 1


def test_a_starts_burst_is_half_of_the_clients_for_about_one_of_ten_requests():
    """1 / 10 x 1 / 2 of the prompts, where prompts are computed beside decoding."""
    for engine, version in (("vllm", "0.19.0"), ("tensorrt-llm", "1.2.0")):
        found = fitted(case("openai/gpt-oss-120b", engine=engines.find(engine, version)))
        assert 0.04 < found.coefficients.burst < 0.09, engine


def test_prompts_that_go_first_keep_answers_of_one_length_in_step():
    """SGLang: about half of all prompts are waited for each time, and hardly any elsewhere."""
    sglang = engines.find("sglang", "0.5.1")
    cut = fitted(case("Qwen/Qwen3-32B", engine=sglang, output_tokens=256.0)).coefficients
    varied = fitted(case("Qwen/Qwen3-32B", engine=sglang)).coefficients
    beside = fitted(case("Qwen/Qwen3-32B", output_tokens=256.0)).coefficients
    assert 0.4 < cut.burst < 0.8
    assert varied.burst < 0.3 * cut.burst
    assert beside.burst < 0.3 * cut.burst


def test_answers_of_one_length_bring_prompts_together():
    engine = engines.find("tensorrt-llm", "1.0.0")
    cut = fitted(case("Qwen/Qwen3-32B", engine=engine, output_tokens=512.0)).coefficients
    varied = fitted(case("Qwen/Qwen3-32B", engine=engine, output_tokens=1024.0)).coefficients
    unsaid = fitted(case("Qwen/Qwen3-32B", engine=engine, output_tokens=None)).coefficients
    assert cut.cohort > 1.0 > varied.cohort
    assert unsaid == varied


def test_weights_in_mxfp4_meet_8_bit_activations_where_tensor_cores_know_4():
    mxfp4 = weight_format("mxfp4")
    new, old = devices.find("b200-sxm"), devices.find("h100-sxm")
    for device, rate in ((new, new.fp8_flops_per_s), (old, old.bf16_flops_per_s)):
        work = work_of(case("openai/gpt-oss-120b", weight_format=mxfp4, device=device))
        routed = models.find("openai/gpt-oss-120b").parameters.routed_experts
        # 4 of 128 experts a token, 2 products a weight
        assert work.expert_token_s == pytest.approx(2 * routed * 4 / 128 / rate)


def test_an_indexer_costs_a_layer_more():
    assert work_of(case("deepseek-ai/DeepSeek-V3", tensor_parallel=8)).indexer_layers == 0
    assert work_of(case("deepseek-ai/DeepSeek-V3.2-Exp", tensor_parallel=8)).indexer_layers == 61


def test_experts_that_attention_workers_share_leave_more_open():
    def width(**changes):
        made = speed.estimate(case("deepseek-ai/DeepSeek-V3", **changes)).tpot_s
        return math.log(made.high / made.low)

    one = width(tensor_parallel=8)
    shared = width(tensor_parallel=1, data_parallel=8, expert_parallel=True)
    assert shared == pytest.approx(one + 2 * 0.5)

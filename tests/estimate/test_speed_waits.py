"""What a first token waits for, and the formats and layouts that change it or leave it open."""

import math
from dataclasses import replace

import pytest

from llmdeploy.catalog import devices, engines, models
from llmdeploy.estimate import speed
from llmdeploy.estimate.case import Case
from llmdeploy.estimate.speed.coefficients import NAMES, from_logs
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
    found = coefficients(cohort=0.5, burst=0.1, queue=1.0)
    alone_s = ttft_s(0.2, 0.1, step_s=0.01, found=found, callers=1.0, output_tokens=100.0)
    # response R of a queue with one caller is its own service: the wait is 0
    assert alone_s == pytest.approx(0.2)


def test_a_burst_waits_for_its_share_of_full_passes():
    found = coefficients(burst=0.05)
    # 0.2 s + 0.05 x (33 - 1) x 0.1 s = 0.36 s
    waited_s = ttft_s(0.2, 0.1, step_s=0.01, found=found, callers=33.0, output_tokens=100.0)
    assert waited_s == pytest.approx(0.36)
    assert prompts_of_many(1024) == 8
    assert prompts_of_many(20_000) == 1


def test_prompts_never_fill_more_of_the_loop_than_decoding_beside_them_leaves():
    found = coefficients(queue=1.0)
    # steps of 0.2 s hold the prompts of others: 100 of them last 20 s, 10 prompts 1 s
    waited_s = ttft_s(0.1, 0.1, step_s=0.2, found=found, callers=10.0, output_tokens=100.0)
    # away = 20 - 1 = 19; R = (sqrt(19^2 + 4 x 0.1 x 20) - 19) / 2 = 0.1047 s
    assert waited_s == pytest.approx((math.sqrt(19**2 + 8) - 19) / 2)


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

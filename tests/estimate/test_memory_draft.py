"""MTP layers: their weights and KV are counted where the launch drafts with them."""

import json
from dataclasses import replace

import pytest

from llmdeploy.catalog import engines, models
from llmdeploy.edge.local import LocalShell
from llmdeploy.estimate.case import Case
from llmdeploy.estimate.memory import estimate
from llmdeploy.estimate.memory.draft import draft_layers
from llmdeploy.estimate.parse import case_line
from llmdeploy.estimate.parse_case import resolve
from llmdeploy.estimate.parse_model import Models
from llmdeploy.model import weight_format

from .memory_cases import GIB, H100


def case(model: str, *, engine: str = "vllm 0.25.1", **changes) -> Case:
    shape = models.find(model)
    made = Case(
        shape=shape, weight_format=shape.weight_format, engine=engines.find(engine), device=H100,
        device_memory_bytes=140 * GIB, max_model_len=8192, memory_ratio=0.9,
    )  # fmt: skip
    return replace(made, **changes)


def added(made: Case) -> float:
    """Bytes of weights that drafting adds."""
    drafting = estimate(replace(made, speculative_tokens=3))
    return drafting.weights_bytes.value - estimate(made).weights_bytes.value


def test_nvfp4_checkpoints_hold_them_in_16_bits():
    # one layer of Qwen3.6-35B-A3B: 844,638,208 weights x 2 bytes, as a public launch log shows:
    # 23.45 GiB with MTP, 21.77 counted without
    made = case("RedHatAI/Qwen3.6-35B-A3B-NVFP4")
    assert added(made) == pytest.approx(844_638_208 * 2, abs=2)
    found = estimate(replace(made, speculative_tokens=3)).weights_bytes.value / GIB
    assert found == pytest.approx(23.45, rel=0.01)


def test_deepseeks_own_are_in_8_bits_and_divided_over_the_ranks():
    made = case("deepseek-ai/DeepSeek-R1", tensor_parallel=8)
    draft = made.shape.parameters.draft
    assert 11e9 < draft < 12e9
    assert added(made) == pytest.approx(draft / 8, rel=0.01)


@pytest.mark.parametrize(
    ("model", "layers"),
    [("deepseek-ai/DeepSeek-R1", 1), ("MiniMaxAI/MiniMax-M2.5", 3), ("zai-org/GLM-4.5", 1),
     ("Qwen/Qwen3.6-27B", 1), ("Qwen/Qwen3-8B", 0)],
)  # fmt: skip
def test_layers_are_counted_from_their_weights(model, layers):
    assert draft_layers(models.find(model)) == layers


def test_each_keeps_kv_as_the_last_attending_layer():
    made = case("deepseek-ai/DeepSeek-R1", tensor_parallel=8)
    plain, drafting = (estimate(one).kv_bytes_per_token.value
                       for one in (made, replace(made, speculative_tokens=1)))  # fmt: skip
    assert drafting / plain == pytest.approx(62 / 61)


def test_a_hybrid_keeps_a_state_for_each_drafted_token():
    # a public log: 3,366,051 tokens in 74.22 GiB = 23,676 bytes a token at 262,144
    made = case("RedHatAI/Qwen3.6-35B-A3B-NVFP4", max_model_len=262_144, speculative_tokens=3)
    assert estimate(made).kv_bytes_per_token.value == pytest.approx(23_676, rel=0.01)


def test_engines_that_do_not_run_them_and_models_without_them_add_nothing():
    assert added(case("deepseek-ai/DeepSeek-R1", engine="llama.cpp")) == 0
    assert added(case("Qwen/Qwen3-8B")) == 0
    four = case("Qwen/Qwen3.6-27B", weight_format=weight_format("awq"))
    assert added(four) == pytest.approx(four.shape.parameters.draft * 2, rel=0.01)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"model": "deepseek-ai/DeepSeek-R1"},
         "the model's MTP layers are not loaded: speculative_tokens is not given"),
        ({"model": "deepseek-ai/DeepSeek-R1", "speculative_tokens": 1},
         "speed is that without drafts; memory counts the MTP layers and their KV cache"),
        ({"model": "Qwen/Qwen3-8B", "speculative_tokens": 1},
         "speculative_tokens: the config states no MTP layers; a draft model's weights and cache"
         " are not counted"),
        ({"model": "deepseek-ai/DeepSeek-R1", "speculative_tokens": 1, "engine": "tgi"},
         "speculative_tokens: tgi runs none; a draft model's weights and cache are not counted"),
    ],
)  # fmt: skip
def test_it_is_said_whether_they_are_loaded(keys, words):
    line = case_line(json.dumps({"gpu": "h200", "gpus": 8} | keys), place="x")
    found = resolve(line, place="x", models=Models(store="/nowhere", shell=LocalShell()))
    assert words in found.assumptions
    silent = resolve(
        case_line('{"model": "Qwen/Qwen3-8B", "gpu": "h200"}', place="x"), place="x",
        models=Models(store="/nowhere", shell=LocalShell()),
    )  # fmt: skip
    assert not any("MTP" in said for said in silent.assumptions)

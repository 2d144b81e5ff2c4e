"""Names of models to built-in shapes."""

import time

import pytest

from llmdeploy.catalog import models
from llmdeploy.errors import InputError


def test_case_and_organisation_do_not_matter():
    found = models.find("Qwen/Qwen3-8B")
    assert models.find("qwen/qwen3-8b") == found
    assert models.find("Qwen3-8B") == found


@pytest.mark.parametrize(
    ("name", "base", "method", "kv"),
    [
        ("unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit", "meta-llama/Llama-3.1-8B", "nf4", None),
        ("NousResearch/Meta-Llama-3-8B", "meta-llama/Meta-Llama-3-8B", None, None),
        ("RedHatAI/Qwen3-14B-FP8-dynamic", "Qwen/Qwen3-14B", "fp8", None),
        (
            "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16",
            "meta-llama/Llama-3.1-8B",
            "w4a16",
            None,
        ),
        (
            "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8",
            "meta-llama/Llama-3.1-8B",
            "w8a8",
            None,
        ),
        ("Qwen/Qwen2.5-32B-Instruct-AWQ", "Qwen/Qwen2.5-32B", "awq", None),
        ("Qwen/Qwen2.5-72B-Instruct-GPTQ-Int4", "Qwen/Qwen2.5-72B", "gptq", None),
        ("TheBloke/Mixtral-8x7B-Instruct-v0.1-GPTQ", "mistralai/Mixtral-8x7B-v0.1", "gptq", None),
        ("nvidia/Llama-3.3-70B-Instruct-FP4", "meta-llama/Llama-3.1-70B", "nvfp4", "fp8"),
        ("amd/Llama-3.1-70B-Instruct-FP8-KV", "meta-llama/Llama-3.1-70B", "fp8", "fp8"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", "Qwen/Qwen3-235B-A22B", "fp8_block", None),
        ("bartowski/Qwen2.5-7B-Instruct-Q4_K_M-GGUF", "Qwen/Qwen2.5-7B", "gguf", None),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-ai/DeepSeek-V3", "fp8_block", None),
        ("unsloth/DeepSeek-R1-BF16", "deepseek-ai/DeepSeek-V3", None, None),
    ],
)
def test_repackagings_are_the_base_in_another_format(name, base, method, kv):
    found, expected = models.find(name), models.find(base)
    assert found.parameters == expected.parameters
    held = found.weight_format
    assert (held.method if held else None) == method
    assert (held.kv_cache_dtype if held else None) == kv


def test_an_unknown_name_is_refused_with_near_ones():
    with pytest.raises(InputError, match="found 'Qwen/Qwen3-80B'") as error:
        models.find("Qwen/Qwen3-80B")
    assert "Qwen/Qwen3-8B" in error.value.fix
    assert "config.json" in error.value.fix


def test_every_built_in_shape_is_whole():
    for name in models.known():
        found = models.find(name)
        layers = sum(kind.layers for kind in found.cache)
        assert layers in (found.layers, 2 * found.layers), name
        assert found.parameters.total > 0, name


def test_the_first_look_up_is_quick():
    start = time.perf_counter()
    models._index.cache_clear()
    models._lines.cache_clear()
    models.find.cache_clear()
    models.find("meta-llama/Llama-3.1-8B-Instruct")
    assert time.perf_counter() - start < 0.05

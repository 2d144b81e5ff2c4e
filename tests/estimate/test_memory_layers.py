"""Bytes a token, counted by hand for each kind of cache."""

import pytest

from llmdeploy.estimate.memory import estimate

from .memory_cases import (
    DEEPSEEK_V3,
    DEEPSEEK_V32,
    FP8,
    LLAMA_8B,
    LLAMA_70B,
    OPT_125M,
    QWEN25_7B,
    case,
)


def per_token(*args, **changes) -> float:
    return estimate(case(*args, **changes)).kv_bytes_per_token.value


def test_grouped_query_attention_keeps_k_and_v_of_every_kv_head():
    assert per_token(LLAMA_8B) == 32 * 2 * 8 * 128 * 2 == 131072
    assert per_token(QWEN25_7B) == 28 * 2 * 4 * 128 * 2 == 57344


def test_tensor_parallelism_splits_kv_heads_and_copies_the_last():
    assert per_token(LLAMA_70B, tensor_parallel=2) == 80 * 2 * 4 * 128 * 2 == 163840
    assert per_token(QWEN25_7B, tensor_parallel=4) == 28 * 2 * 1 * 128 * 2 == 14336
    assert per_token(QWEN25_7B, tensor_parallel=8) == 14336


def test_pipeline_parallelism_splits_layers():
    assert per_token(LLAMA_70B, pipeline_parallel=2) == 40 * 2 * 8 * 128 * 2 == 163840


def test_the_fullest_stage_of_an_uneven_pipeline_counts():
    assert per_token(LLAMA_70B, pipeline_parallel=3) == 27 * 2 * 8 * 128 * 2


def test_multi_head_attention_of_opt():
    assert per_token(OPT_125M) == 12 * 2 * 12 * 64 * 2 == 36864


def test_eight_bit_kv_takes_half():
    assert per_token(LLAMA_8B, kv_cache_dtype="fp8") == 65536


def test_a_checkpoint_may_ask_for_eight_bit_kv_itself():
    assert per_token(LLAMA_8B, weight_format=FP8) == 65536
    assert per_token(LLAMA_8B, weight_format=FP8, kv_cache_dtype="bf16") == 131072
    assert per_token(LLAMA_8B, weight_format=FP8, version=(0, 6, 0)) == 131072


def test_float32_is_served_in_sixteen_bits_unless_asked_for():
    assert per_token(LLAMA_8B.model_copy(update={"dtype": "float32"})) == 131072
    assert per_token(LLAMA_8B, dtype="fp32") == 262144


@pytest.mark.parametrize("tensor_parallel", [1, 8, 16])
def test_a_latent_vector_is_kept_whole_by_every_rank(tensor_parallel):
    found = per_token(DEEPSEEK_V3, tensor_parallel=tensor_parallel)
    assert found == 61 * 576 * 2 == 70272


def test_a_sparse_indexer_adds_its_own_cache():
    assert per_token(DEEPSEEK_V32) == 61 * (576 * 2 + 132) == 78324
    assert per_token(DEEPSEEK_V32, kv_cache_dtype="fp8") == 61 * (656 + 132) == 48068


def test_before_latent_attention_engines_kept_full_heads():
    found = per_token(DEEPSEEK_V3, version=(0, 6, 6), tensor_parallel=8)
    assert found == 61 * (128 // 8) * (256 + 256) * 2 == 999424


def test_data_parallel_attention_shards_heads_over_fewer_ranks():
    """TP 16 with 4 attention groups: heads over 16 / 4 = 4 ranks."""
    found = per_token(
        LLAMA_8B, engine="sglang", version=(0, 5, 9), tensor_parallel=16, data_parallel=4,
        attention_data_parallel=True,
    )  # fmt: skip
    assert found == 32 * 2 * (8 // 4) * 128 * 2

"""SGLang, TensorRT-LLM, LMDeploy, TGI, llama.cpp, MLC, MindIE and the embedded engine."""

import pytest

from llmdeploy.estimate.memory import estimate
from llmdeploy.estimate.memory.estimate import account

from .memory_cases import (
    A100,
    ASCEND,
    DEEPSEEK_V3,
    GEMMA3_27B,
    GEMMA4_12B,
    GIB,
    GPT_OSS_20B,
    H100,
    LLAMA_8B,
    QWEN3_NEXT,
    RTX4090,
    case,
)

WEIGHTS = 8030261248 * 2


def test_sglang_gives_the_share_of_what_was_free_less_the_weights():
    """(23.5 - 0.5) x 0.88 - 14.957 - 0.12 = 5.16 GiB: 42,290 tokens of 131,072 B."""
    found = estimate(case(engine="sglang", version=(0, 4, 3), memory_ratio=0.88))
    pool = 23.0 * GIB * 0.88 - WEIGHTS - 0.12 * GIB
    assert found.kv_cache_tokens.value == pool // 131072 == 42290
    assert found.kv_cache_bytes.value == 42290 * 131072


def test_sglangs_buffers_grow_with_the_ranks_over_nvlink():
    alone = account(case(engine="sglang", device=H100)).other.value_bytes
    eight = account(case(engine="sglang", device=H100, tensor_parallel=8)).other.value_bytes
    assert alone == 0.5 * GIB
    assert eight == pytest.approx((0.5 + 3 * 0.55) * GIB)
    assert account(case(engine="sglang", tensor_parallel=8)).other.value_bytes == 0.5 * GIB


def test_sglang_on_ascend_gives_out_pages_of_128():
    found = estimate(case(engine="sglang", device=ASCEND, memory_ratio=0.7, tensor_parallel=2))
    assert found.kv_cache_tokens.value % 128 == 0


def test_sglang_keeps_two_pools_for_sliding_windows():
    """Gemma 4 12B, TP 2: full 8 x 2 x 1 x 512 x 2 = 16,384 B (as logged), window 40 x 2 x 4 x 256 x
    2 = 163,840 B (as logged), of which 0.8 a token of the full pool."""
    found = estimate(
        case(GEMMA4_12B, engine="sglang", version=(0, 5, 9), tensor_parallel=2, memory_ratio=0.85)
    ).kv_bytes_per_token
    assert found.value == 16384 + 0.8 * 163840
    assert found.low <= 16384 + 0.03 * 163840  # a ratio that was logged
    before = estimate(case(GEMMA4_12B, engine="sglang", version=(0, 4, 6), tensor_parallel=2))
    assert before.kv_bytes_per_token.value == 16384 + 163840


def test_sglang_halves_its_pool_for_states():
    """State to full 0.9: of 1.9 parts one is for K and V: 12 x 2 x 2 x 256 x 2 x 1.9."""
    found = estimate(case(QWEN3_NEXT, engine="sglang", version=(0, 5, 9), memory_ratio=0.8))
    assert found.kv_bytes_per_token.value == pytest.approx(24576 * 1.9)


def test_sglangs_share_by_ranks_and_later_by_memory():
    def share(version, device, tp=1):
        asked = case(engine="sglang", version=version, device=device, tensor_parallel=tp)
        return account(asked).share_ratio

    assert share((0, 4, 3), H100) == 0.88
    assert share((0, 4, 3), H100, 8) == 0.81
    # 79.2 GiB = 81,101 MiB; 512 + 8,192 x 1.5 + 256 x 2 + 128 = 13,440: 0.834
    assert share((0, 5, 9), H100) == 0.834
    # 23.5 GiB = 24,064 MiB; 512 + 2,048 x 1.5 + 24 x 2 + 128 = 3,760: 0.844
    assert share((0, 5, 9), RTX4090) == 0.844


def test_tensorrt_llm_gives_nine_tenths_of_what_is_free():
    found = account(case(engine="tensorrt-llm", version=(1, 0, 0), device=H100))
    free = 79.2 * GIB - WEIGHTS - found.activation.value_bytes - found.other.value_bytes
    assert found.available.value_bytes == pytest.approx(0.9 * free)
    assert estimate(case(engine="tensorrt-llm", device=H100)).kv_cache_tokens.value % 32 == 0


def test_lmdeploy_gives_a_share_of_what_is_free_in_blocks_of_64():
    found = account(case(engine="lmdeploy", device=A100, memory_ratio=0.5))
    free = 79.25 * GIB - WEIGHTS - found.activation.value_bytes - found.other.value_bytes
    assert found.available.value_bytes == pytest.approx(0.5 * free)
    assert account(case(engine="lmdeploy")).share_ratio == 0.8
    assert estimate(case(engine="lmdeploy")).kv_cache_tokens.value % 64 == 0


def test_tgi_keeps_a_margin_of_what_the_warm_up_leaves():
    found = account(case(engine="tgi", version=None, device=A100))
    free = 79.25 * GIB - WEIGHTS - found.activation.value_bytes - found.other.value_bytes
    assert found.available.value_bytes == pytest.approx(0.85 * free)
    logits = 4096 * 128256 * 6  # of every token of the largest prefill
    assert found.activation.value_bytes == 4096 * 2 * (3 * 14336 + 4 * 4096) + logits


@pytest.mark.parametrize(("engine", "share"), [("mlc", 0.85), ("mindie", 0.8), ("embedded", 0.8)])
def test_engines_with_a_share_of_the_total(engine, share):
    found = account(case(engine=engine, version=None))
    taken = WEIGHTS + found.activation.value_bytes + found.other.value_bytes
    assert found.available.value_bytes == pytest.approx(share * 23.5 * GIB - taken)


def test_llama_cpp_takes_its_whole_context_at_the_start():
    """32,768 x 131,072 B = 4 GiB, whatever is free."""
    found = estimate(case(engine="llama.cpp", version=None, max_model_len=32768))
    assert found.kv_cache_tokens.value == 32768
    assert found.kv_cache_bytes.value == 4 * GIB
    assert found.fits is True


def test_llama_cpp_keeps_the_window_and_a_step_of_sliding_layers():
    """Gemma 3 27B: 10 x 8,192 B x 32,768 + 52 x 8,192 B x 1,536 cells (1,024 + 512)."""
    found = estimate(case(GEMMA3_27B, engine="llama.cpp", version=None, max_model_len=32768))
    assert found.kv_cache_bytes.value == 10 * 8192 * 32768 + 52 * 8192 * 1536


def test_llama_cpp_keeps_a_latent_vector_and_its_values():
    """(576 + 512) x 2 B x 61 x 32,768 = 4,148 MiB, as a public log has it."""
    found = estimate(case(DEEPSEEK_V3, engine="llama.cpp", version=None, max_model_len=32768))
    assert found.kv_cache_bytes.value == pytest.approx(4148 * 2**20, rel=1e-4)


def test_llama_cpp_says_no_only_where_the_cache_is_what_does_not_fit():
    long = estimate(case(engine="llama.cpp", version=None, max_model_len=131072))
    assert long.fits is False
    small = case(engine="llama.cpp", version=None, device_memory_bytes=8 * GIB, max_model_len=2048)
    assert estimate(small).fits is None  # layers may stay with the host


def test_sglang_kept_gpt_oss_whole_until_0_5_7():
    found = estimate(case(GPT_OSS_20B, engine="sglang", version=(0, 5, 5)))
    assert found.kv_bytes_per_token.value == 24 * 2 * 8 * 64 * 2
    later = estimate(case(GPT_OSS_20B, engine="sglang", version=(0, 5, 9)))
    assert later.kv_bytes_per_token.value == pytest.approx((12 + 0.8 * 12) * 2 * 8 * 64 * 2)


@pytest.mark.parametrize(
    "engine",
    ["vllm", "sglang", "tensorrt-llm", "lmdeploy", "tgi", "llama.cpp", "mlc", "mindie", "exllama",
     "embedded"],
)  # fmt: skip
def test_every_engine_answers_with_value_inside_its_interval(engine):
    found = estimate(case(LLAMA_8B, engine=engine, version=None, device=H100, max_model_len=8192))
    numbers = (
        found.weights_bytes, found.kv_bytes_per_token, found.activation_bytes, found.graph_bytes,
        found.other_bytes, found.kv_cache_bytes, found.kv_cache_tokens, found.max_concurrency,
    )  # fmt: skip
    for number in numbers:
        assert number is not None
        assert 0 <= number.low <= number.value <= number.high
    assert found.fits is True

"""vLLM's groups and printed tokens, counted by hand; several match public launch logs."""

import pytest

from llmdeploy.estimate.memory.layers import CacheAsk, layer_caches
from llmdeploy.estimate.memory.pages import paged
from llmdeploy.estimate.memory.vllm_rules import vllm_rules

from .memory_cases import (
    GEMMA3_27B,
    GEMMA4_12B,
    GIB,
    GPT_OSS_20B,
    KIMI_LINEAR,
    LLAMA4_SCOUT,
    LLAMA_8B,
    QWEN3_NEXT,
    QWEN35_27B,
)


def pages(shape, version, *, tp=1, pp=1, element_bytes=2.0, length=32768, batched=2048, **more):
    ask = CacheAsk(
        element_bytes=element_bytes, dtype_bytes=2.0, tensor_parallel=tp, pipeline_parallel=pp
    )
    return paged(
        layer_caches(shape, ask),
        vllm_rules(version),
        length_tokens=length,
        batched_tokens=batched,
        **more,
    )


@pytest.mark.parametrize("version", [(0, 6, 6), (0, 8, 5), (0, 12, 0), (0, 22, 0), None])
def test_plain_attention_prints_whole_blocks_in_every_version(version):
    cache = pages(LLAMA_8B, version)
    # 10 GiB / (16 x 131,072 B) = 5,120 blocks of 16 tokens, of 32,768 / 16 = 2,048 a request
    assert cache.capacity_tokens(10 * GIB, 32768) == 5120 * 16 == 81920
    assert cache.concurrency(10 * GIB, 32768) == 5120 / 2048 == 2.5


def test_plain_attention_rounds_down_to_a_block():
    cache = pages(LLAMA_8B, (0, 12, 0))
    assert cache.capacity_tokens(3.5 * 16 * 131072, 32768) == 48


def test_a_sliding_half_makes_two_groups():
    """gpt-oss-20b on 0.12: page 16 x 2 x 8 x 64 x 2 B = 32,768, in 12 layers 393,216 B."""
    cache = pages(GPT_OSS_20B, (0, 12, 0))
    size = 15.77 * GIB  # 43,062 blocks
    assert cache.block_bytes == 393216
    assert cache.capacity_tokens(size, 32768) == 43062 // 2 * 16 == 344496
    # 32,768 / 16 = 2,048, and (127 + 2,048) / 16 = 135.9: 136 + 1
    assert cache.per_request(32768) == 2048 + 137
    assert cache.concurrency(size, 32768) == pytest.approx(19.71, abs=0.005)
    assert cache.bytes_per_token(32768) == 2 * 393216 / 16


def test_from_0_20_printed_tokens_are_concurrency_times_length():
    cache = pages(GPT_OSS_20B, (0, 22, 0))
    size = 15.77 * GIB
    assert cache.capacity_tokens(size, 32768) == int(43062 / 2185 * 32768) == 645792
    assert size / cache.bytes_per_token(32768) == pytest.approx(645792, rel=1e-4)


def test_before_0_9_2_sliding_layers_were_kept_as_full():
    cache = pages(GEMMA3_27B, (0, 8, 5))
    assert len(cache.groups) == 1
    assert cache.bytes_per_token(32768) == 62 * 2 * 16 * 128 * 2


def test_gemma_3_is_padded_to_seven_groups_of_ten():
    """62 layers, 10 full: 1 + ceil(52 / 10) = 7 groups; 70 / 62 = 1.129 of the textbook."""
    cache = pages(GEMMA3_27B, (0, 12, 0))
    assert len(cache.groups) == 7
    textbook = 62 * 2 * 16 * 128 * 2
    assert cache.bytes_per_token(32768) == textbook * 70 / 62


def test_gemma_3_12b_as_logged():
    """16.25 GiB print 44,368 tokens and 5.52x of 32,768, by a public log of 0.11.2."""
    shape = GEMMA3_27B.model_copy(
        update={
            "cache": tuple(
                part.model_copy(update={"layers": layers, "kv_heads": 8, "head_dim": 256,
                                        "value_dim": 256})
                for part, layers in zip(GEMMA3_27B.cache, (8, 40), strict=True)
            )
        }
    )  # fmt: skip
    cache = pages(shape, (0, 11, 2))
    assert cache.capacity_tokens(16.25 * GIB, 32768) == 44368
    assert cache.concurrency(16.25 * GIB, 32768) == pytest.approx(5.52, abs=0.005)


def test_blocks_of_narrower_layers_hold_more_tokens():
    """Gemma 4 12B: sliding 2 x 8 x 256 x 2 = 8,192 B a token, full 2 x 512 x 2 = 2,048 B: 64
    tokens a block; 8,192 tokens take 128 blocks and 5 x ((1,023 + 4,096) / 16 + 1) = 5 x 321."""
    cache = pages(GEMMA4_12B, (0, 22, 0), length=8192, batched=4096)
    assert sorted({group.block_tokens for group in cache.groups}) == [16, 64]
    assert cache.per_request(8192) == 128 + 5 * 321 == 1733
    assert cache.concurrency(69.53 * GIB, 8192) == pytest.approx(41.08, abs=0.005)  # as logged


def test_chunked_layers_keep_their_chunk_and_a_step():
    """Llama 4 Scout: 12 full and 36 chunked: 1 + 3 groups; min(8,192 + 2,048, L) / 16 = 640."""
    cache = pages(LLAMA4_SCOUT, (0, 13, 0), length=131072)
    assert len(cache.groups) == 4
    assert cache.per_request(131072) == 8192 + 3 * 640
    before = pages(LLAMA4_SCOUT, (0, 11, 0), length=131072)
    assert before.bytes_per_token(131072) == 48 * 2 * 8 * 128 * 2


def test_ascend_has_blocks_of_128_tokens():
    """38.41 GiB at 73,728 B a token are 559,395 tokens, 4,370 blocks; a public log has 559,232."""
    shape = LLAMA_8B.model_copy(
        update={"cache": (LLAMA_8B.cache[0].model_copy(update={"layers": 36}),)}
    )
    cache = pages(shape, (0, 11, 0), tp=2, block_tokens=128)
    assert cache.capacity_tokens(38.41 * GIB, 65536) == 4370 * 128


def test_attention_blocks_grow_to_the_state():
    """Qwen3-Next, TP 2: state (8,192 x 3 + 32 x 128 x 128) / 2 x 2 B = 548,864; attention 1,024 B
    a token: 536 tokens, to 544, 557,056 B in each of 12 layers and 4 groups."""
    cache = pages(QWEN3_NEXT, (0, 11, 2), tp=2, length=16384)
    assert cache.block_bytes == 557056 * 12
    assert cache.capacity_tokens(7.09 * GIB, 16384) == 154496  # as logged
    assert cache.concurrency(7.09 * GIB, 16384) == pytest.approx(33.47, abs=0.005)  # 31 + 3


def test_a_float32_state_doubles_the_block():
    """Qwen3.5-27B, TP 4: 10,240 x 3 / 4 x 2 + 12 x 128 x 128 x 4 = 801,792 B: 783 to 784 tokens."""
    cache = pages(QWEN35_27B, (0, 19, 0), tp=4)
    assert min(group.block_tokens for group in cache.groups) == 784
    assert cache.capacity_tokens(7.47 * GIB, 32768) == 122304  # as logged
    assert cache.concurrency(7.47 * GIB, 32768) == pytest.approx(13.87, abs=0.005)  # 42 + 3


def test_eight_bit_attention_has_blocks_of_twice_the_tokens():
    cache = pages(QWEN35_27B, (0, 19, 0), tp=2, element_bytes=1.0)
    assert min(group.block_tokens for group in cache.groups) == 1568


def test_latent_blocks_beside_states_are_multiples_of_64():
    """Kimi Linear, TP 2: 16 x 128 x 128 x 4 + 36,864 / 2 x 2 = 1,085,440 B over 1,152: 943 to 960.
    20 state layers over 7: 3 groups."""
    cache = pages(KIMI_LINEAR, (0, 12, 0), tp=2, length=120000)
    assert min(group.block_tokens for group in cache.groups) == 960
    assert cache.capacity_tokens(2.3 * GIB, 120000) == 75840  # as logged
    assert cache.per_request(120000) == 125 + 3


def test_newest_versions_keep_two_states_a_group():
    """262,144 / 1,568 = 168 and 3 x 2: 174 blocks, as a log of 0.26 has it."""
    cache = pages(QWEN35_27B, (0, 26, 1), tp=2, element_bytes=1.0, length=262144)
    assert cache.per_request(262144) == 174


def test_the_longest_request_is_found():
    cache = pages(LLAMA_8B, (0, 12, 0))
    assert cache.longest_tokens(1 * GIB, 131072) == 8192
    assert cache.longest_tokens(100 * GIB, 131072) == 131072
    assert cache.longest_tokens(1000, 131072) == 0


def test_pipeline_stages_hold_their_share_of_every_group():
    whole, half = pages(GPT_OSS_20B, (0, 12, 0)), pages(GPT_OSS_20B, (0, 12, 0), pp=2)
    assert half.block_bytes == whole.block_bytes / 2

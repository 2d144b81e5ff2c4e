"""Bytes of weights on the fullest rank."""

import pytest

from llmdeploy.catalog import models
from llmdeploy.model import active_parameters, expert_share, weight_format, weights_bytes

from .configs import shape

POSITIONS = 131072 * 128 * 2
"""cos and sin of Llama 3.1, bf16."""


def test_plain_weights_are_two_bytes_each_and_the_table_of_positions():
    assert weights_bytes(shape(), None) == 2 * 8_030_261_248 + POSITIONS


def test_tensor_parallel_ranks_share_matrices_and_repeat_norms():
    norms = 2 * (32 * 2 * 4096 + 4096)
    shared = 2 * 8_030_261_248 - norms
    assert weights_bytes(shape(), None, tp=4) == shared // 4 + norms + POSITIONS


def test_more_ranks_than_kv_heads_copy_them():
    sixteen = weights_bytes(shape(), None, tp=16)
    kv = 2 * 32 * 2 * 4096 * 8 * 128
    norms = 2 * (32 * 2 * 4096 + 4096)
    rest = 2 * 8_030_261_248 - norms - kv
    rounding = 16 * 32 * 0
    assert sixteen == pytest.approx(rest / 16 + kv / 8 + norms + POSITIONS + rounding, rel=1e-3)


def test_the_vocabulary_is_padded_to_64_rows():
    padded = weights_bytes(shape(vocab_size=128001), None)
    assert padded - weights_bytes(shape(vocab_size=128064), None) == 0


def test_a_tied_head_is_held_by_both_ends_of_a_pipeline():
    tied = shape(tie_word_embeddings=True)
    table = 2 * 128256 * 4096
    layer = 2 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096)
    final = weights_bytes(tied, None, pp=2) - POSITIONS
    assert final == pytest.approx(16 * layer + table, rel=1e-4)


def test_stages_share_layers_and_the_ends_hold_the_tables():
    layers = 2 * (8_030_261_248 - 2 * 128256 * 4096)
    table = 2 * 128256 * 4096
    found = weights_bytes(shape(), None, pp=4) - POSITIONS
    assert found == pytest.approx(layers / 4 + table, rel=1e-4)


def test_fp8_halves_the_matrices_but_neither_embedding_nor_head():
    counted = shape().parameters
    expected = counted.attention + counted.dense_mlp + 2 * (2 * 128256 * 4096 + counted.other)
    assert weights_bytes(shape(), weight_format("fp8")) == expected + POSITIONS


def test_awq_adds_scales_and_zero_points_of_each_group():
    counted = shape().parameters
    matrices = counted.attention + counted.dense_mlp
    expected = matrices * (4 + 20 / 128) / 8 + 2 * (2 * 128256 * 4096 + counted.other)
    found = weights_bytes(shape(), weight_format("awq")) - POSITIONS
    assert found == pytest.approx(expected, rel=0.005)  # rounding of the allocator


def test_float16_and_float32_change_what_stays_unquantised():
    assert weights_bytes(shape(), None, dtype="fp32") == pytest.approx(
        2 * weights_bytes(shape(), None), rel=1e-3
    )


def test_expert_parallel_ranks_hold_whole_experts():
    found = models.find("Qwen/Qwen3-30B-A3B")
    whole = weights_bytes(found, None, tp=8, ep=True)
    assert whole == pytest.approx(weights_bytes(found, None, tp=8), rel=0.005)
    six = weights_bytes(found, None, tp=6, ep=True) - weights_bytes(found, None, tp=6)
    more = (22 / 128 - 1 / 6) * found.parameters.routed_experts * 2
    assert six == pytest.approx(more, rel=0.05)


def test_latent_attentions_first_projections_are_on_every_rank():
    found = models.find("deepseek-ai/DeepSeek-V3")
    whole = 61 * 7168 * (1536 + 512 + 64)
    assert found.parameters.attention_whole == whole
    eight = weights_bytes(found, found.weight_format, tp=8)
    assert eight * 8 - weights_bytes(found, found.weight_format) > 7 * whole


LOGGED = (
    ("Qwen/Qwen2.5-7B-Instruct", "bf16", 1, 14.2487),
    ("Qwen/Qwen2-7B-Instruct", "bf16", 2, 7.1217),
    ("meta-llama/Llama-3.1-8B-Instruct", "bf16", 1, 14.9889),
    ("RedHatAI/Qwen3-14B-FP8-dynamic", "", 1, 15.3388),
    ("openai/gpt-oss-20b", "", 1, 13.7194),
    ("Qwen/Qwen2.5-14B-Instruct-AWQ", "", 1, 9.3795),
    ("deepseek-ai/DeepSeek-R1-Distill-Qwen-14B", "bf16", 2, 13.9476),
    ("Qwen/Qwen3-30B-A3B", "bf16", 2, 28.4571),
)
"""Model, format asked for, ranks, GiB. Source: start logs of vLLM 0.6 to 0.13 in public issues."""


@pytest.mark.parametrize(("name", "asked", "tp", "logged_gib"), LOGGED)
def test_engines_log_what_we_count_within_one_percent(name, asked, tp, logged_gib):
    found = models.find(name)
    held = weight_format(asked) if asked else found.weight_format
    assert weights_bytes(found, held, tp=tp) / 2**30 == pytest.approx(logged_gib, rel=0.01)


@pytest.mark.parametrize(
    ("name", "logged_gib"), [("openai/gpt-oss-20b", 13.47), ("openai/gpt-oss-120b", 64.38)]
)
def test_hoppers_kernels_pad_mxfp4_less(name, logged_gib):
    """Rows to multiples of 64 instead of 128: 2880 stays. Source: start logs on H100."""
    found = models.find(name)
    hopper = weights_bytes(found, found.weight_format, compute_capability="9.0")
    assert hopper / 2**30 == pytest.approx(logged_gib, rel=0.005)
    assert hopper < weights_bytes(found, found.weight_format, compute_capability="8.9")


def test_a_step_of_one_token_reads_only_its_experts():
    found = models.find("Qwen/Qwen3-30B-A3B")
    read = active_parameters(found, 1)
    assert read.routed_experts == found.parameters.routed_experts * 8 // 128
    assert read.total == pytest.approx(3.0e9, rel=0.03)


def test_many_tokens_read_all_experts():
    found = models.find("Qwen/Qwen3-30B-A3B")
    assert expert_share(found.experts, 64) == pytest.approx(1 - (1 - 8 / 128) ** 64)
    read = active_parameters(found, 10_000)
    assert read.routed_experts == pytest.approx(found.parameters.routed_experts)


def test_a_tied_head_is_read_though_it_is_no_weight_of_its_own():
    tied = shape(tie_word_embeddings=True)
    assert active_parameters(tied, 1).head == 128256 * 4096
    assert active_parameters(tied, 1).embedding == 4096

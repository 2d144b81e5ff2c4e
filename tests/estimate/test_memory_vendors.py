"""What ROCm and Ascend builds hold beside the textbook's bytes, with the sums written out."""

from dataclasses import replace

import pytest

from llmdeploy.estimate.memory import estimate, joined
from llmdeploy.estimate.memory.estimate import account
from llmdeploy.model import Experts, PartBits, WeightFormat

from .memory_cases import ASCEND, FP8, GIB, H100, LLAMA_8B, QWEN3_NEXT, RTX4090, case

R9700 = replace(RTX4090, id="r9700", name="Radeon AI PRO R9700", vendor="amd")
WEIGHTS_8B_BYTES = 8030261248 * 2
NF4 = WeightFormat(method="nf4", bits=4, group_size=64, scale_bits=0.127)


def rocm(of=LLAMA_8B, **changes):
    return account(case(of, device=R9700, max_model_len=8192, **changes))


def test_rocm_counts_what_repacking_quantised_weights_leaves():
    """A rank of a plain model holds its weights alone; a quantised one 0.48 GiB more."""
    plain, quantised = rocm(), rocm(weight_format=FP8)
    on_cuda = account(case(weight_format=FP8, max_model_len=8192))
    assert plain.weights.value_bytes == pytest.approx(WEIGHTS_8B_BYTES)
    more = quantised.weights.value_bytes - on_cuda.weights.value_bytes
    assert more == pytest.approx(0.48 * GIB)


def test_rocm_before_0_12_holds_a_workspace_for_16_bit_layers():
    """0.17 + 2.4 GiB beside torch, 0.17 + 0.35 where attention is quantised or later."""
    early = rocm(version=(0, 11, 2)).other.value_bytes
    assert early == pytest.approx(2.57 * GIB)
    assert rocm(version=(0, 11, 2), weight_format=FP8).other.value_bytes < 0.6 * GIB
    assert rocm(version=(0, 13, 0)).other.value_bytes == pytest.approx(0.52 * GIB)


def test_rocm_to_0_9_profiles_a_whole_prompt():
    """131,072 x 2 B x (3 x 14,336 + 4 x 4,096) = 14.5 GiB; a public log has 14.6."""
    mi300x = replace(H100, id="mi300x", name="Instinct MI300X", vendor="amd")
    asked = case(device=mi300x, version=(0, 9, 2), max_model_len=131072)
    assert estimate(asked).activation_bytes.value == pytest.approx(14.5 * GIB, rel=0.001)
    later = replace(asked, engine=replace(asked.engine, version=(0, 10, 1)))
    assert estimate(later).activation_bytes.value < 5 * GIB


def test_early_versions_profile_the_states_of_every_request():
    """256 requests x 36 layers x (24,576 + 524,288) elements x 2 B = 9.4 GiB."""
    one = case(QWEN3_NEXT, version=(0, 7, 0), max_model_len=2048)
    states = 256 * 36 * (8192 * 3 + 32 * 128 * 128) * 2
    without = case(version=(0, 7, 0), max_model_len=2048)
    more = estimate(one).activation_bytes.value - estimate(without).activation_bytes.value
    assert more == pytest.approx(states, rel=0.001)


def test_bitsandbytes_widens_a_layer_to_16_bits():
    """(4,096 + 8,192) x 2 x 14,336 x 2 B = 0.66 GiB above the forward pass's 0.91."""
    asked = case(version=(0, 7, 0), max_model_len=8192, max_num_seqs=1)
    widened = replace(asked, weight_format=NF4)
    more = estimate(widened).activation_bytes.value - estimate(asked).activation_bytes.value
    assert more == pytest.approx((4096 + 8192) * 2 * 14336 * 2)


def test_sglang_keeps_the_embedding_whole_under_data_parallel_attention():
    """On 4 ranks of which each attends alone: 3/4 of the embedding and of attention more."""
    plain = case(engine="sglang", version=(0, 5, 9), device=H100, tensor_parallel=4)
    inner = replace(plain, data_parallel=4, attention_data_parallel=True)
    more = account(inner).weights.value_bytes - account(plain).weights.value_bytes
    counted = LLAMA_8B.parameters
    assert more == pytest.approx(2 * 0.75 * (counted.embedding + counted.attention))


def test_sglang_on_hopper_keeps_the_scales_that_it_packed_for_marlin():
    """Experts of 4.25 bits in an FP8 checkpoint, 10^12 of them on 8 devices: loaded with 32-bit
    scales of 32 weights, one bit a weight more, which stay: 10^12 / 8 / 8 B."""
    hopper = replace(H100, compute_capability="9.0")
    held = WeightFormat(
        method="fp8_block", bits=8, kept=(), parts=(PartBits(part="routed_experts", bits=4.25),)
    )
    counted = LLAMA_8B.parameters.model_copy(update={"routed_experts": 10**12})
    asked = case(
        LLAMA_8B.model_copy(update={"parameters": counted}), engine="sglang", version=None,
        device=hopper, tensor_parallel=8, weight_format=held,
    )  # fmt: skip

    def counted_bytes(of):
        return estimate(of).weights_bytes.value

    others = replace(asked, device=replace(hopper, compute_capability="10.0"))
    assert counted_bytes(asked) - counted_bytes(others) == pytest.approx(10**12 / 64)
    plain = replace(asked, weight_format=held.model_copy(update={"parts": ()}))
    elsewhere = replace(plain, device=others.device)
    assert counted_bytes(plain) == counted_bytes(elsewhere)
    vllm = replace(asked, engine=replace(asked.engine, name="vllm"))
    assert counted_bytes(vllm) == counted_bytes(others)


def test_spread_experts_hold_buffers_on_ascend():
    of = LLAMA_8B.model_copy(
        update={"experts": Experts(layers=32, count=8, active=2, intermediate_size=14336)}
    )
    asked = case(
        of, engine="sglang", version=(0, 5, 9), device=ASCEND, tensor_parallel=4,
        data_parallel=4, attention_data_parallel=True,
    )  # fmt: skip
    spread = replace(asked, expert_parallel=True)
    more = account(spread).weights.value_bytes - account(asked).weights.value_bytes
    assert more == pytest.approx(1.6 * GIB, rel=0.01)


def test_two_meanings_that_disagree_leave_open_whether_it_fits():
    small, large = (estimate(case(max_model_len=n, memory_ratio=0.9)) for n in (8192, 131072))
    found = joined(small, large)
    assert (small.fits, large.fits, found.fits) == (True, False, None)
    assert found.refusal == large.refusal
    assert joined(small, small) == small


def test_of_two_launches_the_figures_are_those_of_the_one_that_starts():
    """ModelSlim weights may be in 8 or 4 bits: who launches them has those that fit."""
    large = estimate(case(max_model_len=131072, memory_ratio=0.9))
    small = estimate(case(max_model_len=131072, memory_ratio=0.9, tensor_parallel=4))
    assert (large.fits, small.fits) == (False, True)
    found = joined(large, small)
    assert found.kv_cache_tokens.value == small.kv_cache_tokens.value
    assert found.kv_cache_tokens.low == large.kv_cache_tokens.low
    assert found.fits is None
    assert found.refusal == large.refusal

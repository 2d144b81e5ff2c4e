"""vLLM's account and its defaults by version, with the sums written out."""

from dataclasses import replace

import pytest

from llmdeploy.estimate.memory import estimate
from llmdeploy.estimate.memory.estimate import account
from llmdeploy.estimate.memory.vllm_rules import (
    default_batched_tokens,
    default_sequences,
    vllm_rules,
)
from llmdeploy.model import Experts

from .memory_cases import A100, FP8, GB10, GIB, H100, LLAMA_8B, OPT_125M, QWEN35_27B, RTX4090, case


def test_the_default_fraction_rose_with_0_21():
    assert vllm_rules((0, 20, 2)).memory_ratio == 0.90
    assert vllm_rules((0, 21, 0)).memory_ratio == 0.92
    assert vllm_rules(None).memory_ratio == 0.92


def test_large_devices_but_a100_take_1024_requests():
    assert default_sequences((0, 12, 0), H100, 79 * GIB) == 1024
    assert default_sequences((0, 12, 0), A100, 79 * GIB) == 256
    assert default_sequences((0, 12, 0), RTX4090, 23 * GIB) == 256
    assert default_sequences((0, 12, 0), GB10, 119 * GIB) == 256
    assert default_sequences((0, 8, 1), RTX4090, 23 * GIB) == 256
    assert default_sequences((0, 8, 1), H100, 79 * GIB) == 1024
    assert default_sequences((0, 7, 3), H100, 79 * GIB) == 256


def test_devices_of_160_gib_compute_16384_tokens_a_step_since_0_28():
    b200 = replace(H100, id="b200-sxm", name="B200")

    def batched(version, gib):
        total = gib * GIB
        return default_batched_tokens(version, b200, total_bytes=total, length_tokens=4096)

    assert [batched((0, 27, 1), 178), batched((0, 28, 0), 178), batched(None, 178)] == [
        8192, 16384, 16384,
    ]  # fmt: skip
    assert batched((0, 28, 0), 139) == 8192


def test_processors_take_128_requests_and_2048_tokens_a_rank():
    cpu = replace(H100, id="cpu", name="processor", vendor="cpu")
    assert default_sequences((0, 32, 0), cpu, 240 * GIB, ranks=2) == 256
    tokens = default_batched_tokens(
        (0, 32, 0), cpu, total_bytes=240 * GIB, length_tokens=8192, ranks=2
    )
    assert tokens == 4096


def test_cards_before_ampere_run_the_first_core_until_0_10_2():
    """It sorts every logit, computes whole prompts and takes 256 requests."""
    turing = replace(RTX4090, compute_capability="7.5")
    load = {"max_model_len": 8192, "max_num_seqs": 256}
    old, new = (
        estimate(case(device=turing, version=version, **load)).activation_bytes.value
        for version in ((0, 9, 0), (0, 10, 2))
    )
    assert old == 256 * 128256 * 38.9
    assert old > new
    ampere = replace(RTX4090, compute_capability="8.6")
    cached = estimate(case(device=ampere, version=(0, 9, 0), kv_cache_dtype="fp8", **load))
    assert cached.activation_bytes.value == old
    known = estimate(case(version=(0, 9, 0), **load))
    assert estimate(case(device=ampere, version=(0, 9, 0), **load)) == known
    assert default_sequences((0, 9, 0), H100, 79 * GIB, v1=False) == 256


@pytest.mark.parametrize(
    ("version", "length", "tokens"),
    [
        ((0, 7, 3), 8192, 8192),
        ((0, 7, 3), 1024, 2048),
        ((0, 7, 3), 131072, 2048),
        ((0, 6, 4), 131072, 512),
        ((0, 5, 1), 131072, 131072),
        ((0, 12, 0), 131072, 2048),
    ],
)
def test_the_profiled_step_by_version(version, length, tokens):
    found = default_batched_tokens(version, RTX4090, total_bytes=23 * GIB, length_tokens=length)
    assert found == tokens


def test_the_account_of_llama_8b_on_a_4090():
    """0.95 x 23.5 = 22.325; weights 8,030,261,248 x 2 = 14.957; sampler 64 x 128,256 x 38.9
    = 0.297 over the forward pass's 2,048 x 2 x (3 x 14,336 + 4 x 4,096) = 0.227; contexts 0.17:
    22.325 - 14.957 - 0.297 - 0.17 = 6.90 GiB, 56,512 tokens. A public log of 0.12 has 6.93."""
    found = estimate(
        case(max_model_len=31800, max_num_seqs=64, memory_ratio=0.95, version=(0, 12, 0))
    )
    assert found.weights_bytes.value == pytest.approx(8030261248 * 2)
    assert found.activation_bytes.value == pytest.approx(64 * 128256 * 38.9)
    assert found.other_bytes.value == pytest.approx(0.17 * GIB)
    left = 0.95 * 23.5 * GIB - 8030261248 * 2 - 64 * 128256 * 38.9 - 0.17 * GIB
    assert found.kv_cache_bytes.value == pytest.approx(left, rel=1e-6)
    assert found.kv_cache_tokens.value == left // (16 * 131072) * 16 == 56512
    assert found.max_concurrency.value == pytest.approx(56512 / 16 / 1988)  # 31,800 / 16 = 1,987.5
    assert found.fits is True
    assert found.kv_cache_bytes.low < 6.93 * GIB < found.kv_cache_bytes.high


def test_the_sampler_of_1024_requests_decides_on_an_h100():
    """1,024 x 128,256 x 38.9 = 4.76 GiB, as a public log of an H100 has it."""
    found = estimate(case(device=H100, version=(0, 12, 0), max_model_len=16000))
    assert found.activation_bytes.value == pytest.approx(4.76 * GIB, rel=0.001)


def test_a_long_prefill_decides_where_it_is_profiled_whole():
    """131,072 x 2 B x (3 x 14,336 + 4 x 4,096) = 14.5 GiB; a public log on MI300X, of 0.9, has
    14.63."""
    found = estimate(case(version=(0, 5, 1), max_model_len=131072, device=H100, max_num_seqs=1))
    assert found.activation_bytes.value == pytest.approx(14.5 * GIB, rel=0.001)


def test_to_0_6_3_what_the_forward_pass_gave_back_counts_beside_the_sampler():
    """8,192 x 2 B x 59,392 = 0.906 GiB and 256 x 128,256 x 38.9 B = 1.189 GiB: the larger, and 0.8
    of the smaller, 1.914 GiB; since 0.6.4 the larger alone."""
    asked = case(version=(0, 6, 3), max_model_len=8192, max_num_seqs=256)
    assert estimate(asked).activation_bytes.value == pytest.approx(1.914 * GIB, rel=0.001)
    later = replace(asked, engine=replace(asked.engine, version=(0, 6, 4)))
    assert estimate(later).activation_bytes.value == pytest.approx(1.189 * GIB, rel=0.001)


def test_graphs_are_taken_off_the_budget_since_0_21():
    known = {"memory_ratio": 0.9, "max_model_len": 8192, "max_num_seqs": 64, "device": H100}
    before = estimate(case(version=(0, 20, 0), **known))
    after = estimate(case(version=(0, 21, 0), **known))
    gone = before.kv_cache_bytes.value - after.kv_cache_bytes.value
    assert gone == pytest.approx(after.graph_bytes.value)
    eager = estimate(case(version=(0, 21, 0), enforce_eager=True, **known))
    assert eager.graph_bytes.value == 0
    assert eager.kv_cache_bytes.value == pytest.approx(before.kv_cache_bytes.value)


def test_a_model_that_only_embeds_has_no_sampler():
    pooling = LLAMA_8B.model_copy(update={"architecture": "LlamaModel"})
    found = estimate(case(pooling, device=H100, max_model_len=8192))
    assert found.activation_bytes.value == 8192 * 2 * (3 * 14336 + 4 * 4096)


def test_experts_in_8_bits_copy_what_their_products_read():
    """8 experts of 1024: (2 x 1024 + 1024) x 8 + 4 x 4096 wide, and half of 8 x 1024 + 4096."""
    experts = Experts(layers=32, count=64, active=8, intermediate_size=1024)
    mixed = LLAMA_8B.model_copy(update={"experts": experts, "intermediate_size": 1024})
    load = {"version": (0, 9, 2), "max_num_seqs": 1, "max_num_batched_tokens": 8192}
    plain = estimate(case(mixed, **load)).activation_bytes.value
    assert plain == 8192 * 2 * (8 * (2 * 1024 + 4096 + 1024) + 4 * 4096)
    held = FP8.model_copy(update={"activation_bits": 8})
    quantised = case(mixed, **load, weight_format=held)
    copied = estimate(quantised).activation_bytes.value
    assert copied == plain + 8192 * (8 * 1024 + 4096)


def test_an_encoder_of_images_is_profiled():
    seeing = LLAMA_8B.model_copy(update={"multimodal": True})
    found = estimate(case(seeing, version=(0, 19, 0), max_num_batched_tokens=2048))
    assert found.activation_bytes.value == 0.55 * GIB + 2048 * 0.2 * 2**20


def test_mllama_needs_room_for_every_requests_image():
    """256 x 4 x 1,601 x 7,680 x 2 B = 23.5 GiB: more than an A10 has, as public reports say."""
    seeing = LLAMA_8B.model_copy(
        update={"multimodal": True, "architecture": "MllamaForConditionalGeneration"}
    )
    found = estimate(case(seeing, version=(0, 6, 1), max_model_len=1024))
    assert found.fits is False


def test_unknown_inputs_widen_the_interval():
    def width(**changes):
        tokens = estimate(case(device=H100, max_model_len=8192, **changes)).kv_cache_tokens
        return (tokens.high - tokens.low) / tokens.value

    known = width(version=(0, 17, 0), memory_ratio=0.9)
    assert width(version=(0, 17, 0)) > known
    assert width(version=None, memory_ratio=0.9) > known
    given = width(version=(0, 17, 0), memory_ratio=0.9, device_memory_bytes=round(79.2 * GIB))
    assert given < known


def test_an_unknown_version_keeps_both_ways_of_printing_in_the_interval():
    known = {"tensor_parallel": 4, "max_model_len": 32768, "memory_ratio": 0.92}
    unknown = estimate(case(QWEN35_27B, version=None, device=H100, **known)).kv_bytes_per_token
    for version in ((0, 19, 0), (0, 22, 0), (0, 26, 0)):
        exact = estimate(case(QWEN35_27B, version=version, device=H100, **known))
        assert unknown.low <= exact.kv_bytes_per_token.value <= unknown.high


def test_memory_shared_with_the_host_keeps_more_back():
    alone = account(case(device=H100, device_memory_bytes=119 * GIB)).other.value_bytes
    shared = account(case(device=GB10, device_memory_bytes=119 * GIB)).other.value_bytes
    assert shared - alone == pytest.approx(1.4 * GIB)


def test_communication_buffers_by_link_and_ranks():
    def other_gib(**changes):
        return account(case(**changes)).other.value_bytes / GIB

    assert other_gib() == pytest.approx(0.17)
    assert other_gib(tensor_parallel=2) == pytest.approx(0.22)
    assert other_gib(device=H100, tensor_parallel=2) == pytest.approx(0.5)
    assert other_gib(device=H100, tensor_parallel=8) == pytest.approx(1.0)


def test_opt_125m_on_a_card_with_much_room():
    found = estimate(case(OPT_125M, version=(0, 6, 6), memory_ratio=0.9))
    assert found.fits is True
    assert found.kv_bytes_per_token.value == 36864


def test_the_first_core_computes_prompts_of_images_whole():
    """40,000 x 2 B x (3 x 14,336 + 4 x 4,096) = 4.42 GiB; in chunks of 2,048 the sampler's."""
    asked = {"version": (0, 7, 3), "max_model_len": 40000, "max_num_seqs": 8}
    plain = estimate(case(**asked))
    seeing = estimate(case(LLAMA_8B.model_copy(update={"multimodal": True}), **asked))
    assert plain.activation_bytes.value < 0.5 * GIB
    assert seeing.activation_bytes.value == pytest.approx(4.42 * GIB, rel=0.01)

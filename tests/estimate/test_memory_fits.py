"""Whether an engine starts, what it says where it does not, and when nobody can say."""

from llmdeploy.estimate.memory import estimate

from .memory_cases import GIB, H100, LLAMA_8B, LLAMA_70B, RTX4090, case, full, shape


def test_a_length_that_exceeds_the_cache_is_refused_with_the_longest_that_fits():
    """0.9 x 23.5 - 14.96 - 1.19 - 0.17 = 4.83 GiB: some 39,600 tokens, not 131,072."""
    found = estimate(case(max_model_len=131072, memory_ratio=0.9, version=(0, 12, 0)))
    assert found.fits is False
    assert found.refusal is not None
    assert found.refusal.startswith("vLLM: max_model_len 131072 needs 16.0 GiB of KV cache")
    assert f"the longest that fits is {found.kv_cache_tokens.value:.0f}" in found.refusal


def test_a_share_that_weights_and_activations_fill_leaves_no_cache():
    found = estimate(case(memory_ratio=0.6, max_model_len=2048))
    assert found.fits is False
    assert "no available memory for the cache blocks" in str(found.refusal)
    assert "raise gpu_memory_utilization" in str(found.refusal)
    assert found.kv_cache_tokens.value == 0


def test_weights_that_exceed_the_device_fail_while_loading():
    """10 x 128,256 x 4,096 x 2 B = 9.8 GiB more than 15.0."""
    counted = LLAMA_8B.parameters
    heavy = LLAMA_8B.model_copy(
        update={"parameters": counted.model_copy(update={"other": 10 * 128256 * 4096})}
    )
    found = estimate(case(heavy, max_model_len=2048))
    assert found.fits is False
    assert str(found.refusal).startswith(
        "vLLM: out of memory while loading: weights of 24.7 GiB a device, 23.5 GiB are there"
    )


def test_a_default_length_that_does_not_fit_is_not_a_clear_no():
    """Nobody said that the whole 131,072 are wanted."""
    found = estimate(case(memory_ratio=0.9))
    assert found.fits is None
    assert "longest that fits" in str(found.refusal)


def test_too_close_to_say():
    tokens = estimate(case(memory_ratio=0.9, max_model_len=2048)).kv_cache_tokens.value
    found = estimate(case(memory_ratio=0.9, max_model_len=int(tokens) - 100))
    assert found.fits is None


def test_without_a_device_there_is_no_verdict():
    found = estimate(case(device=None))
    assert found.fits is None
    assert found.refusal is None
    assert found.kv_cache_bytes is None
    assert found.kv_cache_tokens is None
    assert found.max_concurrency is None
    assert found.kv_bytes_per_token.value == 131072


def test_given_memory_is_enough_without_a_device():
    found = estimate(case(device=None, device_memory_bytes=round(23.5 * GIB), memory_ratio=0.9))
    known = estimate(case(device=RTX4090, memory_ratio=0.9))
    assert found.kv_cache_tokens.value == known.kv_cache_tokens.value


def test_a_share_of_more_than_is_free_at_the_start_is_refused():
    """Of 23.5 GiB a context takes 0.4: 23.1 are free, 0.999 x 23.5 = 23.48 are asked for."""
    found = estimate(case(memory_ratio=0.999, max_model_len=2048))
    assert found.fits is False
    assert "free memory 23.1 GiB is less than the share of 23.5 GiB" in str(found.refusal)


def test_graphs_beside_a_share_of_nearly_everything_may_overrun():
    """0.012 x 23.5 GiB and the 0.07 of the profile run are left, about 0.2 are needed."""
    close = {"memory_ratio": 0.988, "max_model_len": 2048, "max_num_seqs": 16}
    close["max_num_batched_tokens"] = 16
    found = estimate(case(version=(0, 12, 0), **close))
    assert found.fits is None
    assert "capturing graphs may run out of memory" in str(found.refusal)
    assert estimate(case(version=(0, 12, 0), enforce_eager=True, **close)).fits is True


def test_sglang_starts_with_a_context_longer_than_its_pool():
    found = estimate(case(engine="sglang", version=(0, 5, 9), max_model_len=131072))
    assert found.fits is True


def test_more_devices_never_leave_less_cache_per_device():
    tokens = [
        estimate(
            case(LLAMA_70B, device=H100, tensor_parallel=tp, max_model_len=8192)
        ).kv_cache_tokens.value
        for tp in (2, 4, 8)
    ]
    assert tokens == sorted(tokens)


def test_a_model_without_attention_has_no_cache_to_outgrow():
    found = estimate(case(shape(full(0, 8, 128).model_copy(update={"kind": "none", "layers": 32}))))
    assert found.kv_bytes_per_token.value == 0
    assert found.fits is True


def test_a_config_without_a_longest_context_is_taken_as_2048():
    found = estimate(case(LLAMA_8B.model_copy(update={"max_positions": 0}), memory_ratio=0.9))
    assert found.fits is True
    assert found.max_concurrency.value == found.kv_cache_tokens.value / 2048

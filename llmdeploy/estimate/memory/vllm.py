"""vLLM's account: total x fraction - weights - activation peak - contexts is the KV cache."""

from dataclasses import replace

from llmdeploy.estimate.case import Case
from llmdeploy.estimate.memory.account import Account
from llmdeploy.estimate.memory.activation import Load, peaks
from llmdeploy.estimate.memory.contexts import beside_torch
from llmdeploy.estimate.memory.draft import cached_shape, is_drafting
from llmdeploy.estimate.memory.layers import (
    CacheAsk,
    LayerCache,
    attention_parallel,
    dtype_bytes,
    kv_element_bytes,
    layer_caches,
    length_tokens,
    unsaid_width,
)
from llmdeploy.estimate.memory.pages import DEFAULT_BLOCK_TOKENS, Paged, paged
from llmdeploy.estimate.memory.spread import Term
from llmdeploy.estimate.memory.terms import (
    GIB,
    is_unified,
    total,
    weights,
)
from llmdeploy.estimate.memory.vllm_rules import (
    VllmRules,
    default_batched_tokens,
    default_sequences,
    needs_first_core,
    on_first_core,
    on_rocm,
    vllm_rules,
)
from llmdeploy.model import ModelShape

UNSAID_TOTAL_BYTES = 80 * GIB
"""Of a device that is not known, for defaults that depend on its size."""
UNSAID_SHARE_DEVIATION_RATIO = 0.015
"""Of the total, where the fraction may have been set without our knowing."""
STATE_CELL_RATIO = (0.93, 1.15)
"""Source: 14 public launch logs of hybrid models, with drafting and without."""
UNSAID_STATE_CELL_RATIO = (0.55, 1.65)
"""The same where the version is not known, nor with it what drafts and caching of states add.

Source: 4 public launch logs of hybrid models that tell no version: 0.57 to 1.6."""
BEFORE_CONCURRENCY = (0, 19, 0)
FORWARD_DEVIATION_RATIO = 0.25
MIXTURE_DEVIATION_RATIO = 0.4
ENCODER_DEVIATION_RATIO = 0.5
ACTIVATION_DEVIATION_BYTES = 0.14 * GIB
"""What the peak is off by, by what makes it. Source: our fit, tests/accuracy/memory."""
START_BYTES = 0.4 * GIB
START_DEVIATION_BYTES = 0.25 * GIB
"""In use before the engine measures. Source: 10 public launch logs: 0.4 to 0.6 GiB on NVIDIA."""
REPACKED = Term(0.48 * GIB, 0.2 * GIB)
"""Source: 11 public launch logs of quantised models on R9700: 0.1 to 0.7 GiB beyond the weights."""
BLOCK_TOKENS = {"ascend": 128, "habana": 128, "cpu": 128}
"""Where it is not 16. Source: vLLM Ascend 0.9 `NPUPlatform`; vLLM HPU; vLLM 0.32 `CpuPlatform`."""
GRAPH_BYTES = 0.2 * GIB
GRAPH_SEQUENCE_BYTES = 0.8 * 2**20
GRAPH_DEVIATION_RATIO = 0.8
"""CUDA graphs: a constant and a share of each captured batch size.

Source: our fit over 84 public launch logs: -0.9 to 4.9 GiB, much of it the allocator's."""
LARGEST_GRAPH = 512
"""Source: vLLM 0.8 to 0.22 `cudagraph_capture_sizes`: to twice max_num_seqs, 512 at most."""


def account(case: Case) -> Account:
    """vLLM's memory on the fullest rank."""
    rules = _rules(case)
    device = total(case)
    total_bytes = int(device.value_bytes) if device else UNSAID_TOTAL_BYTES
    length = length_tokens(case)
    load = _load(case, rules, total_bytes=total_bytes, length=length)
    parts = (
        _loaded(case, rules),
        _activation(case, rules, load),
        _graphs(case, load),
        beside_torch(case, rules),
    )
    loaded, activation, graphs, other = parts
    share = case.memory_ratio if case.memory_ratio is not None else rules.memory_ratio
    available = left = start_free = None
    if device is not None:
        if rules.v1 and not is_unified(case):
            start_free = device - Term(START_BYTES, START_DEVIATION_BYTES)
        spent = loaded + activation + other
        spent = spent + graphs if rules.graphs_in_budget else spent
        available = device.scaled(share) - spent
        if case.memory_ratio is None:
            available = available + Term(0.0, UNSAID_SHARE_DEVIATION_RATIO * device.value_bytes)
        if not rules.graphs_in_budget:
            left = device.scaled(1 - share) + activation  # what the profile run gave back
    cache = _cache(case, rules, length=length, load=load)
    return Account(
        engine="vLLM",
        share_name="gpu_memory_utilization",
        share_ratio=share,
        total=device,
        weights=loaded,
        activation=activation,
        graphs=graphs,
        other=other,
        available=available,
        start_free=start_free,
        left=left,
        cache=cache,
        cell_ratio=_cell_ratio(case, cache, length=length, load=load),
        length_tokens=length,
        length_given=case.max_model_len is not None,
    )


def _rules(case: Case) -> VllmRules:
    version, device = case.engine.version, case.device
    rules = vllm_rules(version)
    if device is not None and device.vendor == "amd":
        return on_rocm(rules, version)
    return on_first_core(rules) if needs_first_core(case) else rules


def _loaded(case: Case, rules: VllmRules) -> Term:
    """Weights; on ROCm the engine counts what is no longer free, with what repacking quantised
    layers leaves between the tensors.

    Source: vLLM 0.9 `RocmPlatform.get_current_memory_usage`.
    """
    loaded = weights(case)
    amd = case.device is not None and case.device.vendor == "amd"
    if amd and rules.v1 and case.weight_format is not None:
        loaded = loaded + REPACKED
    return loaded


def _cache(case: Case, rules: VllmRules, *, length: int, load: Load) -> Paged | None:
    layers = _layers(case, rules)
    if is_drafting(case):  # a state for each drafted token: vLLM `MambaSpec.num_speculative_blocks`
        drafted = case.speculative_tokens or 0
        rules = replace(rules, state_blocks=rules.state_blocks + drafted)
    vendor = case.device.vendor if case.device else ""
    return paged(
        layers,
        rules,
        length_tokens=length,
        batched_tokens=load.batched_tokens,
        block_tokens=BLOCK_TOKENS.get(vendor, DEFAULT_BLOCK_TOKENS),
    )


def _cell_ratio(case: Case, cache: Paged | None, *, length: int, load: Load) -> tuple[float, float]:
    """Bounds of the bytes per token over their value: where options that a case does not hold
    (drafting, caching of states) or a version that is not known change the groups."""
    low, high = unsaid_width(case), 1.0
    if cache is None or len(cache.groups) == 1:
        return low, high
    if any(group.kind == "state" for group in cache.groups):
        unsaid = case.engine.version is None
        ratios = UNSAID_STATE_CELL_RATIO if unsaid else STATE_CELL_RATIO
        low, high = low * ratios[0], ratios[1]
    if case.engine.version is None:
        before = _cache(case, vllm_rules(BEFORE_CONCURRENCY), length=length, load=load)
        if before is not None:
            other = before.bytes_per_token(length) / cache.bytes_per_token(length)
            low, high = min(low, other), max(high, other)
    return low, high


def _layers(case: Case, rules: VllmRules) -> tuple[LayerCache, ...]:
    ask = CacheAsk(
        element_bytes=kv_element_bytes(case, obeys_checkpoint=rules.obeys_checkpoint),
        dtype_bytes=dtype_bytes(case),
        tensor_parallel=attention_parallel(case),
        pipeline_parallel=case.pipeline_parallel,
        expanded_latent=rules.expanded_latent,
    )
    return layer_caches(cached_shape(case), ask)


def _load(case: Case, rules: VllmRules, *, total_bytes: int, length: int) -> Load:
    version, device = case.engine.version, case.device
    ranks = case.tensor_parallel * case.pipeline_parallel
    batched = default_batched_tokens(
        version, device, total_bytes=total_bytes, length_tokens=length, v1=rules.v1, ranks=ranks
    )
    sequences = default_sequences(version, device, total_bytes, v1=rules.v1, ranks=ranks)
    if rules.whole_prompts or (not rules.v1 and _unchunked(case.shape)):
        batched = max(length, batched)
    return Load(
        batched_tokens=case.max_num_batched_tokens or batched,
        sequences=case.max_num_seqs or sequences,
        logit_bytes=rules.logit_bytes,
        shares_expert_buffers=rules.shares_expert_buffers,
        profiles_encoder=rules.v1,
    )


def _unchunked(shape: ModelShape) -> bool:
    """Whether the first core never computes a model's prompts in chunks unless told.

    Source: vLLM 0.9 `_set_default_args_v0`: none for images and MLA, none by default for windows.
    """
    kinds = {part.kind for part in shape.cache}
    return shape.multimodal or bool(kinds & {"latent", "sliding"})


def _activation(case: Case, rules: VllmRules, load: Load) -> Term:
    """The profile run's peak. Its deviation is that of what makes it."""
    found = peaks(case, load)
    peak = found.peak_bytes + (0.0 if rules.groups else _states(case, load))
    peak += rules.kept_ratio * min(found.forward_bytes, found.sampler_bytes)
    if found.encoder_bytes == found.peak_bytes:
        ratio = ENCODER_DEVIATION_RATIO
    elif found.sampler_bytes == found.peak_bytes:
        ratio = rules.logit_deviation_ratio
    else:
        ratio = MIXTURE_DEVIATION_RATIO if case.shape.experts else FORWARD_DEVIATION_RATIO
    unsaid = case.max_num_seqs is None and case.engine.version is None
    spread = Term(0.0, ACTIVATION_DEVIATION_BYTES) + Term(0.0, 0.2 * peak if unsaid else 0.0)
    return Term(peak, ratio * peak) + spread


def _states(case: Case, load: Load) -> float:
    """Early versions kept the states of Mamba layers for every request beside the paged cache,
    and took them in the profile run. Source: vLLM 0.5 to 0.8 `MambaCacheManager`."""
    ask = CacheAsk(
        element_bytes=2.0,
        dtype_bytes=dtype_bytes(case),
        tensor_parallel=case.tensor_parallel,
        pipeline_parallel=case.pipeline_parallel,
    )
    layers = layer_caches(case.shape, ask)
    return float(load.sequences * sum(x.stage_layers * x.state_bytes for x in layers))


def _graphs(case: Case, load: Load) -> Term:
    if case.enforce_eager or (case.device is not None and case.device.vendor == "cpu"):
        return Term(0.0)
    size = GRAPH_BYTES + GRAPH_SEQUENCE_BYTES * min(LARGEST_GRAPH, 2 * load.sequences)
    return Term(size, GRAPH_DEVIATION_RATIO * size)

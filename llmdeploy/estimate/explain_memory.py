"""The formulas of memory: weights, KV per token, the rest, and the tokens that fit."""

from collections.abc import Iterator

from llmdeploy.estimate.explain_formula import Formula, plain, shown
from llmdeploy.estimate.memory.draft import is_drafting
from llmdeploy.estimate.write import Result
from llmdeploy.model import CacheLayers

ELEMENT_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "fp8": 1, "int8": 1, "int4": 0.5, "nvfp4": 0.5}
"""Scales left out. Source: IEEE 754, bfloat16, OCP FP8 and FP4 widths."""
SERVED = "bf16"
"""What engines serve plain checkpoints in unless asked, those in float32 too: 16 bits.
Source: vLLM 0.11 `_get_and_verify_dtype`."""
CLOSE_RATIO = 0.02
"""A textbook sum this near to the estimate is shown as the estimate's own; else both are."""


def bytes_per_weight(result: Result) -> float:
    """Bytes of one weight in the case's format, scales left out."""
    case = result.case
    if case.weight_format is not None:
        return case.weight_format.bits / 8
    return ELEMENT_BYTES[case.dtype or SERVED]


def device_memory_bytes(result: Result) -> int | None:
    """Memory of one device as the engine sees it; None where the case does not say."""
    case = result.case
    if case.device_memory_bytes is not None or case.device is None:
        return case.device_memory_bytes
    return case.device.usable_memory_bytes


def memory_formulas(result: Result) -> Iterator[Formula]:
    """Weights, KV per token, what else lies on the device, and the cache that is left."""
    memory, case = result.memory, result.case
    parts = case.shape.parameters
    if parts is not None:
        counts = (
            parts.embedding, parts.head, parts.attention, parts.dense_mlp, parts.routed_experts,
            parts.shared_experts, parts.other, parts.vision,
        )  # fmt: skip
        yield Formula(
            name="parameters",
            words="embedding + head + attention + dense MLP + routed and shared experts + norms,"
            " routers, biases + encoders",
            sum=" + ".join(str(count) for count in counts),
            value=parts.total,
            unit="parameters",
            source="the model's config.json",
        )
        if parts.draft:
            yield Formula(
                name="draft_parameters",
                words="layers that predict further tokens: counted with the weights, the launch"
                " speculates"
                if is_drafting(case)
                else "layers that predict further tokens: not counted, engines load them only to"
                " speculate",
                sum="",
                value=parts.draft,
                unit="parameters",
                source="the model's config.json",
            )
    yield plain(
        "weights_bytes",
        f"on the fullest of {case.tensor_parallel} x {case.pipeline_parallel} ranks, with scales,"
        " padding, copied parts and what stays unquantised",
        memory.weights_bytes,
        unit="bytes",
    )
    yield from _kv_per_token(result)
    for name, words in (
        ("activation_bytes", "largest step's activations and logits"),
        ("graph_bytes", "captured graphs"),
        ("other_bytes", "contexts, communication buffers and fragments"),
    ):
        yield plain(name, words, getattr(memory, name), unit="bytes")
    yield from _kv_cache(result)


def _kv_per_token(result: Result) -> Iterator[Formula]:
    """Layers x (K and V) x KV heads on this device x head_dim x bytes, by kind of cache layer.

    Source: vLLM 0.11 `FullAttentionSpec.page_size_bytes`, `MLAAttentionSpec.page_size_bytes`.
    """
    case, estimated = result.case, result.memory.kv_bytes_per_token
    element = ELEMENT_BYTES.get(_kv_dtype(result), 2)
    groups = case.shape.cache or (
        CacheLayers(
            kind="full", layers=case.shape.layers, kv_heads=case.shape.kv_heads,
            head_dim=case.shape.head_dim, value_dim=case.shape.head_dim,
        ),
    )  # fmt: skip
    terms = [_term(group, result, element) for group in groups if group.kind not in _STATELESS]
    text = " + ".join(term for term, _ in terms)
    textbook = sum(size for _, size in terms) / case.pipeline_parallel
    if case.pipeline_parallel > 1 and text:
        text = f"({text}) / {case.pipeline_parallel}"
    exact = bool(text) and abs(textbook - estimated.value) <= CLOSE_RATIO / 10 * estimated.value
    if text:
        yield Formula(
            name="kv_bytes_per_token" if exact else "kv_bytes_per_token_textbook",
            words="layers x (K + V) x KV heads on one device x head_dim x bytes",
            sum=text,
            value=textbook,
            unit="bytes",
            source="the model's config.json",
        )
    if not exact:
        words = "as this engine version lays out its pages, groups and padding"
        yield plain("kv_bytes_per_token", words, estimated, unit="bytes")


_STATELESS = ("state", "none")


def _term(group: CacheLayers, result: Result, element: float) -> tuple[str, float]:
    """One group's part of the sum, and its value."""
    if group.kind == "latent":
        text = f"{group.layers} x {group.latent_dim} x {element:g}"
        size = group.layers * group.latent_dim * element
        if group.indexer_bytes:
            return f"{text} + {group.layers} x {group.indexer_bytes}", size + (
                group.layers * group.indexer_bytes
            )
        return text, size
    ranks = result.case.tensor_parallel
    if result.case.attention_data_parallel:
        ranks = max(1, ranks // result.case.data_parallel)
    heads = max(1, group.kv_heads // ranks)
    value_dim = group.value_dim or group.head_dim
    wide = f"({group.head_dim} + {value_dim})"
    if value_dim == group.head_dim:
        wide = f"2 x {group.head_dim}"
    size = group.layers * heads * (group.head_dim + value_dim) * element
    return f"{group.layers} x {heads} x {wide} x {element:g}", size


def _kv_dtype(result: Result) -> str:
    case = result.case
    asked = case.weight_format.kv_cache_dtype if case.weight_format else None
    return case.kv_cache_dtype or asked or case.dtype or SERVED


def _kv_cache(result: Result) -> Iterator[Formula]:
    case, memory = result.case, result.memory
    if memory.kv_cache_bytes is None:
        return
    yield plain(
        "kv_cache_bytes",
        "what the engine's memory fraction leaves beside weights, activations and the rest",
        memory.kv_cache_bytes,
        unit="bytes",
    )
    size, each = memory.kv_cache_bytes.value, memory.kv_bytes_per_token.value
    if memory.kv_cache_tokens is not None and each > 0:
        tokens = memory.kv_cache_tokens.value
        near = abs(size / each - tokens) <= CLOSE_RATIO * max(tokens, 1)
        yield Formula(
            name="kv_cache_tokens",
            words="KV cache / KV bytes per token, in whole pages" if near else "as printed",
            sum=f"{size:.0f} / {shown(each)}" if near else "",
            value=size / each if near else tokens,
            unit="tokens",
            source=f"{memory.kv_cache_tokens.method} ({memory.kv_cache_tokens.origin})",
        )
    if memory.max_concurrency is not None:
        longest = case.max_model_len or case.shape.max_positions
        words = f"requests of {longest} tokens at once, as printed"
        yield plain("max_concurrency", words, memory.max_concurrency, unit="requests")

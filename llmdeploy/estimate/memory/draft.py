"""Layers that predict further tokens (MTP): only a launch that drafts loads them and their KV."""

from llmdeploy.catalog.types import EngineName
from llmdeploy.estimate.case import Case
from llmdeploy.estimate.memory.spread import Term
from llmdeploy.model import CacheLayers, ModelShape, Parameters

SPECULATING: tuple[EngineName, ...] = ("vllm", "sglang", "tensorrt-llm")
"""Engines that run them. Source: vLLM 0.11 `method: mtp`; SGLang 0.5 `NEXTN`; TensorRT-LLM 1.0
`MTPDecodingConfig`."""
NATIVE = ("fp8_block",)
"""Formats that hold them too; others leave them in the dtype. Source: DeepSeek's own checkpoints;
the ignore lists of NVFP4, AWQ and W4A16 checkpoints name `mtp`; 2 public launch logs of NVFP4."""
DEVIATION_RATIO = 0.15
"""Source: 2 public launch logs with MTP: 0.1 GiB of 1.6 and 2.9 of 8.4 beside this count."""


def is_drafting(case: Case) -> bool:
    """Whether the launch loads such layers of the model's own."""
    counted = case.shape.parameters
    has_layers = counted is not None and counted.draft > 0
    return has_layers and bool(case.speculative_tokens) and case.engine.name in SPECULATING


def draft_weights(case: Case) -> Term:
    """Their weights on a rank: split like the other layers; embedding and head are the model's.

    Source: vLLM 0.11 `deepseek_mtp.py`, `qwen3_next_mtp.py`; SGLang 0.5 `set_embed_and_head`.
    """
    counted = case.shape.parameters
    if counted is None or not is_drafting(case):
        return Term(0.0)
    size = counted.draft * _bytes_per_weight(case, counted) / case.tensor_parallel
    return Term(size, DEVIATION_RATIO * size)


def cached_shape(case: Case) -> ModelShape:
    """The shape with what drafting layers keep: each as the model's last attending layer."""
    shape = case.shape
    if not is_drafting(case):
        return shape
    parts = list(shape.cache or (_plain(shape),))
    last = max(i for i, part in enumerate(parts) if part.kind not in ("state", "none"))
    more = parts[last].layers + draft_layers(shape)
    parts[last] = parts[last].model_copy(update={"layers": more})
    return shape.model_copy(update={"cache": tuple(parts)})


def draft_layers(shape: ModelShape) -> int:
    """How many they are: their weights over those of one, a layer's and a joint of 2 hidden x
    hidden."""
    counted = shape.parameters
    if counted is None or not counted.draft:
        return 0
    attending = sum(p.layers for p in shape.cache if p.kind not in ("state", "none"))
    mixing = (counted.attention - counted.attention_state) / (attending or shape.layers)
    if shape.experts is not None:
        feed = (counted.routed_experts + counted.shared_experts) / shape.experts.layers
    else:
        feed = counted.dense_mlp / shape.layers
    return max(1, round(counted.draft / (mixing + feed + 2 * shape.hidden_size**2)))


def draft_words(case: Case) -> list[str]:
    """What is counted of them, or why nothing is."""
    counted = case.shape.parameters
    there = counted is not None and counted.draft > 0
    if case.speculative_tokens and not is_drafting(case):
        why = f"{case.engine.name} runs none" if there else "the config states no MTP layers"
        return [f"speculative_tokens: {why}; a draft model's weights and cache are not counted"]
    if case.speculative_tokens:
        return ["speed is that without drafts; memory counts the MTP layers and their KV cache"]
    if there:
        return ["the model's MTP layers are not loaded: speculative_tokens is not given"]
    return []


def _bytes_per_weight(case: Case, counted: Parameters) -> float:
    plain = 4.0 if case.dtype == "fp32" else 2.0
    held = case.weight_format
    if held is None or held.method not in NATIVE:
        return plain
    bits = held.stored_bits("routed_experts" if counted.routed_experts else "dense_mlp")
    return plain if bits is None else bits / 8


def _plain(shape: ModelShape) -> CacheLayers:
    return CacheLayers(
        kind="full", layers=shape.layers, kv_heads=shape.kv_heads, head_dim=shape.head_dim,
        value_dim=shape.head_dim,
    )  # fmt: skip

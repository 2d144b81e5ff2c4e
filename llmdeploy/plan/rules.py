"""What engines and devices refuse, before any number of memory or time: each rule by its id."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from llmdeploy.catalog.types import EngineName
from llmdeploy.model import ModelShape, WeightFormat
from llmdeploy.plan.proposal import Proposal
from llmdeploy.plan.rules_placement import host_room, link_domain, one_host

FP8_BLOCK = 128
MARLIN_OUTPUT = 64
LEAST_CAPABILITY = {
    "awq": 7.5, "gptq": 6.0, "fp8": 7.5, "fp8_block": 8.9, "w4a8": 9.0, "int8": 7.5, "w8a8": 7.5,
    "mxfp4": 8.0, "nvfp4": 7.5, "w4a16": 7.5, "nf4": 7.0,
}  # fmt: skip
"""Of NVIDIA's devices by weight format. Source: vLLM 0.33 `get_min_capability` of each format;
fp8_block: its kernels multiply FP8, which begins with 8.9."""
LEAST_ENGINE_CAPABILITY: dict[EngineName, float] = {"vllm": 7.0, "sglang": 7.5}
"""Source: vLLM 0.33 installation manual; SGLang 0.5 needs FlashInfer's 7.5 or Triton."""
FORMATS = {
    "amd": {"fp8", "fp8_block", "awq", "gptq", "w4a16", "int8", "w8a8", "mxfp4", "gguf"},
    "ascend": {"int8", "w8a8", "w4a8"},
    "intel": {"awq", "gptq", "w4a16", "fp8"},
    "cpu": {"int8", "w8a8", "nf4", "awq", "gptq"},
    "habana": {"fp8", "awq", "gptq"},
}
"""What else than plain weights devices without CUDA run. Source: vLLM 0.33 `supported_quantization`
of each platform; vllm-ascend 0.23 quantization manual."""
FP8_ARCHITECTURES = {"cdna3", "cdna4", "rdna4"}
"""AMD's with FP8 products. Source: AMD CDNA 3 and RDNA 4 instruction set manuals."""
VENDORS: dict[EngineName, set[str]] = {
    "vllm": {"nvidia", "amd", "ascend", "intel", "habana", "cpu"},
    "sglang": {"nvidia", "amd", "ascend", "intel"},
    "embedded": {"nvidia", "cpu"},
}
"""Source: installation manuals of vLLM 0.33 (with its plugins) and SGLang 0.5.23."""
EMBEDDED_CACHES = {"full", "sliding", "none"}
EMBEDDED_FORMATS = {"int8", "nf4"}
"""Source: transformers 5.24 continuous batching (paged cache of full and sliding layers);
bitsandbytes, as the engine's settings name them."""
KV_FP8_CAPABILITY = 8.0
"""Source: vLLM 0.33: FlashInfer reads an FP8 cache from 8.0 on, FlashAttention from 9.0 on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A rule that a layout breaks."""

    rule: str
    words: str
    times_short: float = math.inf
    """Needed over what there is, above 1; infinite where it is no matter of more or less."""


Rule = Callable[[Proposal, ModelShape], str | None]
"""Words where the proposal breaks it, None where it keeps it."""


def first_broken(proposal: Proposal, shape: ModelShape) -> Broken | None:
    """The first rule that the proposal breaks, None where it keeps them all."""
    for rule, check in RULES.items():
        words = check(proposal, shape)
        if words is not None:
            return Broken(rule=rule, words=words)
    return None


def _engine_device(proposal: Proposal, shape: ModelShape) -> str | None:
    engine, spec = proposal.engine.name, proposal.pool.device
    if spec.vendor not in VENDORS[engine]:
        return f"{engine} does not run on {spec.name}"
    least, found = LEAST_ENGINE_CAPABILITY.get(engine), spec.compute_capability
    if least is not None and found is not None and float(found) < least:
        return f"{engine} needs compute capability {least}, {spec.name} has {found}"
    if engine == "embedded" and (proposal.hosts > 1 or proposal.pipeline_parallel > 1):
        return "the embedded engine splits a model over the devices of one host, by tensors only"
    return None


def _engine_model(proposal: Proposal, shape: ModelShape) -> str | None:
    """What the embedded engine's continuous batching cannot hold."""
    if proposal.engine.name != "embedded":
        return None
    held = {layers.kind for layers in shape.cache} - EMBEDDED_CACHES
    if held:
        return f"the embedded engine keeps no {', '.join(sorted(held))} cache"
    format = proposal.weights.format
    if format is not None and format.method not in EMBEDDED_FORMATS:
        return f"the embedded engine holds no {format.method} weights"
    return None


def _heads(proposal: Proposal, shape: ModelShape) -> str | None:
    tp = proposal.tensor_parallel
    if shape.attention_heads % tp == 0:
        return None
    possible = [n for n in range(1, min(shape.attention_heads, 64) + 1) if _divides(n, shape)]
    return (
        f"tp {tp} does not divide {shape.attention_heads} attention heads:"
        f" possible are {', '.join(str(n) for n in possible)}"
    )


def _kv_heads(proposal: Proposal, shape: ModelShape) -> str | None:
    tp = proposal.tensor_parallel
    if _kv_divides(tp, shape):
        return None
    return (
        f"tp {tp} and {shape.kv_heads} KV heads: neither divides the other, so they can be neither"
        " split nor copied evenly"
    )


def _layers(proposal: Proposal, shape: ModelShape) -> str | None:
    if proposal.pipeline_parallel <= shape.layers:
        return None
    return f"pp {proposal.pipeline_parallel} is more stages than {shape.layers} layers"


def _experts(proposal: Proposal, shape: ModelShape) -> str | None:
    if not proposal.expert_parallel:
        return None
    if shape.experts is None:
        return "expert parallelism needs a mixture of experts, the model is dense"
    ranks = proposal.tensor_parallel * proposal.data_parallel
    if shape.experts.count % ranks:
        return f"{shape.experts.count} experts do not divide over {ranks} ranks"
    return None


def _data_parallel(proposal: Proposal, shape: ModelShape) -> str | None:
    if proposal.data_parallel > proposal.pool.most_per_host:
        most = proposal.pool.most_per_host
        return (
            f"experts spread over {proposal.data_parallel} devices cross hosts of {most}: an"
            " all-to-all each layer over the network"
        )
    return None


def _capability(proposal: Proposal, shape: ModelShape) -> str | None:
    format, spec = proposal.weights.format, proposal.pool.device
    if format is None:
        return None
    allowed = FORMATS.get(spec.vendor)
    if allowed is not None and format.method not in allowed:
        return f"{spec.name} runs no {format.method} weights, only {', '.join(sorted(allowed))}"
    amd_fp8 = spec.vendor == "amd" and format.method.startswith("fp8")
    if amd_fp8 and spec.architecture not in FP8_ARCHITECTURES:
        needed = ", ".join(sorted(FP8_ARCHITECTURES))
        return f"fp8 needs {needed}, {spec.name} is {spec.architecture}"
    least, found = LEAST_CAPABILITY.get(format.method), spec.compute_capability
    if least is not None and found is not None and float(found) < least:
        return f"{format.method} needs compute capability {least}, {spec.name} has {found}"
    return None


def _kv_cache(proposal: Proposal, shape: ModelShape) -> str | None:
    spec = proposal.pool.device
    if proposal.kv_cache_dtype != "fp8":
        return None
    if spec.vendor in ("ascend", "cpu") or (
        spec.vendor == "amd" and spec.architecture not in FP8_ARCHITECTURES
    ):
        return f"{spec.name} keeps no fp8 KV cache"
    found = spec.compute_capability
    if found is not None and float(found) < KV_FP8_CAPABILITY:
        return f"an fp8 KV cache needs compute capability {KV_FP8_CAPABILITY}, found {found}"
    return None


def _groups(proposal: Proposal, shape: ModelShape) -> str | None:
    """Layers that are split along their input must keep whole groups that share a scale."""
    format = proposal.weights.format
    if format is None or not format.group_size or format.method in ("fp8_block", "nf4"):
        return None
    for name, size, ranks in _inputs(proposal, shape, format):
        if size % ranks or size // ranks % format.group_size:
            return (
                f"{name} of {size} over {ranks} ranks is {size / ranks:g}, not whole groups of"
                f" {format.group_size} weights ({format.method})"
            )
    return None


def _blocks(proposal: Proposal, shape: ModelShape) -> str | None:
    format = proposal.weights.format
    if format is None or format.method != "fp8_block":
        return None
    for name, size, ranks in _inputs(proposal, shape, format):
        if size % ranks or size // ranks % FP8_BLOCK:
            return (
                f"{name} of {size} over {ranks} ranks is {size / ranks:g}, not whole FP8 blocks of"
                f" {FP8_BLOCK}"
            )
    return None


def _converted_ranks(proposal: Proposal, shape: ModelShape) -> str | None:
    """bitsandbytes packs a layer as one: engines split it only along whole blocks."""
    split = proposal.tensor_parallel > 1 or proposal.pipeline_parallel > 1
    if proposal.engine.name == "embedded" and proposal.weights.convert != "none" and split:
        return f"the embedded engine cannot split {proposal.weights.convert} weights over ranks"
    return None


def _inputs(
    proposal: Proposal, shape: ModelShape, format: WeightFormat
) -> Iterator[tuple[str, int, int]]:
    """(name, size, ranks it is divided over) of what quantised layers are split along."""
    tp, experts = proposal.tensor_parallel, shape.experts
    dense = experts is None or experts.layers < shape.layers
    if dense and "dense_mlp" not in format.kept and shape.intermediate_size:
        yield "intermediate size", shape.intermediate_size, tp
    if experts is not None and not proposal.expert_parallel:
        yield "experts' intermediate size", experts.intermediate_size, tp


def _divides(tp: int, shape: ModelShape) -> bool:
    return shape.attention_heads % tp == 0 and _kv_divides(tp, shape)


def _kv_divides(tp: int, shape: ModelShape) -> bool:
    if any(layers.kind == "latent" for layers in shape.cache) or shape.kv_heads == 0:
        return True
    return shape.kv_heads % tp == 0 or tp % shape.kv_heads == 0


RULES: dict[str, Rule] = {
    "engine-device": _engine_device,
    "engine-model": _engine_model,
    "tp-link-domain": link_domain,
    "ep-link-domain": _data_parallel,
    "host-room": host_room,
    "heads": _heads,
    "kv-heads": _kv_heads,
    "pp-layers": _layers,
    "one-host": one_host,
    "experts": _experts,
    "format-device": _capability,
    "kv-cache-dtype": _kv_cache,
    "quantisation-groups": _groups,
    "fp8-blocks": _blocks,
    "converted-ranks": _converted_ranks,
}
"""In the order they are asked. Source: vLLM 0.33 `ParallelConfig`, `get_num_kv_heads`,
`verify_marlin_supports_shape`, FP8 `block_n` check; SGLang 0.5.23 `ServerArgs`."""

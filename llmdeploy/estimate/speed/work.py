"""What one step of a launch must read, compute and send, at data-sheet rates."""

import math
from dataclasses import dataclass

from llmdeploy.catalog import links
from llmdeploy.catalog.links import Line
from llmdeploy.catalog.types import DeviceSpec, LinkSpec
from llmdeploy.errors import InputError
from llmdeploy.estimate.case import Case
from llmdeploy.estimate.memory.layers import ELEMENT_BYTES as KV_BYTES
from llmdeploy.estimate.speed.spread import Groups, groups
from llmdeploy.model import CacheKind, CacheLayers, ModelShape, Parameters, Part, WeightFormat

ELEMENT_BYTES = 2
"""Of activations. Source: engines compute in bf16 or fp16 between quantised products."""
TILE_TOKENS = 32
"""Tokens that fill up a tile of a grouped product, per expert, on average.
Source: half of vLLM 0.11 fused_moe block sizes (16 to 128)."""
SPARSE_TOKENS = 2048
"""Tokens that a layer with an indexer attends to. Source: DeepSeek-V3.2 config `index_topk`."""
MXFP4_BITS = 8.0
"""Of activations beside mxfp4 weights where tensor cores know 4 bits, 16 elsewhere.
Source: vLLM 0.11 `mxfp4.py` (MXFP4_MXFP8 backends), TensorRT-LLM 1.0 W4A8_MXFP4_MXFP8."""
RACK_DEVICES = 72
"""Devices that one link joins at most. Source: NVIDIA GB200 NVL72 data sheet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attended:
    """Cache layers of one kind, all of them together, per device."""

    read_s: float
    """Seconds to read one cached token of one request at the memory's rate."""
    compute_s: float
    """Seconds of one new token against one cached token while decoding."""
    prefill_compute_s: float
    """The same in a prompt."""
    most_tokens: float
    """Context that is looked at: the window; infinite for full attention."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """Collectives of one kind in a step."""

    count: int
    token_bytes: float
    """Message bytes of one token of an attention worker's batch."""
    lines: tuple[Line, ...]
    """The least of these below the cap."""
    wide_lines: tuple[Line, ...]
    cap_bytes: float
    network: Line | None
    """What joins hosts on top."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Seconds at data-sheet rates on the device with most to do, all stages together."""

    groups: Groups
    layers: int
    expert_layers: int
    state_layers: int
    latent_layers: int
    indexer_layers: int
    dense_read_s: float
    dense_token_s: float
    """Compute per token of an attention worker."""
    head_read_s: float
    head_token_s: float
    expert_read_s: float
    """All routed experts of a device."""
    expert_token_s: float
    """Per token of the whole replica."""
    expert_tile_s: float
    """All routed experts of a device computing for one tile of tokens each."""
    expert_miss_log: float
    """log(1 - active / count): one token's chance to miss an expert; 0 without experts."""
    state_s: float
    """Reading and writing one request's recurrent state."""
    attended: tuple[Attended, ...]
    collectives: tuple[Collective, ...]
    hop_s: float
    """Handing one token's activations to the next stage: latency, per hop."""


def work_of(case: Case) -> Work:
    """The work of a case; InputError where the device or the model's parameters are unknown."""
    device, shape = case.device, case.shape
    if device is None:
        raise InputError(
            "the device is not known: speed needs its rates", fix="name the device (gpu)"
        )
    if shape.parameters is None:
        raise InputError(
            f"{shape.architecture}: the parameters are not counted", fix="give the config.json"
        )
    spread = groups(case)
    experts = shape.experts
    weights = _Weights(case.weight_format, case.dtype or shape.dtype, device)
    dense_read, dense_token = _dense(shape.parameters, weights, spread)
    head = shape.parameters.head or shape.vocabulary_size * shape.hidden_size
    routed = shape.parameters.routed_experts / spread.experts
    return Work(
        groups=spread,
        layers=shape.layers,
        expert_layers=experts.layers if experts else 0,
        state_layers=_of_kind(shape, "state"),
        latent_layers=_of_kind(shape, "latent"),
        indexer_layers=sum(c.layers for c in shape.cache if c.indexer_bytes),
        dense_read_s=dense_read,
        dense_token_s=dense_token,
        head_read_s=head / spread.attention * weights.read_s("head"),
        head_token_s=2 * head / spread.attention * weights.flop_s("head"),
        expert_read_s=routed * weights.read_s("routed_experts"),
        expert_token_s=2 * routed * (experts.active / experts.count if experts else 0)
        * weights.flop_s("routed_experts"),
        expert_tile_s=2 * routed * TILE_TOKENS * weights.flop_s("routed_experts"),
        expert_miss_log=math.log1p(-experts.active / experts.count)
        if experts and experts.active < experts.count else -50.0 if experts else 0.0,
        state_s=_state_s(shape, spread, device),
        attended=tuple(
            _attended(cache, case=case, spread=spread, device=device) for cache in _cache(shape)
        ),
        collectives=_collectives(case, spread, device),
        hop_s=links.point_to_point_s(_link(case, device), shape.hidden_size * ELEMENT_BYTES)
        if spread.stages > 1 else 0.0,
    )  # fmt: skip


def _of_kind(shape: ModelShape, kind: CacheKind) -> int:
    return sum(c.layers for c in shape.cache if c.kind == kind)


class _Weights:
    """Seconds per weight of a part, to read and to multiply."""

    def __init__(self, weight_format: WeightFormat | None, dtype: str, device: DeviceSpec) -> None:
        self._format, self._device = weight_format, device
        self._plain_bytes = 4 if "32" in dtype else 2

    def read_s(self, part: Part) -> float:
        held = self._format
        bits = None if held is None else held.stored_bits(part)
        width = self._plain_bytes if bits is None else bits / 8
        return width / self._device.memory_bytes_per_s

    def flop_s(self, part: Part) -> float:
        held, device = self._format, self._device
        kept = held is None or held.stored_bits(part) is None
        bits = 16.0 if held is None or kept else held.activation_bits
        rate = device.bf16_flops_per_s
        if not kept and held is not None and held.method == "mxfp4" and device.fp4_flops_per_s:
            bits = MXFP4_BITS
        if bits <= 4:
            rate = device.fp4_flops_per_s or device.fp8_flops_per_s or rate
        elif bits <= 8:
            integer = held is not None and held.method in ("int8", "w8a8")
            rate = (device.int8_flops_per_s if integer else device.fp8_flops_per_s) or rate
        return 1 / rate


def _dense(counted: Parameters, weights: _Weights, spread: Groups) -> tuple[float, float]:
    """Seconds to read a device's dense weights once, and to multiply one token with them."""
    whole = counted.attention_whole
    split = counted.attention - whole - counted.attention_state
    on_device: tuple[tuple[Part, float], ...] = (
        ("attention", split / spread.attention + whole),
        ("attention_state", counted.attention_state / spread.attention),
        ("dense_mlp", counted.dense_mlp / spread.dense),
        ("shared_experts", counted.shared_experts / spread.dense),
        ("other", counted.other / 1),
    )
    read = sum(count * weights.read_s(part) for part, count in on_device)
    token = sum(2 * count * weights.flop_s(part) for part, count in on_device)
    return read, token


def _cache(shape: ModelShape) -> tuple[CacheLayers, ...]:
    if shape.cache:
        return tuple(c for c in shape.cache if c.kind not in ("state", "none"))
    return (
        CacheLayers(
            kind="full", layers=shape.layers, kv_heads=shape.kv_heads, head_dim=shape.head_dim,
            value_dim=shape.head_dim,
        ),
    )  # fmt: skip


def _attended(cache: CacheLayers, *, case: Case, spread: Groups, device: DeviceSpec) -> Attended:
    """Reading and computing of one kind of cache layers.

    MLA decodes against the latent vector (each head reads it whole), prompts against full heads.
    Source: DeepSeek-V2 paper, section 2.1; vLLM 0.11 mla/common.py.
    """
    width, shape = kv_element_bytes(case), case.shape
    heads = max(1.0, shape.attention_heads / spread.attention)
    if cache.kind == "latent":
        elements = cache.latent_dim * width + cache.indexer_bytes
        decode_flops = heads * 2 * (2 * cache.latent_dim - 64)
        prompt_flops = heads * 2 * 2 * max(shape.head_dim, 128)
    else:
        kv_heads = math.ceil(cache.kv_heads / spread.attention)
        elements = kv_heads * (cache.head_dim + (cache.value_dim or cache.head_dim)) * width
        decode_flops = prompt_flops = (
            heads * 2 * (cache.head_dim + (cache.value_dim or cache.head_dim))
        )
    windowed = cache.window_tokens and not _ignores_windows(case)
    most = float(cache.window_tokens) if windowed else math.inf
    if cache.indexer_bytes:
        most = SPARSE_TOKENS
    return Attended(
        read_s=cache.layers * elements / device.memory_bytes_per_s,
        compute_s=cache.layers * decode_flops / device.bf16_flops_per_s,
        prefill_compute_s=cache.layers * prompt_flops / device.bf16_flops_per_s,
        most_tokens=most,
    )


def _ignores_windows(case: Case) -> bool:
    """Whether the engine attends to the whole context also where the model asks for a window.

    Source: TensorRT-LLM 0.14 `max_attention_window_size`, the longest sequence unless it is given;
    Mistral-7B at 20,000 tokens in is as fast there as Llama-3.1-8B, 0.97 to 1.06 times on five
    devices.
    """
    version = case.engine.version
    return case.engine.name == "tensorrt-llm" and version is not None and version < (1, 0)


def kv_element_bytes(case: Case) -> float:
    """Bytes of one cached element, where the case does not say as engines are usually started.

    TensorRT-LLM checkpoints with 8-bit or narrower weights carry an 8-bit cache, and recipes for
    Blackwell ask for one; elsewhere the cache is in the model's 16 bits.
    Source: our reading of how many requests run at once in 160 public runs that outgrew their
    cache: twice what a 16-bit cache holds in these two cases, as many in the others.
    """
    held = case.weight_format
    asked = case.kv_cache_dtype or (held.kv_cache_dtype if held is not None else None)
    if asked is not None:
        return KV_BYTES.get(asked, 2.0)
    narrow = held is not None and (held.activation_bits <= 8 or held.method.startswith("mxfp4"))
    blackwell = case.device is not None and case.device.architecture == "blackwell"
    return 1.0 if narrow and (blackwell or case.engine.name == "tensorrt-llm") else 2.0


def _state_s(shape: ModelShape, spread: Groups, device: DeviceSpec) -> float:
    elements = sum(c.layers * c.state_elements for c in shape.cache if c.kind == "state")
    return 2 * elements * 4 / spread.attention / device.memory_bytes_per_s


def _link(case: Case, device: DeviceSpec) -> LinkSpec:
    return case.link or links.between(device)


def _collectives(case: Case, spread: Groups, device: DeviceSpec) -> tuple[Collective, ...]:
    """Sums after attention and after the feed-forward, or the exchange of tokens among experts.

    Source: Megatron-LM (two all-reduces a layer); vLLM 0.11 `naive` and `allgather_reducescatter`
    all-to-all backends (all-gather, then reduce-scatter, of every worker's tokens).
    """
    shape, link, made = case.shape, _link(case, device), []
    token_bytes = float(shape.hidden_size * ELEMENT_BYTES)
    exchanged = shape.experts.layers if shape.experts and spread.attention_workers > 1 else 0
    sums = 2 * shape.layers - exchanged
    if spread.attention > 1:
        made.append(_sum(case, link, spread.attention, count=sums, token_bytes=token_bytes))
    if exchanged and spread.experts > 1:
        within = min(spread.experts, RACK_DEVICES)
        wide = tuple(
            Line(latency_s=a.latency_s + b.latency_s, per_byte_s=a.per_byte_s + b.per_byte_s)
            for a, b in zip(links.lines(link, within, "all_gather"),
                            links.lines(link, within, "reduce_scatter"), strict=True)
        )  # fmt: skip
        made.append(
            Collective(
                count=exchanged, token_bytes=token_bytes * spread.attention_workers, lines=wide,
                wide_lines=wide, cap_bytes=0, network=_network(case, spread),
            )
        )  # fmt: skip
    return tuple(made)


def _sum(case: Case, link: LinkSpec, devices: int, *, count: int, token_bytes: float) -> Collective:
    if case.all_reduce:
        own = links.curve_lines(case.all_reduce)
        return Collective(
            count=count, token_bytes=token_bytes, lines=own, wide_lines=own, cap_bytes=0,
            network=_network(case, groups(case)),
        )  # fmt: skip
    wide = links.lines(link, devices)
    cap = links.custom_cap_bytes(link, devices)
    own = links.lines(link, devices, "custom_all_reduce") if cap else wide
    return Collective(
        count=count, token_bytes=token_bytes, lines=own + wide, wide_lines=wide, cap_bytes=cap,
        network=_network(case, groups(case)),
    )  # fmt: skip


def _network(case: Case, spread: Groups) -> Line | None:
    if spread.hosts <= 1:
        return None
    network = case.network or links.find("infiniband-200g")
    return links.lines(network, spread.hosts)[1]

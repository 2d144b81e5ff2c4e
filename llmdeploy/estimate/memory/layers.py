"""What the layers of one device keep: bytes a token, windows, states. Made of the model's shape."""

from dataclasses import dataclass

from llmdeploy.estimate.case import Case
from llmdeploy.model import CacheKind, CacheLayers, ModelShape

ELEMENT_BYTES = {
    "fp32": 4.0, "float32": 4.0, "bf16": 2.0, "bfloat16": 2.0, "fp16": 2.0, "float16": 2.0,
    "fp8": 1.0, "int8": 1.0, "fp4": 0.5625, "nvfp4": 0.5625, "int4": 0.5625,
    "turboquant_k8v4": 0.766, "turboquant_4bit_nc": 0.523, "turboquant_k3v4_nc": 0.461,
    "turboquant_3bit_nc": 0.398,
}  # fmt: skip
"""Bytes an element, of K and V in the mean; 4-bit ones with a scale byte a 16. TurboQuant's with
2 bytes of norm a key of 128 and 4 of scale a value.

Source: vLLM 0.17 `STR_DTYPE_TO_TORCH_DTYPE`, 0.32 `TurboQuantConfig`;
SGLang 0.5.9 `MHATokenToKVPoolFP4`."""
SPARSE_LATENT_BYTES = 656
"""An MLA entry in FP8 beside an indexer: 512 values, 4 scales of 4 bytes, 64 BF16 rotary elements.

Source: vLLM 0.11 `fp8_ds_mla`; SGLang 0.5.9 `calculate_mla_kv_cache_dim`."""
FLOAT_4 = ("nvfp4", "modelopt_mixed")
"""Formats whose checkpoints may ask for an 8-bit cache without their name saying so."""
STATE_FLOAT32 = ("KimiLinearForCausalLM",)
"""Whose recurrent state is float32 without the config saying so. Source: vLLM 0.12
`MambaStateDtypeCalculator.kda_state_dtype`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCache:
    """Layers that keep the same; bytes of one layer on one device."""

    kind: CacheKind
    layers: int
    """Of the whole model."""
    stage_layers: int
    """On the fullest pipeline stage."""
    bytes_per_token: float = 0
    window_tokens: int = 0
    state_bytes: int = 0
    """Of one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheAsk:
    """How a cache is laid out over devices."""

    element_bytes: float
    dtype_bytes: float
    tensor_parallel: int
    pipeline_parallel: int
    expanded_latent: bool = False
    """Old engines keep MLA's full heads."""


def attention_parallel(case: Case) -> int:
    """Devices that share the attention heads of one request."""
    if not case.attention_data_parallel:
        return case.tensor_parallel
    return max(1, case.tensor_parallel // max(1, case.data_parallel))


def dtype_bytes(case: Case) -> float:
    """Bytes an element of activations: engines serve float32 checkpoints in 16 bits unless asked.

    Source: vLLM 0.17 `_resolve_auto_dtype`; SGLang 0.5.9 `_get_and_verify_dtype`.
    """
    return 4.0 if case.dtype == "fp32" else 2.0


def kv_element_bytes(case: Case, *, obeys_checkpoint: bool) -> float:
    """Bytes an element of the KV cache: as asked, else as the checkpoint asks, else the dtype's."""
    word = case.kv_cache_dtype
    if word is None and obeys_checkpoint and case.weight_format is not None:
        word = case.weight_format.kv_cache_dtype
    if word is None:
        return dtype_bytes(case)
    return ELEMENT_BYTES.get(word, 1.0 if word.startswith("fp8") else 2.0)


def length_tokens(case: Case) -> int:
    """The longest request: as asked, else the model's longest, else what engines assume.

    Source: vLLM 0.17 `_get_and_verify_max_len`: 2048 where a config says nothing.
    """
    return case.max_model_len or case.shape.max_positions or 2048


def unsaid_width(case: Case) -> float:
    """Smallest width of a cache element over the one assumed: 4-bit float checkpoints often ask
    for an 8-bit cache in files that a name does not show.

    Source: of 6 public launch logs of NVFP4 checkpoints 4 had an FP8 cache.
    """
    held = case.weight_format
    open_ = held is not None and held.method in FLOAT_4 and held.kv_cache_dtype is None
    return 0.5 if open_ and case.kv_cache_dtype is None else 1.0


def rank_heads(heads: int, tensor_parallel: int) -> int:
    """KV heads on one device: split, and copied where there are fewer than devices.

    Source: vLLM 0.17 `get_num_kv_heads`.
    """
    return max(1, -(-heads // tensor_parallel))


def layer_caches(shape: ModelShape, ask: CacheAsk) -> tuple[LayerCache, ...]:
    """Every kind of layer that keeps something, as one device holds it."""
    groups = shape.cache or (
        CacheLayers(
            kind="full",
            layers=shape.layers,
            kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            value_dim=shape.head_dim,
        ),
    )
    return tuple(_layer(part, shape, ask) for part in groups if part.kind != "none")


def _layer(part: CacheLayers, shape: ModelShape, ask: CacheAsk) -> LayerCache:
    return LayerCache(
        kind=part.kind,
        layers=part.layers,
        stage_layers=-(-part.layers // ask.pipeline_parallel),
        bytes_per_token=_token_bytes(part, shape, ask),
        window_tokens=part.window_tokens,
        state_bytes=_state_bytes(part, shape, ask),
    )


def _token_bytes(part: CacheLayers, shape: ModelShape, ask: CacheAsk) -> float:
    """K and V (or the latent vector and its indexer) of one token in one layer, in bytes.

    Heads x (head_dim of K + of V) x element; a latent vector is not divided over TP.
    """
    if part.kind == "state":
        return 0.0
    if part.latent_dim:
        if ask.expanded_latent:
            padded = 2 * 256  # K of 192 and V of 128, both padded to a head size kernels know
            return rank_heads(shape.attention_heads, ask.tensor_parallel) * padded * 2.0
        sparse = part.indexer_bytes and ask.element_bytes == 1
        entry = SPARSE_LATENT_BYTES if sparse else part.latent_dim * ask.element_bytes
        return (entry + part.indexer_bytes) / part.compression
    heads = rank_heads(part.kv_heads, ask.tensor_parallel)
    return heads * (part.head_dim + part.value_dim) * ask.element_bytes


def _state_bytes(part: CacheLayers, shape: ModelShape, ask: CacheAsk) -> int:
    """What one request keeps in one state layer: the convolution's inputs in the model's dtype,
    the recurrent state in its own."""
    if part.kind != "state":
        return 0
    wide = part.state_dtype == "float32" or shape.architecture in STATE_FLOAT32
    recurrent = (part.state_elements - part.convolution_elements) * (4 if wide else ask.dtype_bytes)
    return round((recurrent + part.convolution_elements * ask.dtype_bytes) / ask.tensor_parallel)

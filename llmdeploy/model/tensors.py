"""What weights take beyond their elements: tables of positions, and the allocator's rounding."""

from collections.abc import Iterator
from dataclasses import dataclass

from llmdeploy.model.shape import CacheLayers, ModelShape, Part

BLOCK_BYTES = 2 * 2**20
LARGE_BYTES = 10 * 2**20
SPLIT_BYTES = 2**20
"""torch gives a tensor of 10 MiB or more a segment of whole 2 MiB, and what is left over stays
with the tensor unless it is more than 1 MiB.

Source: torch 2.9 `CUDACachingAllocator` (kRoundLarge, kMinLargeAlloc, kSmallSize); explains what
vLLM logs for Qwen2.5-7B (14.2487 GiB: 14.1853 weights, 57 MiB rounding, 8 MiB positions)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """Equal tensors of one rank, as engines fuse them."""

    part: Part
    number: float
    """How many of them; a share of a layer where stages are uneven."""
    elements: float


def position_bytes(shape: ModelShape, width: int) -> int:
    """Tables of cos and sin for every position up to the longest, in the model's dtype.

    Source: vLLM 0.11 `RotaryEmbedding._compute_cos_sin_cache`; Llama 3.1 logs the 32 MiB of
    131,072 positions x 128 x 2 bytes over its weights.
    """
    return shape.max_positions * shape.rotary_elements * width


def rounding_bytes(size_bytes: float) -> float:
    """What the allocator adds to a tensor of `size_bytes`."""
    if size_bytes < LARGE_BYTES:
        return 0.0
    left = -size_bytes % BLOCK_BYTES
    return left if left <= SPLIT_BYTES else 0.0


def layer_tensors(shape: ModelShape, *, tp: int, ep: bool) -> Iterator[Tensor]:
    """Large tensors of all layers on one of `tp` ranks."""
    yield from _attention(shape, tp)
    yield from _feeds(shape, tp=tp, ep=ep)


def table_elements(shape: ModelShape, *, tp: int, rows_multiple: int) -> int:
    """Elements of the embedding (or head) on a rank, its rows padded."""
    rows = -(-shape.vocabulary_size // rows_multiple) * rows_multiple
    return -(-rows // tp) * shape.hidden_size


def _attention(shape: ModelShape, tp: int) -> Iterator[Tensor]:
    counted = shape.parameters
    if counted is None:
        return
    kinds = shape.cache or (_whole(shape),)
    plain = [c for c in kinds if c.kind in ("full", "sliding", "chunked")]
    queries = sum(c.layers * shape.attention_heads * c.head_dim for c in plain)
    if not queries:
        return
    split = counted.attention - counted.attention_kv - counted.attention_whole
    split -= counted.attention_state
    gate = max(1, round(split / (queries * shape.hidden_size)) - 1)  # Qwen3-Next: 2
    for kind in plain:
        query = shape.attention_heads * kind.head_dim / tp
        kv = 2 * max(1.0, kind.kv_heads / tp) * kind.head_dim
        fused = shape.hidden_size * (gate * query + kv)
        yield Tensor(part="attention", number=kind.layers, elements=fused)
        yield Tensor(part="attention", number=kind.layers, elements=query * shape.hidden_size)


def _feeds(shape: ModelShape, *, tp: int, ep: bool) -> Iterator[Tensor]:
    counted, experts = shape.parameters, shape.experts
    if counted is None:
        return
    matrix = shape.hidden_size * shape.intermediate_size
    if counted.dense_mlp and matrix:
        matrices = counted.dense_mlp / matrix
        layers = shape.layers - (experts.layers if experts else 0)
        layers = layers or shape.layers
        inputs = max(1, round(matrices / layers) - 1)
        yield Tensor(part="dense_mlp", number=layers, elements=inputs * matrix / tp)
        yield Tensor(part="dense_mlp", number=layers, elements=matrix / tp)
    if experts is None:
        return
    share = -(-experts.count // tp) / experts.count if ep else 1 / tp
    whole = counted.routed_experts / experts.layers * share
    yield Tensor(part="routed_experts", number=experts.layers, elements=whole * 2 / 3)
    yield Tensor(part="routed_experts", number=experts.layers, elements=whole / 3)


def _whole(shape: ModelShape) -> CacheLayers:
    return CacheLayers(
        kind="full", layers=shape.layers, kv_heads=shape.kv_heads, head_dim=shape.head_dim,
        value_dim=shape.head_dim,
    )  # fmt: skip

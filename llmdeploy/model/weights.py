"""Bytes of a model's weights on a device, and those that one step reads."""

import math
from dataclasses import dataclass

from llmdeploy.model.shape import Experts, ModelShape, Parameters, Part, WeightFormat
from llmdeploy.model.tensors import layer_tensors, position_bytes, rounding_bytes, table_elements

ELEMENT_BYTES = {
    "bfloat16": 2, "float16": 2, "float32": 4, "bf16": 2, "fp16": 2, "fp32": 4, "half": 2,
    "float": 4, "auto": 2,
}  # fmt: skip
VOCABULARY_ROWS = 64
"""The vocabulary is padded to a multiple. Source: vLLM 0.11 `DEFAULT_VOCAB_PADDING_SIZE`."""
MXFP4_COLUMNS, MXFP4_ROWS = 256, 128
"""Experts in mxfp4 are padded to multiples along input and intermediate width.
Source: vLLM 0.11 `mxfp4.py` (Marlin: 128 and 256); gpt-oss-20b logs 13.72 GiB."""
MXFP4_ROWS_OF = {"9.0": 64, "10.0": 256, "10.3": 256}
"""By compute capability, where the kernels are others than Marlin's.
Source: vLLM 0.11 `mxfp4.py` (triton_kernels, FlashInfer); on H100 gpt-oss-20b logs 13.47 GiB and
gpt-oss-120b 64.38."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Over how many devices the weights go, and how."""

    tp: int
    pp: int
    ep: bool


def weights_bytes(
    shape: ModelShape,
    weight_format: WeightFormat | None,
    *,
    dtype: str | None = None,
    tp: int = 1,
    pp: int = 1,
    ep: bool = False,
    compute_capability: str | None = None,
) -> int:
    """Weights on the fullest rank in bytes, as engines load them, scales and padding with them.

    `dtype` is that of what stays unquantised; None: the checkpoint's. `tp` counts the ranks that
    share a layer, or with `ep` each holds whole experts. `compute_capability` is the device's,
    whose kernels pad mxfp4 in their own way.
    """
    if shape.parameters is None:
        raise ValueError(f"{shape.architecture}: the shape has no counted parameters")
    split = Split(tp=tp, pp=pp, ep=ep)
    width = ELEMENT_BYTES[dtype or shape.dtype]
    parts = {part: _bytes(weight_format, part, width) for part in _PARTS}
    rounding = _rounding(shape, parts, split)
    rows = MXFP4_ROWS_OF.get(compute_capability or "", MXFP4_ROWS)
    padding = _expert_padding(shape, weight_format, split, rows=rows)
    stages = [_stage(shape, split, number) for number in range(pp)]
    fullest = max(
        _stage_bytes(stage, parts, shape, split, padding) + stage.share * rounding
        for stage in stages
    )
    return round(fullest + position_bytes(shape, width))


def active_parameters(shape: ModelShape, tokens: float) -> Parameters:
    """Weights that one step of `tokens` tokens reads, counts by part.

    Of E routed experts, of which each token visits k, E (1 - (1 - k/E)^tokens) are read on
    average; of the embedding one row a token; a tied head reads the embedding.

    Source: expectation over independent, even routing.
    """
    if shape.parameters is None:
        raise ValueError(f"{shape.architecture}: the shape has no counted parameters")
    counted = shape.parameters
    vocabulary = shape.vocabulary_size * shape.hidden_size
    routed = counted.routed_experts * expert_share(shape.experts, tokens)
    return counted.model_copy(
        update={
            "embedding": min(counted.embedding, round(tokens * shape.hidden_size)),
            "head": counted.head or vocabulary,
            "routed_experts": round(routed),
            "vision": 0,
            "draft": 0,
        }
    )


def expert_share(experts: Experts | None, tokens: float) -> float:
    """Share of the routed experts that `tokens` tokens visit on average, 0 to 1."""
    if experts is None:
        return 0.0
    return 1.0 - math.pow(1.0 - experts.active / experts.count, tokens)


_PARTS: tuple[Part, ...] = (
    "embedding", "head", "attention", "attention_state", "dense_mlp", "routed_experts",
    "shared_experts", "other", "vision",
)  # fmt: skip


def _bytes(weight_format: WeightFormat | None, part: Part, width: int) -> float:
    """Bytes per weight of a part."""
    bits = None if weight_format is None else weight_format.stored_bits(part)
    return width if bits is None else bits / 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Layers of one pipeline stage, and whether it has the ends."""

    share: float
    """Of all layers."""
    expert_share: float
    """Of the layers with experts."""
    dense_share: float
    first: bool
    last: bool


def _stage(shape: ModelShape, split: Split, number: int) -> Stage:
    start, end = _layer_range(shape.layers, split.pp, number)
    size = end - start
    experts = shape.experts
    expert_share = dense_share = size / shape.layers
    if experts is not None and experts.dense_first_layers:
        first = experts.dense_first_layers
        mixed = max(0, end - max(start, first))
        expert_share = mixed / experts.layers
        dense_share = max(0, min(end, first) - start) / first
    return Stage(
        share=size / shape.layers, expert_share=expert_share, dense_share=dense_share,
        first=number == 0, last=number == split.pp - 1,
    )  # fmt: skip


def _layer_range(layers: int, pp: int, number: int) -> tuple[int, int]:
    """Layers of a stage: even, what is left over from the last stage but one backwards.

    Source: vLLM 0.11 `get_pp_indices`."""
    sizes = [layers // pp] * pp
    for extra in range(layers % pp):
        sizes[-(extra + 2) % pp] += 1
    start = sum(sizes[:number])
    return start, start + sizes[number]


def _stage_bytes(
    stage: Stage, parts: dict[Part, float], shape: ModelShape, split: Split, padding: float
) -> float:
    counted = shape.parameters
    assert counted is not None, "weights_bytes checks it"
    tp = split.tp
    total = stage.share * _attention_bytes(shape, counted, parts, tp)
    total += stage.dense_share * counted.dense_mlp / tp * parts["dense_mlp"]
    total += stage.expert_share * counted.shared_experts / tp * parts["shared_experts"]
    total += stage.expert_share * _expert_bytes(shape, counted, parts, split) * padding
    total += stage.share * counted.other * parts["other"]
    total += _ends(stage, shape, counted, parts, tp)
    if stage.first:
        total += counted.vision / tp * parts["vision"]
    return total


def _attention_bytes(
    shape: ModelShape, counted: Parameters, parts: dict[Part, float], tp: int
) -> float:
    kv_ranks = min(tp, max(1, shape.kv_heads))
    plain = counted.attention - counted.attention_kv - counted.attention_whole
    plain -= counted.attention_state
    total = (plain / tp + counted.attention_kv / kv_ranks + counted.attention_whole) * parts[
        "attention"
    ]
    total += counted.attention_state / tp * parts["attention_state"]
    return total + counted.latent_up / tp * 2  # kept a second time, in 16 bits


def _expert_bytes(
    shape: ModelShape, counted: Parameters, parts: dict[Part, float], split: Split
) -> float:
    if shape.experts is None:
        return 0.0
    share = 1 / split.tp
    if split.ep:  # the fullest rank holds the rest
        share = -(-shape.experts.count // split.tp) / shape.experts.count
    return counted.routed_experts * share * parts["routed_experts"]


def _rounding(shape: ModelShape, parts: dict[Part, float], split: Split) -> float:
    """What the allocator adds to the large tensors of all layers on a rank; scales are small
    tensors of their own, so a part below 8 bits counts with whole bits."""
    return sum(
        tensor.number * rounding_bytes(tensor.elements * _without_scales(parts[tensor.part]))
        for tensor in layer_tensors(shape, tp=split.tp, ep=split.ep)
    )


def _without_scales(bytes_per_weight: float) -> float:
    return math.floor(bytes_per_weight * 8) / 8


def _expert_padding(
    shape: ModelShape, weight_format: WeightFormat | None, split: Split, *, rows: int
) -> float:
    if weight_format is None or weight_format.method != "mxfp4" or shape.experts is None:
        return 1.0
    width = shape.experts.input_size or shape.hidden_size
    inner = shape.experts.intermediate_size / (1 if split.ep else split.tp)
    padded_width = -(-width // MXFP4_COLUMNS) * MXFP4_COLUMNS
    padded_inner = -(-inner // rows) * rows
    return padded_width * padded_inner / (width * inner)


def _ends(
    stage: Stage, shape: ModelShape, counted: Parameters, parts: dict[Part, float], tp: int
) -> float:
    """Embedding on the first stage and head on the last; a tied head needs the embedding there."""
    elements = table_elements(shape, tp=tp, rows_multiple=VOCABULARY_ROWS)
    further = counted.embedding - shape.vocabulary_size * shape.hidden_size  # positions, per layer
    table = elements * parts["embedding"]
    head = elements * parts["head"]
    total = 0.0
    if stage.first:
        total += table + rounding_bytes(table) + further * parts["embedding"]
    if stage.last and counted.head:
        total += head + rounding_bytes(head)
    elif stage.last and not stage.first:
        total += table
    return total

"""llama.cpp's account: the whole context is taken at the start, whatever is free.

Source: llama.cpp b4000 to b6500 `llama_kv_cache`, `llama_context::graph_reserve`."""

from llmdeploy.estimate.case import Case
from llmdeploy.estimate.memory.account import Account
from llmdeploy.estimate.memory.layers import (
    CacheAsk,
    LayerCache,
    dtype_bytes,
    kv_element_bytes,
    layer_caches,
    length_tokens,
)
from llmdeploy.estimate.memory.pool import FixedCells
from llmdeploy.estimate.memory.spread import Term
from llmdeploy.estimate.memory.terms import GIB, total, weights

STEP_TOKENS = 512
"""n_ubatch, its default."""
PADDING_CELLS = 256
LATENT_COPY_RATIO = 1 + 512 / 576
"""MLA keeps K and, until late 2025, V apart. Source: one public log: 4,148 MiB for 61 layers of
32,768 cells of (576 + 512) x 2 bytes."""
ATTENTION_DEVIATION_RATIO = 0.35
"""Of the scores of a step without flash attention, which may be on or off."""
OTHER_BYTES = 0.4 * GIB
OTHER_DEVIATION_BYTES = 0.2 * GIB


def account(case: Case) -> Account:
    """llama.cpp's memory on the fullest device; the context is max_model_len."""
    length = length_tokens(case)
    device = total(case)
    loaded, buffers = weights(case), _buffers(case, length)
    other = Term(OTHER_BYTES, OTHER_DEVIATION_BYTES)
    layers = layer_caches(
        case.shape,
        CacheAsk(
            element_bytes=kv_element_bytes(case, obeys_checkpoint=False),
            dtype_bytes=dtype_bytes(case),
            tensor_parallel=case.tensor_parallel,
            pipeline_parallel=case.pipeline_parallel,
        ),
    )
    cell = sum(_layer_bytes(layer, length) for layer in layers) / length
    latent = any(layer.kind == "latent" for layer in layers)
    return Account(
        engine="llama.cpp",
        share_name="-c (context)",
        share_ratio=1.0,
        total=device,
        weights=loaded,
        activation=buffers,
        graphs=Term(0.0),
        other=other,
        available=device - loaded - buffers - other if device is not None else None,
        left=None,
        cache=FixedCells(cell_bytes=cell, tokens=length) if cell else None,
        cell_ratio=(1 / LATENT_COPY_RATIO, 1.0) if latent else (1.0, 1.0),
        length_tokens=length,
        length_given=case.max_model_len is not None,
        spills=True,
        method="interpolated",
    )


def _layer_bytes(layer: LayerCache, length: int) -> float:
    """All cells of these layers, in bytes. Sliding layers keep window and step, padded."""
    if layer.kind == "state":
        return float(layer.stage_layers * layer.state_bytes)
    cells = length
    if layer.kind in ("sliding", "chunked"):
        window = -(-(layer.window_tokens + STEP_TOKENS) // PADDING_CELLS) * PADDING_CELLS
        cells = min(length, window)
    copy = LATENT_COPY_RATIO if layer.kind == "latent" else 1.0
    return layer.stage_layers * layer.bytes_per_token * cells * copy


def _buffers(case: Case, length: int) -> Term:
    """The step's logits in float32, and its scores where flash attention is off."""
    logits = STEP_TOKENS * case.shape.vocabulary_size * 4.0
    scores = STEP_TOKENS * length * case.shape.attention_heads * 4.0
    return Term(1.05 * logits, 0.1 * logits + ATTENTION_DEVIATION_RATIO * scores)

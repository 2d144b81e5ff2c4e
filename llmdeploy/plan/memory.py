"""What a release takes of its device's memory, and what is left for the KV cache."""

from dataclasses import dataclass
from typing import Literal

from llmdeploy.model import ModelShape
from llmdeploy.service import Lengths
from llmdeploy.store import Manifest

PAGE_TOKENS = 32
"""KV is given out in pages; 32 tokens are a whole number of the embedded engine's pages.

Source: transformers 5.24 continuous batching `page_size`, engine/batch.py."""
KEPT_FACTOR = 2
"""KV on CPU over what running requests take: half holds prefixes of ended ones; our choice, since
at 23 kB a token memory is not what a 135M model lacks."""
ELEMENT_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
QUANTIZED_BYTES = {"int8": 1.0, "nf4": 0.5}
"""Bytes per weight. Source: the documents: 4 bits take a quarter of 16."""
NF4_SCALE_BYTES = 4 / 64
INT8_ROW_SCALE_BYTES = 4
"""One float32 per 64 weights (nf4), one per row (int8). Source: bitsandbytes 0.50 `QuantState`,
`Int8Params`; SmolLM2-135M measured: 105 MiB (nf4), 155 MiB (int8), tests/plan/test_memory.py."""
PROCESS_BYTES = 560 * 2**20
"""A worker process without its weights: torch, transformers, allocator.

Source: measured, two Zen 4 cores, torch 2.13.0+cpu, transformers 5.24: 1,068 MiB resident after
loading SmolLM2-135M, less two copies of 256.6 MiB."""
WORKSPACE_BYTES = 352 * 2**20
"""What a worker's allocator grows by while it decodes up to 32 requests.

Source: same machine: 114 to 378 MiB over the resident size before the first request."""
API_BYTES = 160 * 2**20
"""The endpoint's own process. Source: same machine: 89 MiB idle."""
CUDA_PROCESS_BYTES = 1 * 2**30
"""CUDA context, libraries and allocator on the card; assumed, not measured."""
QUANTIZED_LOADING_BYTES = int(1.1e9)
"""What loading takes for a while over what stays. Source: bitsandbytes 0.50.2 with SmolLM2-135M:
0.7 to 1.1 GB over the footprint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerics:
    """How weights and KV are held."""

    dtype: Literal["bfloat16", "float16", "float32"]
    quantization: Literal["none", "int8", "nf4"]

    @property
    def element_bytes(self) -> int:
        return ELEMENT_BYTES[self.dtype]

    @property
    def bytes_per_weight(self) -> float:
        """The documents' figure: of the quantisation, else of the dtype."""
        return QUANTIZED_BYTES.get(self.quantization, float(self.element_bytes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Bytes of one replica, all its workers together, before any KV."""

    weights_bytes: int
    packed_bytes: int
    processes_bytes: int
    workspace_bytes: int
    loading_bytes: int
    """More than the rest, only while the weights are read."""

    @property
    def fixed_bytes(self) -> int:
        """All that stays while the replica serves."""
        return self.weights_bytes + self.packed_bytes + self.processes_bytes + self.workspace_bytes

    @property
    def peak_loading_bytes(self) -> int:
        """All that is there while weights are read: no workspace and no KV yet."""
        return self.fixed_bytes - self.workspace_bytes + self.loading_bytes


def kv_bytes_per_token(shape: ModelShape, numerics: Numerics) -> int:
    """KV cache of one token over all layers, in bytes: layers x 2 (K, V) x KV heads x head_dim
    x bytes per element. Ranks of a tensor-parallel group divide it between them.

    Source: grouped-query attention, arXiv 2305.13245; SmolLM2-135M in tests/plan/test_memory.py.
    """
    return shape.layers * 2 * shape.kv_heads * shape.head_dim * numerics.element_bytes


def weights_bytes(manifest: Manifest, numerics: Numerics) -> int:
    """One copy of the weights as the engine holds them, in bytes.

    Quantisation shrinks the layers' matrices only; vocabulary tables and norms keep the dtype.
    Source: transformers 5.24 `BitsAndBytesConfig` (lm_head and embeddings are skipped).
    """
    element_bytes = numerics.element_bytes
    if numerics.quantization == "none":
        stored = numerics.dtype == manifest.dtype
        return manifest.weights_bytes if stored else manifest.parameters * element_bytes
    matrix = manifest.matrix_parameters
    rest_bytes = (manifest.parameters - matrix) * element_bytes
    if numerics.quantization == "nf4":
        return rest_bytes + round(matrix * (QUANTIZED_BYTES["nf4"] + NF4_SCALE_BYTES))
    rows = matrix // manifest.shape.hidden_size
    return rest_bytes + matrix + rows * INT8_ROW_SCALE_BYTES


def footprint(
    manifest: Manifest,
    numerics: Numerics,
    *,
    kind: str,
    workers: int,
    ranks: int,
    batch: int,
    batched_tokens: int,
) -> Footprint:
    """Bytes of a replica with that many workers of that many ranks, each decoding `batch`.

    On CPU each unquantised worker also keeps its matrices packed for its products, a second copy
    of the weights. Source: engine/linear.py, engine/limits.py `memory_need`.
    """
    copy_bytes = weights_bytes(manifest, numerics)
    packs = kind == "cpu" and numerics.quantization == "none" and ranks == 1
    process_bytes = PROCESS_BYTES if kind == "cpu" else CUDA_PROCESS_BYTES
    steps_bytes = step_bytes(manifest.shape, batch=batch, batched_tokens=batched_tokens)
    return Footprint(
        weights_bytes=copy_bytes * workers,
        packed_bytes=copy_bytes * workers if packs else 0,
        processes_bytes=process_bytes * workers * ranks + (API_BYTES if kind == "cpu" else 0),
        workspace_bytes=(WORKSPACE_BYTES + steps_bytes) * workers * ranks,
        loading_bytes=0 if numerics.quantization == "none" else QUANTIZED_LOADING_BYTES * workers,
    )


def step_bytes(shape: ModelShape, *, batch: int, batched_tokens: int) -> int:
    """Activations of a step in bytes: tokens x (6 hidden + 3 intermediate) x 4, and logits of
    the step's requests in float32 twice (as computed and as sampled from).

    Source: llama's layer: residual, norm, q, k, v, attention output; gate, up, product.
    """
    layer = batched_tokens * (6 * shape.hidden_size + 3 * shape.intermediate_size) * 4
    return layer + batch * shape.vocabulary_size * 4 * 2


def pages(tokens: float) -> int:
    """The tokens rounded up to whole pages."""
    return -(-int(tokens) // PAGE_TOKENS) * PAGE_TOKENS


def kv_capacity_tokens(
    budget_bytes: int, kv_per_token: int, *, workers: int, needed_tokens: int
) -> int:
    """Tokens the replica's KV cache holds: what is needed, as far as the budget goes, in pages
    of every worker."""
    per_worker = max(0, budget_bytes) // kv_per_token // workers // PAGE_TOKENS * PAGE_TOKENS
    return min(per_worker, pages(-(-needed_tokens // workers))) * workers


def useful_tokens(
    kind: str, *, batch: int, workers: int, max_model_len: int, lengths: tuple[Lengths, Lengths]
) -> int:
    """KV tokens beyond which more are no use, over all workers of a replica.

    A card's memory lies idle otherwise, so there every request may reach `max_model_len`. A CPU's
    memory serves other programs too: there every request may reach the 95th percentile of prompt
    and output at once, with as much again for prefixes kept from ended requests, and one request a
    worker the whole `max_model_len`.
    """
    whole = batch * pages(max_model_len)
    if kind == "cuda":
        return whole
    usual = pages(min(max_model_len, sum(length.p95 for length in lengths)))
    return min(whole, max(KEPT_FACTOR * batch * usual, workers * pages(max_model_len)))

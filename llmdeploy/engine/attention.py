"""Attention of a packed step on CPU: every sequence apart, decode rows batched by length."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

NAME = "llmdeploy_flash_varlen"
"""Holds "flash": the manager then builds no (queries x keys) mask and repeats no KV heads."""

_SHORT_ALONE_TOKENS = 512
"""Up to this length a single sequence is faster in SDPA, and needs no padding there."""

_LONGEST_PRODUCT = 256 * 512
"""Query rows x keys up to which prefill attention is written out as two products."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageShape:
    """The paged cache as one layer sees it: per page, rows of head_dim by KV head, then token."""

    kv_heads: int
    page_tokens: int
    head_dim: int
    layers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedSequence:
    """One sequence of a step: its query rows and, in blocks of the cache, where its past lies."""

    first_row: int
    rows: int
    length: int
    blocks: Sequence[int]

    @property
    def past(self) -> int:
        """Tokens that were in the cache before this step."""
        return self.length - self.rows


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeGroup:
    """Sequences with one query row each and similar lengths, padded to whole pages."""

    rows: Any
    """slice or (sequences,) int64: which rows of the step."""
    sequences: int
    pages: torch.Tensor
    """(2 x sequences x KV heads x pages,) int64: K pages, then V pages."""
    length: int
    mask: torch.Tensor | None
    """(sequences, 1, length), 0 or -inf; None where nothing is padded or the sequence is alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillSpan:
    """One sequence with several query rows; `pages` is None where it has no past."""

    rows: slice
    length: int
    pages: torch.Tensor | None
    mask: torch.Tensor
    """(rows, length), 0 or -inf."""


@dataclass(slots=True)
class Packing:
    """How one step's tokens lie in its packed tensors, computed once for all layers."""

    groups: tuple[DecodeGroup, ...]
    spans: tuple[PrefillSpan, ...]
    write_rows: torch.Tensor
    """(tokens x 2 x KV heads,) int64: where each token's K rows and V rows go."""
    rotation: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None
    """Filled by the first layer: cos and the two signed sin halves, for Q, K and V heads."""


@dataclass(slots=True)
class CurrentStep:
    """The step under way; the layers read it, the batch sets it before each forward pass."""

    packing: Packing | None = None


def pack(
    sequences: Sequence[PackedSequence],
    write_index: torch.Tensor,
    *,
    shape: PageShape,
    dtype: torch.dtype,
) -> Packing:
    """The packing of a step. `write_index`: (tokens,) int64 rows as the manager counts them.

    Inside a page the rows are kept by KV head first, so that one gather brings a sequence's K of a
    head as one contiguous matrix: batched products over such matrices took 140 us where SDPA took
    400 us (16 sequences of 160 tokens, one core).
    """
    decodes = sorted((s for s in sequences if s.rows == 1), key=lambda s: -s.length)
    groups = [_group(members, shape=shape, dtype=dtype) for members in _by_length(decodes)]
    spans = [_span(s, shape=shape, dtype=dtype) for s in sequences if s.rows > 1]
    page, heads = shape.page_tokens, shape.kv_heads
    first = (
        torch.div(write_index, page, rounding_mode="floor") * (heads * page) + write_index % page
    )
    rows = first[:, None] + torch.arange(2 * heads) * page
    return Packing(tuple(groups), tuple(spans), rows.reshape(-1))


def _by_length(decodes: list[PackedSequence]) -> list[list[PackedSequence]]:
    """Longest first, split where padding would more than double a sequence's work."""
    groups: list[list[PackedSequence]] = []
    for sequence in decodes:
        if groups and (sequence.length * 2 > groups[-1][0].length or groups[-1][0].length < 64):
            groups[-1].append(sequence)
        else:
            groups.append([sequence])
    return groups


def _pages(blocks: torch.Tensor, *, shape: PageShape) -> torch.Tensor:
    """(2 x sequences x KV heads x pages,) of `blocks` (sequences, pages): K, then V."""
    first = blocks * (2 * shape.layers * shape.kv_heads)
    keys = first[:, None, :] + torch.arange(shape.kv_heads)[None, :, None]
    return torch.stack((keys, keys + shape.kv_heads)).reshape(-1)


def _group(members: list[PackedSequence], *, shape: PageShape, dtype: torch.dtype) -> DecodeGroup:
    pages = -(-members[0].length // shape.page_tokens)
    tables = [[*s.blocks[:pages], *[0] * (pages - len(s.blocks))] for s in members]
    lengths = [s.length for s in members]
    alone = len(members) == 1 and lengths[0] <= _SHORT_ALONE_TOKENS
    padded = pages * shape.page_tokens
    mask = None
    if not alone and min(lengths) < padded:
        past_end = torch.arange(padded) >= torch.tensor(lengths)[:, None]
        mask = torch.zeros(len(members), padded, dtype=dtype).masked_fill_(past_end, -torch.inf)
        mask = mask[:, None, :]
    rows = [s.first_row for s in members]
    in_order = rows == list(range(rows[0], rows[0] + len(rows)))
    return DecodeGroup(
        rows=slice(rows[0], rows[0] + len(rows)) if in_order else torch.tensor(rows),
        sequences=len(members),
        pages=_pages(torch.tensor(tables), shape=shape),
        length=lengths[0] if alone else padded,
        mask=mask,
    )


def _span(sequence: PackedSequence, *, shape: PageShape, dtype: torch.dtype) -> PrefillSpan:
    pages = None
    if sequence.past:
        blocks = sequence.blocks[: -(-sequence.length // shape.page_tokens)]
        pages = _pages(torch.tensor([list(blocks)]), shape=shape)
    return PrefillSpan(
        rows=slice(sequence.first_row, sequence.first_row + sequence.rows),
        length=sequence.length,
        pages=pages,
        mask=causal_mask(sequence.rows, sequence.length, dtype=dtype),
    )


def causal_mask(
    rows: int, length: int, *, dtype: torch.dtype, window: int | None = None
) -> torch.Tensor:
    """(rows, length) of 0 and -inf: the last row sees all keys, the one before all but the last."""
    distance = torch.arange(length - rows, length)[:, None] - torch.arange(length)[None, :]
    hidden = distance < 0 if window is None else (distance < 0) | (distance >= window)
    return torch.zeros(rows, length, dtype=dtype).masked_fill_(hidden, -torch.inf)


def attend_decode(query: torch.Tensor, gathered: torch.Tensor, group: DecodeGroup) -> torch.Tensor:
    """(sequences, heads x head_dim) of scaled `query` (sequences, heads, head_dim).

    `gathered`: (2, sequences x KV heads, tokens, head_dim), the group's K and V.
    """
    sequences, heads, head_dim = query.shape
    keys, values = gathered[0][:, : group.length], gathered[1][:, : group.length]
    matrices = query.reshape(keys.shape[0], -1, head_dim)
    if sequences == 1 and group.length <= _SHORT_ALONE_TOKENS:
        alone = scaled_dot_product_attention(matrices[None], keys[None], values[None], scale=1.0)
        return alone.view(1, heads * head_dim)
    scores = torch.bmm(matrices, keys.transpose(1, 2))
    if group.mask is not None:
        scores.view(sequences, heads, group.length).add_(group.mask)
    return torch.bmm(torch.softmax(scores, -1), values).view(sequences, heads * head_dim)


def attend_prefill(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, span: PrefillSpan
) -> torch.Tensor:
    """(heads, rows, head_dim) of scaled `query` (heads, rows, head_dim).

    `keys`, `values`: (KV heads, length, head_dim). Short products are faster written out than in
    SDPA's tiles (128 x 128: 380 against 630 us on one core); long ones are not, and take memory.
    """
    heads, rows, head_dim = query.shape
    kv_heads = keys.shape[0]
    if rows * span.length > _LONGEST_PRODUCT:
        return scaled_dot_product_attention(
            query[None],
            keys[None],
            values[None],
            attn_mask=span.mask if span.pages is not None else None,
            is_causal=span.pages is None,
            scale=1.0,
            enable_gqa=heads != kv_heads,
        )[0]
    scores = torch.bmm(query.reshape(kv_heads, -1, head_dim), keys.transpose(1, 2))
    weights = scores.view(heads, rows, -1).add_(span.mask).softmax(-1)
    return torch.bmm(weights.view(kv_heads, -1, span.length), values).view(heads, rows, head_dim)


def varlen_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **step: Any,
) -> tuple[torch.Tensor, None]:
    """(1, tokens, heads, head_dim): attention of any model's layer, one sequence after the other.

    `query`: (1, heads, tokens, head_dim), `key`, `value`: (1, KV heads, keys, head_dim), packed
    as `cu_seq_lens_q` and `cu_seq_lens_k` of the manager say.
    """
    ends_q, ends_k = step["cu_seq_lens_q"].tolist(), step["cu_seq_lens_k"].tolist()
    grouped = query.shape[1] != key.shape[1]
    window = step.get("sliding_window")
    out = torch.empty_like(query)
    for first, last, start, end in zip(ends_q, ends_q[1:], ends_k, ends_k[1:], strict=False):
        rows, length = last - first, end - start
        mask = None
        if rows > 1 and (length > rows or (window is not None and window < length)):
            mask = causal_mask(rows, length, dtype=query.dtype, window=window)
        out[:, :, first:last] = scaled_dot_product_attention(
            query[:, :, first:last],
            key[:, :, start:end],
            value[:, :, start:end],
            attn_mask=mask,
            is_causal=rows > 1 and mask is None,
            scale=scaling,
            enable_gqa=grouped,
        )
    return out.transpose(1, 2), None


def register() -> None:
    """Makes `NAME` an attention implementation of transformers, without a mask of its own."""
    no_mask: Callable[..., None] = lambda *_, **__: None  # noqa: E731 - registries want a callable
    ALL_ATTENTION_FUNCTIONS.register(NAME, varlen_attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, no_mask)

"""Packing a step and attending in it, against plain attention over each sequence."""

import pytest
import torch

from llmdeploy.engine.attention import (
    PackedSequence,
    PageShape,
    PrefillSpan,
    attend_decode,
    attend_prefill,
    causal_mask,
    pack,
    varlen_attention,
)

SHAPE = PageShape(kv_heads=2, page_tokens=4, head_dim=8, layers=3)
HEADS = 6


def plain(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """(heads, rows, head_dim): softmax attention written out; the last row sees all keys."""
    copies = query.shape[0] // keys.shape[0]
    keys, values = keys.repeat_interleave(copies, 0), values.repeat_interleave(copies, 0)
    mask = causal_mask(query.shape[1], keys.shape[1], dtype=query.dtype)
    return torch.softmax(query @ keys.transpose(1, 2) + mask, -1) @ values


def sequence(first_row: int, rows: int, length: int, *blocks: int) -> PackedSequence:
    return PackedSequence(first_row=first_row, rows=rows, length=length, blocks=blocks)


def write_index(*tokens: tuple[int, int]) -> torch.Tensor:
    """As the manager counts: a block is 2 x layers pages of 4 rows, the offset within one page."""
    return torch.tensor([block * 2 * 3 * 4 + offset for block, offset in tokens])


def test_a_written_token_is_found_by_the_pages_of_its_sequence():
    cache = torch.zeros(9 * 6, 2, 4, 8)  # 9 blocks of 6 pages, each (KV head, token, head_dim)
    packing = pack(
        [sequence(0, 1, 7, 2, 5), sequence(1, 1, 2, 8)],
        write_index((5, 2), (8, 1)),
        shape=SHAPE,
        dtype=torch.float32,
    )
    written = torch.arange(2 * 4 * 8.0).view(2, 4, 8)  # per token: K of 2 heads, V of 2 heads
    cache.view(-1, 8).index_copy_(0, packing.write_rows, written.view(-1, 8))
    (group,) = packing.groups
    read = cache.view(-1, 32).index_select(0, group.pages).view(2, 2, 2, -1, 8)
    keys, values = read
    assert torch.equal(keys[0, :, 6], written[0, :2])  # token 6 is at page 1, offset 2
    assert torch.equal(values[0, :, 6], written[0, 2:])
    assert torch.equal(keys[1, :, 1], written[1, :2])
    assert torch.equal(values[1, :, 1], written[1, 2:])


def test_decode_rows_are_grouped_by_length():
    lengths = [300, 290, 100, 99]
    blocks = range(1, 80)
    sequences = [sequence(i, 1, n, *blocks) for i, n in enumerate(lengths)]
    packing = pack(sequences, torch.arange(4), shape=SHAPE, dtype=torch.float32)
    assert [group.sequences for group in packing.groups] == [2, 2]
    assert packing.spans == ()


def test_rows_out_of_order_keep_their_place():
    sequences = [sequence(0, 1, 5, 1, 2), sequence(1, 1, 9, 3, 4, 5), sequence(2, 1, 6, 6, 7)]
    packing = pack(sequences, torch.arange(3), shape=SHAPE, dtype=torch.float32)
    (group,) = packing.groups
    assert group.rows.tolist() == [1, 2, 0]


@pytest.mark.parametrize("lengths", [[5], [5, 9, 2], [8, 8], [600], [600, 590]])
def test_batched_decode_equals_plain_attention(lengths):
    torch.manual_seed(0)
    pages = -(-max(lengths) // 4)
    sequences = [
        sequence(i, 1, n, *range(1 + i * pages, 1 + (i + 1) * pages)) for i, n in enumerate(lengths)
    ]
    packing = pack(sequences, torch.arange(len(lengths)), shape=SHAPE, dtype=torch.float32)
    (group,) = packing.groups
    cache = torch.randn((1 + pages * len(lengths)) * 6 * 2, 4 * 8)
    gathered = cache.index_select(0, group.pages).view(2, len(lengths) * 2, -1, 8)
    query = torch.randn(len(lengths), HEADS, 8)
    order = group.rows if isinstance(group.rows, torch.Tensor) else range(len(lengths))
    out = attend_decode(query, gathered, group)
    for at, row in enumerate(order):
        keys, values = gathered.view(2, len(lengths), 2, -1, 8)[:, at, :, : lengths[row]]
        expected = plain(query[at][:, None], keys, values)
        assert torch.allclose(out[at].view(HEADS, 1, 8), expected, atol=1e-5)


@pytest.mark.parametrize(("rows", "length"), [(6, 6), (3, 11), (700, 700), (600, 700)])
def test_prefill_equals_plain_attention(rows, length):
    torch.manual_seed(0)
    query = torch.randn(HEADS, rows, 8)
    keys, values = torch.randn(2, 2, length, 8)
    span = PrefillSpan(
        rows=slice(0, rows),
        length=length,
        pages=None if rows == length else torch.zeros(1, dtype=torch.int64),
        mask=causal_mask(rows, length, dtype=torch.float32),
    )
    out = attend_prefill(query, keys, values, span)
    assert torch.allclose(out, plain(query, keys, values), atol=1e-4)


@pytest.mark.parametrize("window", [None, 4])
def test_any_models_layer_attends_within_each_sequence_and_window(window):
    torch.manual_seed(0)
    counts = [(3, 3), (1, 7), (2, 6), (5, 5)]  # query rows and keys of four sequences
    ends_q = torch.tensor([0, *torch.tensor([q for q, _ in counts]).cumsum(0)])
    ends_k = torch.tensor([0, *torch.tensor([k for _, k in counts]).cumsum(0)])
    query = torch.randn(1, HEADS, 11, 8)
    keys, values = torch.randn(2, 1, 2, 21, 8)
    # the manager hands a windowed layer only the keys that its single rows may see
    counts_seen = counts if window is None else [(3, 3), (1, 7), (2, 6), (5, 5)]
    out, _ = varlen_attention(
        None, query, keys, values, None, scaling=1.0,
        cu_seq_lens_q=ends_q, cu_seq_lens_k=ends_k, sliding_window=window,
    )  # fmt: skip
    for (rows, length), q, k in zip(counts_seen, ends_q.tolist(), ends_k.tolist(), strict=False):
        if window and rows == 1:
            continue
        mask = causal_mask(rows, length, dtype=torch.float32, window=window)
        expanded = keys[0, :, k : k + length].repeat_interleave(3, 0)
        scores = query[0, :, q : q + rows] @ expanded.transpose(1, 2) + mask
        expected = torch.softmax(scores, -1) @ values[0, :, k : k + length].repeat_interleave(3, 0)
        assert torch.allclose(out[0, q : q + rows].transpose(0, 1), expected, atol=1e-5)


def test_a_causal_mask_lets_the_last_row_see_all_keys():
    hidden = torch.isinf(causal_mask(2, 4, dtype=torch.float32)).tolist()
    assert hidden == [[False, False, False, True], [False, False, False, False]]
    hidden = torch.isinf(causal_mask(2, 4, dtype=torch.float32, window=2)).tolist()
    assert hidden == [[True, False, False, True], [True, True, False, False]]

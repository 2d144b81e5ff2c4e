"""Bytes of weights, KV and processes, with the sums written out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmdeploy.plan.memory import (
    API_BYTES,
    PROCESS_BYTES,
    WORKSPACE_BYTES,
    Numerics,
    footprint,
    kv_bytes_per_token,
    kv_capacity_tokens,
    pages,
    step_bytes,
    useful_tokens,
    weights_bytes,
)
from llmdeploy.service import Lengths

from .cases import EIGHT_BILLION, MANIFEST, MATRIX, SHAPE

BF16 = Numerics(dtype="bfloat16", quantization="none")
MIB = 2**20


def test_a_token_of_smollm2_takes_23040_bytes_of_kv():
    # 30 layers x 2 (K, V) x 3 KV heads x 64 x 2 bytes
    assert kv_bytes_per_token(SHAPE, BF16) == 23_040


def test_a_token_of_an_8b_model_takes_131072_bytes_of_kv():
    # 32 layers x 2 x 8 KV heads x 128 x 2 bytes
    assert kv_bytes_per_token(EIGHT_BILLION.shape, BF16) == 131_072


def test_float32_doubles_kv_and_weights():
    held = Numerics(dtype="float32", quantization="none")
    assert kv_bytes_per_token(SHAPE, held) == 46_080
    assert weights_bytes(MANIFEST, held) == 4 * 134_515_008


def test_plain_weights_are_what_the_headers_list():
    assert weights_bytes(MANIFEST, BF16) == 269_030_016 == 2 * 134_515_008


def test_int8_shrinks_the_matrices_alone():
    # 106,168,320 matrix weights x 1 B + 184,320 rows x 4 B + 28,346,688 others x 2 B
    assert MATRIX == 106_168_320
    found = weights_bytes(MANIFEST, Numerics(dtype="bfloat16", quantization="int8"))
    assert found == 106_168_320 + 184_320 * 4 + 28_346_688 * 2
    assert found / MIB == pytest.approx(155, rel=0.01)  # measured footprint: 155 MiB


def test_nf4_takes_half_a_byte_and_a_scale_for_64():
    # 106,168,320 x (0.5 + 4 / 64) B + 28,346,688 x 2 B
    found = weights_bytes(MANIFEST, Numerics(dtype="bfloat16", quantization="nf4"))
    assert found == 59_719_680 + 56_693_376
    scales = 106_168_320 * 4 / 64
    assert (found - scales) / MIB == pytest.approx(105, rel=0.01)  # measured, scales not counted


def test_the_documents_quarter_holds_for_4_bits():
    four = Numerics(dtype="bfloat16", quantization="nf4").bytes_per_weight
    assert four == BF16.bytes_per_weight / 4


def made(held=BF16, *, kind="cpu", workers=1, ranks=1, batch=32, batched_tokens=512):
    return footprint(
        MANIFEST, held, kind=kind, workers=workers, ranks=ranks, batch=batch,
        batched_tokens=batched_tokens,
    )  # fmt: skip


def test_one_cpu_worker_holds_its_weights_twice():
    found = made()
    assert found.weights_bytes == found.packed_bytes == 269_030_016
    assert found.processes_bytes == PROCESS_BYTES + API_BYTES
    # resident size seen on two Zen 4 cores: 1,068 MiB loaded, less than 1,500 MiB busy without KV
    assert 1068 * MIB < found.fixed_bytes - API_BYTES < 1500 * MIB


def test_each_worker_has_a_copy_of_everything_but_the_endpoint():
    one, four = made(), made(workers=4)
    assert four.fixed_bytes - API_BYTES == 4 * (one.fixed_bytes - API_BYTES)


@pytest.mark.parametrize(
    ("held", "ranks", "kind"),
    [
        (Numerics(dtype="bfloat16", quantization="nf4"), 1, "cpu"),
        (BF16, 3, "cpu"),
        (BF16, 1, "cuda"),
    ],
)
def test_quantised_split_or_cuda_weights_are_not_packed(held, ranks, kind):
    assert made(held, ranks=ranks, kind=kind).packed_bytes == 0


def test_loading_quantised_weights_takes_more_for_a_while():
    found = made(Numerics(dtype="bfloat16", quantization="int8"))
    assert found.peak_loading_bytes == found.fixed_bytes - found.workspace_bytes + 1_100_000_000


def test_a_step_takes_activations_by_tokens_and_logits_by_vocabulary():
    # 512 tokens x (6 x 576 + 3 x 1536) x 4 B + 32 requests x 49,152 x 4 B x 2
    assert step_bytes(SHAPE, batch=32, batched_tokens=512) == 512 * 8064 * 4 + 32 * 49152 * 8
    assert made().workspace_bytes == WORKSPACE_BYTES + step_bytes(
        SHAPE, batch=32, batched_tokens=512
    )


@pytest.mark.parametrize(("tokens", "rounded"), [(1, 32), (32, 32), (33, 64), (2048, 2048)])
def test_kv_comes_in_pages_of_32_tokens(tokens, rounded):
    assert pages(tokens) == rounded


def test_kv_is_what_fits_and_no_more_than_is_of_use():
    # 1 GiB / 23,040 B = 46,603 tokens, 23,301 a worker, 728 pages of 32 = 23,296
    assert kv_capacity_tokens(2**30, 23_040, workers=2, needed_tokens=10**6) == 2 * 23_296
    assert kv_capacity_tokens(2**30, 23_040, workers=2, needed_tokens=1000) == 2 * 512


def test_more_kv_than_all_requests_at_full_length_is_of_no_use():
    lengths = (Lengths(mean=128, p95=512), Lengths(mean=64, p95=256))

    def useful(kind, **changes):
        asked = {"batch": 8, "workers": 2, "max_model_len": 2048} | changes
        return useful_tokens(kind, lengths=lengths, **asked)

    assert useful("cuda") == 8 * 2048
    assert useful("cpu") == 2 * 8 * 768  # p95 of prompt and output, and as much for kept prefixes
    assert useful("cpu", max_model_len=800) == 8 * 800
    assert useful("cpu", batch=2) == 2 * 2048  # one whole request a worker


@given(
    budget=st.integers(0, 10**12), more=st.integers(0, 10**11), workers=st.integers(1, 64),
    needed=st.integers(1, 10**8), per_token=st.integers(1, 10**6),
)  # fmt: skip
def test_a_larger_budget_never_gives_less_kv(budget, more, workers, needed, per_token):
    small = kv_capacity_tokens(budget, per_token, workers=workers, needed_tokens=needed)
    large = kv_capacity_tokens(budget + more, per_token, workers=workers, needed_tokens=needed)
    assert 0 <= small <= large
    assert small % (32 * workers) == 0
    assert small * per_token <= budget


@given(
    workers=st.integers(1, 64), batch=st.integers(1, 256), tokens=st.integers(16, 65536),
    kind=st.sampled_from(["cpu", "cuda"]),
    quantization=st.sampled_from(["none", "int8", "nf4"]),
)  # fmt: skip
def test_more_of_anything_never_takes_less_memory(workers, batch, tokens, kind, quantization):
    held = Numerics(dtype="bfloat16", quantization=quantization)
    one = made(held, kind=kind, workers=workers, batch=batch, batched_tokens=tokens)
    for change in ({"workers": workers + 1}, {"batch": batch + 1}, {"batched_tokens": tokens + 1}):
        asked = {"workers": workers, "batch": batch, "batched_tokens": tokens} | change
        assert made(held, kind=kind, **asked).fixed_bytes >= one.fixed_bytes

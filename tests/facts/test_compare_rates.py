"""Measured rates against the last good run: beyond their spread they are told, within it not."""

from typing import Any

import pytest

from llmdeploy.facts.active.measured import (
    AllReduce,
    DiskRate,
    LinkRate,
    Measured,
    Pattern,
    PeerCopy,
    Product,
    Sample,
)
from llmdeploy.facts.bundle import Bundle
from llmdeploy.facts.compare import changes

from .hosts import facts

LINK = LinkRate(
    source="a", target="b", streams=4, bytes_per_s=1e9, latency_p50_s=2e-4, at_s=1.0,
)  # fmt: skip
DISK = DiskRate(
    host="a", folder="/srv/models", read_bytes=1 << 28, bytes_per_s=2e9, past_cache="O_DIRECT",
    of="a nameless file", correct=True, at_s=1.0,
)  # fmt: skip
PRODUCT = Product(
    host="a", device="cuda:0", name="NVIDIA H100", dtype="bf16", size=8192, flops_per_s=6e14,
    wrong=0, at_s=1.0,
)  # fmt: skip
PATTERN = Pattern(
    host="a", device="cuda:0", tested_bytes=1 << 30, wrong=0, read_bytes_per_s=3e12, at_s=1.0
)
COPY = PeerCopy(
    host="a", source="cuda:0", target="cuda:1", direct=True, bytes_per_s=3e11, wrong=0, at_s=1.0
)


def _group(*durations_s: float) -> AllReduce:
    samples = tuple(
        Sample(size_bytes=size, duration_s=duration_s)
        for size, duration_s in zip((1 << 10, 1 << 20), durations_s, strict=True)
    )
    return AllReduce(
        hosts=("a", "b"), backend="nccl", device="NVIDIA H100", ranks=16, samples=samples,
        states=(), at_s=1.0,
    )  # fmt: skip


GOOD: dict[str, Any] = {
    "links": (LINK,), "disks": (DISK,), "products": (PRODUCT,), "patterns": (PATTERN,),
    "copies": (COPY,), "all_reduces": (_group(1e-4, 1e-3),),
}  # fmt: skip


def _bundle(**changed: Any) -> Bundle:
    measured = Measured(level="deep", begun_s=1.0, duration_s=9.0, **{**GOOD, **changed})
    said = tuple(facts().model_copy(update={"host": name}) for name in ("a", "b"))
    return Bundle(schema=1, llmdeploy="0.1.0", hosts=said, measured=measured)


def _told(**changed: Any) -> list[tuple[str, str, str, str]]:
    return [(c.host, c.fact, c.before, c.now) for c in changes(_bundle(), _bundle(**changed))]


@pytest.mark.parametrize(
    ("kind", "one", "field", "within", "beyond", "fact"),
    [
        ("products", PRODUCT, "flops_per_s", 5.2e14, 5e14, "products/cuda:0/bf16 8192"),
        ("patterns", PATTERN, "read_bytes_per_s", 2.6e12, 2.5e12, "memory read/cuda:0"),
        ("copies", COPY, "bytes_per_s", 2.6e11, 2.5e11, "copies/cuda:0 to cuda:1"),
        ("disks", DISK, "bytes_per_s", 1.5e9, 1.3e9, "disks//srv/models (O_DIRECT)"),
        ("links", LINK, "bytes_per_s", 7.5e8, 6e8, "links/to b"),
        ("links", LINK, "latency_p50_s", 3.9e-4, 4.1e-4, "links/to b/round trip"),
    ],
)
def test_a_rate_is_told_beyond_its_spread_and_not_within(
    kind: str, one: Any, field: str, within: float, beyond: float, fact: str
) -> None:
    assert _told(**{kind: (one.model_copy(update={field: within}),)}) == []
    told = _told(**{kind: (one.model_copy(update={field: beyond}),)})
    assert [(host, name) for host, name, _, _ in told] == [("a", fact)]


def test_both_values_and_their_ratio_stand_in_the_words() -> None:
    slow = LINK.model_copy(update={"bytes_per_s": 5e8, "latency_p50_s": 8e-4})
    assert _told(links=(slow,)) == [
        ("a", "links/to b", "1e+09", "5e+08 (50% of before)"),
        ("a", "links/to b/round trip", "0.2 ms", "0.8 ms (4.0 times)"),
    ]


def test_a_short_round_trip_may_double() -> None:
    near = LINK.model_copy(update={"latency_p50_s": 2e-5})
    before = _bundle(links=(near,))
    now = _bundle(links=(near.model_copy(update={"latency_p50_s": 6e-5}),))
    assert changes(before, now) == ()


def test_of_a_collective_the_size_that_slowed_most_is_told_once() -> None:
    assert _told(all_reduces=(_group(1.3e-4, 1.4e-3),)) == []
    told = _told(all_reduces=(_group(1.5e-4, 3e-3),))
    assert told == [("a", "all-reduce/nccl, 2 hosts, 16 ranks/1.0 MiB", "1 ms", "3 ms (3.0 times)")]


def test_faster_is_not_told() -> None:
    fast = PRODUCT.model_copy(update={"flops_per_s": 9e14})
    assert _told(products=(fast,), all_reduces=(_group(1e-5, 1e-5),)) == []


def test_what_is_not_comparable_is_not_told() -> None:
    """Another size, type or group, a wrong answer, or a run without tests."""
    other = PRODUCT.model_copy(update={"size": 1024, "flops_per_s": 1e12})
    wrong = PRODUCT.model_copy(update={"wrong": 3, "flops_per_s": 1e12})
    group = _group(1.0, 1.0).model_copy(update={"hosts": ("a", "c")})
    assert _told(products=(other, wrong), all_reduces=(group,)) == []
    assert changes(_bundle(), _bundle().model_copy(update={"measured": None})) == ()
    assert changes(_bundle().model_copy(update={"measured": None}), _bundle()) == ()

"""Distributions of token counts keep what they were made of."""

import random

import pytest

from llmdeploy.errors import InputError
from llmdeploy.simulate.lengths import as_listed, by_bins, by_mean, sample


@pytest.mark.parametrize(("mean", "p95"), [(1000, 3000), (128, 512), (64, 256), (100, 100)])
def test_mean_and_p95_are_kept_also_where_no_lognormal_has_both(mean: int, p95: int) -> None:
    lengths = by_mean(mean, p95=p95)
    assert lengths.mean_tokens == pytest.approx(mean, rel=0.01)
    assert lengths.quantile_tokens(0.95) == pytest.approx(p95, rel=0.015)
    drawn = [sample(lengths, random.Random(1)) for _ in range(3)]
    assert all(tokens >= 1 for tokens in drawn)


def test_the_square_mean_is_that_of_the_draws() -> None:
    lengths, draw = by_mean(1000, p95=2500), random.Random(1)
    drawn = [sample(lengths, draw) for _ in range(40_000)]
    assert sum(drawn) / len(drawn) == pytest.approx(lengths.mean_tokens, rel=0.02)
    square = sum(tokens**2 for tokens in drawn) / len(drawn)
    assert square == pytest.approx(lengths.square_mean, rel=0.06)


def test_a_histogram_is_even_within_its_bins() -> None:
    lengths = by_bins([0, 100, 300], [1, 1])
    assert lengths.mean_tokens == 125  # (50 + 200) / 2
    assert lengths.square_mean == pytest.approx((100**2 / 3 + (1e4 + 3e4 + 9e4) / 3) / 2)
    assert lengths.quantile_tokens(0.25) == 50
    assert lengths.quantile_tokens(0.75) == 200


def test_listed_lengths_are_their_own_distribution() -> None:
    lengths = as_listed([10, 10, 40])
    assert lengths.mean_tokens == 20
    assert lengths.square_mean == pytest.approx(600)  # (100 + 100 + 1600) / 3
    assert [lengths.quantile_tokens(share) for share in (0.3, 0.6, 0.9)] == [10, 10, 40]


@pytest.mark.parametrize(
    ("mean", "p95", "needed"),
    [(100, 50, "0 < mean <= p95"), (0, 50, "0 < mean"), (10, 200, "at most 57")],
)
def test_impossible_lengths_say_what_is_needed(mean: float, p95: float, needed: str) -> None:
    with pytest.raises(InputError, match=needed):
        by_mean(mean, p95=p95)


@pytest.mark.parametrize(
    ("edges", "weights"), [([0, 1], [1, 1]), ([2, 1], [1]), ([0, 1], [0]), ([0, 1, 2], [1, -1])]
)
def test_a_broken_histogram_is_refused(edges: list[float], weights: list[float]) -> None:
    with pytest.raises(InputError, match="rising edges"):
        by_bins(edges, weights)

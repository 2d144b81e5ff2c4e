"""Counted weights stay close to what engines log."""

import statistics

import pytest

from .rows import own, public
from .table import errors, quantile, render


def test_our_own_cases_are_within_two_percent():
    found = errors(own())
    assert statistics.median(found) < 0.005
    assert max(found) < 0.02


def test_public_logs_are_within_one_percent_for_half_and_five_for_nine_tenths(capsys):
    rows, _ = public()
    if not rows:
        pytest.skip("no public launch logs beside the repository")
    with capsys.disabled():
        print("\n" + render(rows, f"{len(rows)} public launch logs"))  # noqa: T201 - the table
    found = errors(rows)
    assert statistics.median(found) < 0.005
    assert quantile(found, 0.9) < 0.05

"""Memory estimates stay as close to what engines printed as the table says."""

import functools

import pytest

from .compare import compared, held_out, with_logged_weights
from .rows import KNOWLEDGE, own, public
from .table import fits, per_token, render, tokens

needs_logs = pytest.mark.skipif(
    not (KNOWLEDGE / "engine_memory_logs.jsonl").exists(),
    reason="the folder of public launch logs is not beside the repository",
)


@functools.cache
def logs():
    return compared(public())


def everything(_):
    return "all"


def test_our_own_cases():
    all_of = compared(own())
    assert [one.error for one in all_of if one.error] == []
    for family, errors in per_token(all_of).items():
        assert errors.quantile(1.0) < 0.01, family
    errors = tokens(all_of, everything)["all"]
    assert errors.median <= 0.02
    assert errors.quantile(0.9) <= 0.08
    assert errors.coverage >= 0.85
    assert fits(all_of)["wrong"] == []


def test_concurrency_as_printed():
    for one in compared(own()):
        if one.row.concurrency is not None:
            found = one.estimate.max_concurrency
            assert found.low * 0.99 <= one.row.concurrency <= found.high * 1.01, one.row.id


@needs_logs
def test_bytes_per_token_of_public_launches():
    groups = per_token(logs())
    assert groups["plain"].quantile(0.95) < 0.01
    assert groups["sliding"].quantile(0.9) < 0.01
    assert groups["hybrid"].median < 0.02


@needs_logs
def test_tokens_of_public_launches():
    """Device, fraction and length known; also with constants refitted without the model (device)
    and with the weights as printed, so that the rest of the account is measured alone."""
    all_of = logs()
    assert tokens(all_of, everything)["all"].median <= 0.02
    assert tokens(all_of, everything)["all"].quantile(0.87) <= 0.08
    by_weights = [with_logged_weights(one) for one in all_of]
    errors = tokens(by_weights, everything)["all"]
    assert errors.median <= 0.015
    assert 0.83 <= errors.coverage <= 0.97
    for group in (lambda one: one.row.model, lambda one: one.row.device):
        held = tokens(
            by_weights, everything, lambda one, group=group: held_out(all_of, one, group)
        )["all"]
        assert held.median <= 0.02
        assert held.quantile(0.87) <= 0.08


@needs_logs
def test_recent_versions_are_closest():
    groups = tokens(logs(), lambda one: f"{one.row.engine} {one.row.version_class}")
    assert groups["vllm 0.12-0.15"].median <= 0.02
    assert groups["vllm 0.12-0.15"].quantile(0.9) <= 0.08


@needs_logs
def test_clear_launches_are_judged_right():
    """Wrong ones are launches whose quantisation, version or neighbours the log does not say."""
    verdicts = fits(logs())
    judged = len(verdicts["right"]) + len(verdicts["wrong"])
    assert len(verdicts["right"]) / judged >= 0.88
    assert len(verdicts["open"]) <= 20
    exact = fits([one for one in logs() if one.row.id_known])
    assert len(exact["right"]) / (len(exact["right"]) + len(exact["wrong"])) >= 0.95


@needs_logs
def test_only_unknown_models_are_not_answered():
    for one in logs():
        assert not one.error or "model" in one.error, one.error


def test_the_table_has_a_section_for_each_grouping():
    text = render(own(), "our own cases")
    for section in (
        "by cache",
        "by engine and version",
        "by device",
        "constants without the model",
    ):
        assert section in text

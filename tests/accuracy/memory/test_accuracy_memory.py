"""Memory estimates stay as close to what engines printed as the table says."""

import dataclasses
import functools

import pytest

from .compare import compared, held_out, with_logged_weights
from .rows import GIB, KNOWLEDGE, own, public, told_version
from .table import fits, is_clear, per_token, render, tokens

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
    assert groups["hybrid"].quantile(1.0) < 0.01
    assert groups["hybrid, version unknown"].coverage == 1.0


@needs_logs
def test_tokens_of_public_launches():
    """Device, fraction and length known; also with constants refitted without the model (device)
    and with the weights as printed, so that the rest of the account is measured alone."""
    all_of = logs()
    assert tokens(all_of, everything)["all"].median <= 0.02
    assert tokens(all_of, everything)["all"].quantile(0.9) <= 0.08
    whole = tokens([one for one in all_of if one.row.command_known], everything)["all"]
    assert whole.median <= 0.02
    assert whole.quantile(0.9) <= 0.08
    assert 0.85 <= whole.coverage <= 0.97
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
    """The wrong ones are told one by one in table.py."""
    verdicts = fits(logs())
    judged = len(verdicts["right"]) + len(verdicts["wrong"])
    assert len(verdicts["right"]) / judged >= 0.95
    assert len(verdicts["open"]) <= 15
    assert len(verdicts["misnamed"]) <= 15
    clear = fits([one for one in logs() if is_clear(one)])
    assert clear["open"] == []
    assert len(clear["right"]) / (len(clear["right"]) + len(clear["wrong"])) >= 0.96


@needs_logs
def test_only_unknown_models_are_not_answered():
    for one in logs():
        assert not one.error or "model" in one.error, one.error


@pytest.mark.parametrize(
    ("core", "tokens_printed", "version"),
    [("V1", 75_840, "0.19.0"), ("V1", 297_600, None), ("V1", None, None), ("V0", None, "0.6.6")],
)
def test_a_version_is_told_by_what_a_log_prints(core, tokens_printed, version):
    """75,840 tokens are not 2.48 x 120,000 = 297,600: blocks over groups, as printed to 0.19."""
    logged = {
        "kv_cache_tokens": tokens_printed,
        "max_concurrency_x": 2.48,
        "max_concurrency_request_tokens": 120_000,
    }
    log = {"engine": "vllm", "engine_core": core, "logged": logged}
    assert told_version(log) == version


def test_a_launch_of_another_checkpoint_than_its_name_is_not_judged():
    (row, *_) = own()
    weights = compared([row])[0].estimate.weights_bytes.value
    for ratio, id_known, verdict in ((0.4, False, "misnamed"), (0.4, True, "right"),
                                     (0.9, False, "right")):  # fmt: skip
        one = dataclasses.replace(row, weights_bytes=ratio * weights, id_known=id_known)
        assert fits(compared([one]))[verdict] == [row.id]
    assert weights > GIB


def test_the_table_has_a_section_for_each_grouping():
    text = render(own(), "our own cases")
    for section in (
        "by cache",
        "by engine and version",
        "by device",
        "constants without the model",
    ):
        assert section in text

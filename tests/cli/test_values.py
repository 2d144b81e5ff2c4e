"""A value out of its range is answered with option, value, range and what to write."""

import pytest
from typer.testing import CliRunner

from llmdeploy.cli.app import app

LAUNCH = ("--model", "Qwen/Qwen3-8B", "--gpu", "rtx4090")
LOAD = ("--input-tokens", "100", "--output-tokens", "10", "--request-rate", "1/s")


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (
            ("simulate", "--replicas", "0"),
            "--replicas: found 0, needed a whole number, 1 or more",
            "give --replicas 1 or more, or leave it out",
        ),
        (
            ("simulate", "--max-queue", "-1"),
            "--max-queue: found -1, needed a whole number, 0 or more",
            "give --max-queue 0 or more, or leave it out",
        ),
        (
            ("logs", "chat", "--lines", "-5"),
            "--lines: found -5, needed a whole number, 0 or more",
            "give --lines 0 or more, or leave it out",
        ),
        (
            ("preflight", "examples/service.yaml", "--deadline", "0s"),
            "--deadline: found 0s, needed 1s or more",
            "write it like --deadline 30s",
        ),
        (
            ("keys", "add", "chat", "--client", "alice", "--expires", "90"),
            "--expires: found '90', needed a number with its unit, like 2s (units: ms, s, min, h, "
            "d)",
            "write it like --expires 90d",
        ),
        (
            ("estimate", *LAUNCH, "--tensor-parallel", "0"),
            "the command line: --tensor-parallel: found 0, needed greater than or equal to 1",
            "change --tensor-parallel to 1 or more",
        ),
        (
            ("estimate", *LAUNCH, "--memory-fraction", "1.5"),
            "the command line: --memory-fraction: found 1.5, needed less than or equal to 1",
            "change --memory-fraction to 1 or less",
        ),
        (
            ("estimate", *LAUNCH, "--concurrency", "0"),
            "the command line: --concurrency: found 0.0, needed greater than 0",
            "change --concurrency to more than 0",
        ),
        (
            ("simulate", *LAUNCH, *LOAD, "--peak-factor", "0.5"),
            "--peak-factor: found 0.5, needed 1 or more, at most 1000",
            "give the peak's rate over the day's mean, like --peak-factor 3",
        ),
        (
            ("simulate", *LAUNCH, *LOAD, "--input-p95", "3"),
            "--input-p95: found 3, needed the mean or more: --input-tokens is 100",
            "give --input-p95 100 or more, or leave it out",
        ),
    ],
    ids=lambda value: " ".join(value[:4]) if isinstance(value, tuple) else "",
)
def test_a_value_out_of_its_range_is_named_with_range_and_fix(words, error, hint):
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 2
    assert result.stderr.endswith(f"error: {error}\n\nhint: {hint}\n")

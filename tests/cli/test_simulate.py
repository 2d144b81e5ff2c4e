"""`llmdeploy simulate` by its options: what it shows, and what it says to wrong ones."""

import json
import pathlib
import re
import shlex

import pytest
from typer.testing import CliRunner

from llmdeploy.cli.app import app

LAUNCH = [
    "simulate", "--model", "Qwen/Qwen2.5-7B-Instruct", "--gpu", "rtx4090",
    "--max-model-len", "8192",
]  # fmt: skip
LOAD = ["--input-tokens", "256", "--output-tokens", "64", "--request-rate", "5000/day"]


def run(*options: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [*LAUNCH, *options])
    return done.exit_code, done.stdout, done.stderr


def test_a_day_is_simulated_beside_the_closed_form() -> None:
    code, shown, said = run(*LOAD)
    assert code == 0, said
    assert "TTFT p95" in shown
    assert "closed form" in shown
    assert run(*LOAD)[1] == shown
    assert run(*LOAD, "--seed", "1")[1] != shown


def test_what_the_launch_leaves_open_is_said_beside_the_figures() -> None:
    code, shown, said = run(*LOAD)
    assert code == 0
    assert "assumed: gpus and tensor_parallel are not given" in said
    assert "assumed" not in shown


def test_a_cluster_past_what_is_simulated_says_what_is_approximated() -> None:
    code, shown, said = run(
        "--input-tokens", "256", "--output-tokens", "16", "--request-rate", "100000000/day",
        "--replicas", "10000", "--json",
    )  # fmt: skip
    assert code == 0, said
    found = json.loads(shown)
    assert found["replicas"] == 10_000
    assert found["simulated_replicas"] == 64
    assert any("64 of 10000 replicas" in words for words in found["approximations"])
    assert found["busiest"]["output_tokens_per_s"] == pytest.approx(1e8 / 86400 * 3 * 16, rel=0.1)


def test_recorded_requests_are_replayed(tmp_path: pathlib.Path) -> None:
    past = tmp_path / "past.csv"
    lines = [f"{i * 0.5},{100 + i},{5 + i % 7}" for i in range(200)]
    past.write_text("arrival_s,input_tokens,output_tokens\n" + "\n".join(lines) + "\n")
    code, shown, said = run("--requests", str(past), "--json")
    assert code == 0, said
    found = json.loads(shown)
    assert found["whole"]["requests"] == 200
    assert found["whole"]["rejected"] == 0


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (LOAD[:4], "--request-rate: found none"),
        (LOAD[2:], "--input-tokens: found none"),
        ([*LOAD, "--peak-factor", "0.5"], "--peak-factor: found 0.5, needed 1 or more"),
        ([*LOAD, "--peak-factor", "nan"], "--peak-factor: found nan, needed 1 or more"),
        ([*LOAD, "--peak-factor", "1e9"], "--peak-factor: found 1e+09, needed 1 or more"),
        ([*LOAD, "--input-p95", "100"], "--input-p95: found 100, needed the mean or more"),
        (["--requests", "absent.csv"], "--requests absent.csv: found no readable file"),
        ([*LOAD, "--max-model-len", "8192", "--gpu", "rtx9999"], "rtx9999"),
    ],
)
def test_wrong_options_are_named_with_the_fix(options: list[str], what: str) -> None:
    code, _, said = run(*options)
    assert code == 2
    assert what in said
    assert "hint: " in said


def test_the_readme_shows_a_run_of_its_command(request: pytest.FixtureRequest) -> None:
    """Names of the lines are compared; `--update-golden` writes the numbers anew."""
    path = pathlib.Path(__file__).parents[2] / "README.md"
    text = path.read_text()
    section = re.search(r"<!-- simulate -->\n(.*)<!-- /simulate -->", text, re.DOTALL)
    assert section
    command, shown = re.findall(r"^```\n(.*?)^```$", section[1], re.DOTALL | re.MULTILINE)
    done = CliRunner().invoke(app, shlex.split(command)[1:])
    assert done.exit_code == 0, done.stderr
    if request.config.getoption("--update-golden"):
        path.write_text(text.replace(section[1], f"```\n{command}```\n\n```\n{done.stdout}```\n"))
        shown = done.stdout
    names = [line[:22].rstrip() for line in done.stdout.splitlines()][2:]
    assert [line[:22].rstrip() for line in shown.splitlines()][2:] == names


def test_a_short_record_is_told_in_seconds(tmp_path: pathlib.Path) -> None:
    past = tmp_path / "past.csv"
    past.write_text("arrival_s,input_tokens,output_tokens\n" + "0,100,5\n5,100,5\n")
    code, shown, said = run("--requests", str(past))
    assert code == 0, said
    assert re.search(r"; busiest [0-9.]+ s from the start: 2 requests$", shown.splitlines()[0])


def test_a_launch_that_does_not_fit_is_a_no() -> None:
    code, _, said = run(*LOAD, "--model", "Qwen/Qwen2.5-72B-Instruct", "--gpus", "1")
    assert code == 3
    assert "the launch does not fit: vLLM: out of memory" in said

"""`llmdeploy estimate` on a command line: table, JSON, batch, formulas, exit codes, errors."""

import json
import pathlib
import re
import shlex
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from llmdeploy.cli.app import app

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 32,
    "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
README = pathlib.Path(__file__).parents[2] / "README.md"
LAUNCH = (
    "--gpu", "NVIDIA L40S", "--engine", "vllm", "--engine-version", "0.11.0", "--gpus", "1",
    "--max-model-len", "8192", "--memory-fraction", "90%",
)  # fmt: skip
LOAD = ("--input-tokens", "1000", "--output-tokens", "200", "--concurrency", "16")


@pytest.fixture
def config(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return str(tmp_path / "config.json")


def run(*argv, stdin=None):
    return CliRunner().invoke(app, ["estimate", *argv], input=stdin)


def case(config, *more):
    return run("--model", config, *LAUNCH, *LOAD, *more)


def test_the_table_shows_figures_intervals_and_the_verdict(config):
    ended = case(config)
    assert ended.exit_code == 0, ended.output
    lines = ended.stdout.splitlines()
    assert lines[0] == f"LlamaForCausalLM ({config})"
    assert lines[1].startswith("vllm 0.11.0 on ")
    assert all(len(line) <= 100 for line in lines[2:])
    for name in ("weights", "KV cache per token", "KV cache", "TTFT", "TPOT", "output"):
        assert any(line.startswith(f"{name} ") for line in lines), name
    assert "fits" in lines
    assert "assumed" not in lines


def test_without_a_device_it_says_what_is_missing(config):
    shown = run("--model", str(config)).stdout
    assert "not known whether it fits: the device's memory is not known: give gpu" in shown


def test_a_full_disk_is_no_bug(config):
    argv = [sys.executable, "-m", "llmdeploy", "estimate", "--model", str(config)]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: standard output: No space left on device\n\nhint: ")


def test_json_is_the_result_itself(config):
    found = json.loads(case(config, "--json").stdout)
    assert found["fits"] is True
    assert found["kv_bytes_per_token"]["value"] == 131_072
    assert found["unanswered"] == {}
    assert "formulas" not in found


def test_explain_adds_each_formula_to_both(config):
    shown = case(config, "--explain").stdout
    assert "weights = parameters x bytes per weight: 8030261248 x 2 = 16060522496 bytes" in shown
    assert shown.index("weights_estimate") < shown.index("max_batch_estimate")
    found = json.loads(case(config, "--explain", "--json").stdout)
    assert [formula["name"] for formula in found["formulas"]][:3] == [
        "weights_estimate", "kv_budget_estimate", "max_batch_estimate",
    ]  # fmt: skip


def test_what_does_not_fit_is_shown_and_exits_3(config):
    ended = run("--model", config, "--gpu", "rtx4060", "--engine", "vllm")
    assert ended.exit_code == 3
    assert "does not fit: " in ended.stdout


def test_a_batch_answers_line_by_line(config, tmp_path):
    cases = [{"model_config": CONFIG, "gpu": "l40s"}, {"gpu": "l40s"}, {"model": config}]
    path = tmp_path / "cases.jsonl"
    path.write_text("".join(f"{json.dumps(each)}\n" for each in cases))
    ended = run("--batch", str(path))
    assert ended.exit_code == 0, ended.output
    first, second, third = (json.loads(line) for line in ended.stdout.splitlines())
    assert first["weights_bytes"] == third["weights_bytes"]
    assert second["error"]["place"] == f"{path}:2"
    assert run("--batch", "-", stdin=path.read_text()).stdout.count("\n") == 3


def test_a_missing_batch_file_is_named(tmp_path):
    ended = run("--batch", str(tmp_path / "no.jsonl"))
    assert ended.exit_code == 2
    assert f"--batch {tmp_path}/no.jsonl: found no readable file" in ended.stderr


def test_a_batch_beside_a_case_is_refused(config):
    ended = run("--batch", "x.jsonl", "--model", config)
    assert ended.exit_code == 2
    assert "found --batch and --model, needed one of them" in ended.stderr


def test_a_device_may_be_given_by_its_numbers(config):
    numbers = ("--gpu-memory", "48GiB", "--gpu-bandwidth", "1TB/s", "--gpu-flops", "200TFLOPS")
    ended = run("--model", config, *numbers, "--json", *LOAD)
    assert ended.exit_code == 0, ended.output
    assert json.loads(ended.stdout)["tpot_s"]["method"] in {"interpolated", "roofline"}


@pytest.mark.parametrize(
    ("argv", "error", "hint"),
    [
        (("--gpu-memory", "80"), "--gpu-memory: found '80', needed a number with its unit",
         "write the unit: --gpu-memory 80GiB (80 x 2^30 bytes) or 80GB (80 x 10^9)"),
        (("--request-rate", "-5/s"), "--request-rate: found '-5/s'", "--request-rate 20/s"),
        (("--gpu", "RTX 4091"), "--gpu: device 'RTX 4091'", "rtx4090"),
        (("--tensor-parallel", "3"), "--tensor-parallel: 3 does not divide 32 attention heads",
         "set --tensor-parallel to 4"),
        (("--concurrency", "-1"), "--concurrency: found -1.0", "change --concurrency"),
        (("--gpu-bandwidth", "1"), "--gpu-bandwidth: found '1'", "--gpu-bandwidth 3.35TB/s"),
        (("--gpu-flops", "1"), "--gpu-flops: found '1'", "--gpu-flops 989TFLOPS"),
        (("--gpu-flops", "1TFLOPS"), "needed all three or --gpu", "add --gpu NAME"),
    ],
)  # fmt: skip
def test_wrong_options_are_told_the_fix(config, argv, error, hint):
    ended = run("--model", config, *argv)
    assert ended.exit_code == 2, ended.output
    assert f"error: the command line: {error}" in ended.stderr or error in ended.stderr
    assert hint in ended.stderr.split("hint: ")[1]


def test_a_config_without_a_field_is_told_which(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"hidden_size": None}))
    ended = run("--model", str(tmp_path / "config.json"), *LAUNCH)
    assert ended.exit_code == 2
    assert "hidden_size" in ended.stderr


def test_the_readme_shows_a_run_of_its_command(request):
    """Names of the lines are compared; `--update-golden` writes the numbers anew."""
    text = README.read_text()
    section = re.search(r"<!-- estimate -->\n(.*)<!-- /estimate -->", text, re.DOTALL)
    assert section
    command, shown = re.findall(r"^```\n(.*?)^```$", section[1], re.DOTALL | re.MULTILINE)
    ended = run(*shlex.split(command)[2:])
    assert ended.exit_code == 0, ended.output
    if request.config.getoption("--update-golden"):
        block = f"```\n{command}```\n\n```\n{ended.stdout}```\n"
        README.write_text(text.replace(section[1], block))
        shown = ended.stdout
    names = [line.split("  ")[0] for line in ended.stdout.splitlines()]
    assert [line.split("  ")[0] for line in shown.splitlines()] == names


def test_every_case_in_the_readme_is_answered():
    cases = re.findall(r'^\{"model": .*\}$', README.read_text(), re.MULTILINE)
    assert cases
    ended = run("--batch", "-", stdin="".join(f"{case}\n" for case in cases))
    assert all("error" not in json.loads(line) for line in ended.stdout.splitlines())


def test_the_help_is_the_reference(check_golden):
    ended = CliRunner().invoke(app, ["estimate", "--help"], env={"COLUMNS": "100"})
    lines = (line.rstrip() for line in ended.stdout.strip().splitlines())
    check_golden("estimate/help.txt", "\n".join(lines) + "\n")

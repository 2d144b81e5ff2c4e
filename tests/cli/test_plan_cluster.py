"""`llmdeploy plan --inventory`: what it writes and repeats, and what a new user gets wrong."""

import json
import pathlib
import re
import shlex

import pytest
from typer.testing import CliRunner

from llmdeploy.cli.app import app
from llmdeploy.document import parse
from llmdeploy.plan import Plan

ROOT = pathlib.Path(__file__).parents[2]
README = ROOT / "README.md"
SERVICE = """
schema: 1
cluster: cluster.yaml
model: {id: config.json}
workload:
  requests_per_day: 50000
  input_tokens: {mean: 400, p95: 900}
  output_tokens: {mean: 120, p95: 300}
engine: {max_model_len: 4096}
"""
CLUSTER = """
schema: 1
hosts:
  - name: gpu
    count: 2
    devices: [{device: RTX 4090, count: 4, price_per_hour: 0.4}]
network: ethernet-25g
"""
CONFIG = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 5120,
    "intermediate_size": 13824, "num_attention_heads": 40, "num_key_value_heads": 8,
    "num_hidden_layers": 48, "vocab_size": 152064, "max_position_embeddings": 32768,
    "torch_dtype": "bfloat16", "tie_word_embeddings": False,
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "model").mkdir()
    config = tmp_path / "model" / "config.json"
    config.write_text(json.dumps(CONFIG))
    (tmp_path / "service.yaml").write_text(SERVICE.replace("config.json", str(config)))
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    return tmp_path


def plan(folder: pathlib.Path, *more: str):
    argv = [
        "plan", str(folder / "service.yaml"), "--inventory", str(folder / "cluster.yaml"),
        "--out", str(folder / "plans"), *more,
    ]  # fmt: skip
    return CliRunner().invoke(app, argv, env={"LLMDEPLOY_STATE_ROOT": None})


def change(folder: pathlib.Path, name: str, old: str, new: str) -> None:
    path = folder / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def test_a_plan_is_written_with_a_launch_file_for_each_replica_and_engine(folder):
    ended = plan(folder)
    assert ended.exit_code == 0, ended.output
    (place,) = (folder / "plans" / "chat").iterdir()
    made = parse((place / "plan.yaml").read_text(), Plan, place="plan.yaml")
    assert made.cluster is not None
    assert made.model.id == "model"
    files = {str(p.relative_to(place)) for p in place.rglob("*") if p.is_file()}
    for replica in made.replicas:
        assert f"launch/{replica.host}/{replica.name}.txt" in files
        assert f"launch/{replica.host}/{replica.name}.sglang.txt" in files
    assert "against the objectives" in ended.stdout
    assert f"next: llmdeploy launch {place} --inventory" in ended.stderr


def test_the_second_plan_is_the_same_bytes(folder):
    first = plan(folder, "--json")
    second = plan(folder, "--json")
    assert first.stdout == second.stdout
    assert second.stderr.splitlines()[0].endswith(": unchanged")


def test_lengths_come_from_a_csv_of_requests(folder):
    rows = [f"{n},{100 + 10 * n},{20 + n}" for n in range(200)]
    (folder / "requests.csv").write_text("\n".join(["arrival_s,input_tokens,output_tokens", *rows]))
    change(folder, "service.yaml", "workload:", "workload:\n  requests_csv: requests.csv")
    made = json.loads(plan(folder, "--json").stdout)
    lengths = made["workload"]["input_tokens"]
    assert lengths["mean"] == pytest.approx(100 + 10 * 99.5)
    assert lengths["p95"] == 100 + 10 * 189
    assert len(lengths["histogram"]) == 40


def test_launch_of_a_clusters_plan_asks_for_its_inventory(folder):
    plan(folder)
    (place,) = (folder / "plans" / "chat").iterdir()
    ended = CliRunner().invoke(app, ["launch", str(place), "--yes"])
    assert ended.exit_code == 2
    assert "found no inventory" in ended.stderr
    assert "--inventory cluster.yaml" in ended.stderr


def test_facts_of_hosts_replace_declared_devices(folder):
    from ..plan.cases import H100, bundle

    facts = bundle(accelerators=(H100, H100.model_copy(update={"index": 1})))
    (folder / "facts.json").write_text(facts.model_dump_json(by_alias=True))
    change(folder, "cluster.yaml", "name: gpu\n    count: 2", "name: local")
    made = json.loads(plan(folder, "--json", "--facts", str(folder / "facts.json")).stdout)
    assert {part["device"] for part in made["cluster"]["parts"]} == {"h100-sxm"}
    assert {replica["host"] for replica in made["replicas"]} == {"local"}


WRONG = [
    ("cluster.yaml", "RTX 4090", "RTX 4900", 2, "hosts/0/devices/0/device", "rtx4090"),
    ("cluster.yaml", "count: 4", "count: 0", 2, "needed greater than or equal to 1", "change"),
    ("cluster.yaml", "count: 4", "count: 4, memory: 24", 2, "found 24, needed a number with its"
     " unit, like 80GiB", "write hosts/0/devices/0/memory that way"),
    ("cluster.yaml", "count: 4", "count: 4, link: nvlnk4", 2, "hosts/0/devices/0/link", "nvlink4"),
    ("cluster.yaml", "price_per_hour: 0.4", "price_per_hour: -1", 2,
     "needed greater than or equal to 0", "change"),
    ("cluster.yaml", "ethernet-25g", "carrier-pigeon", 2, "network", "ethernet"),
    ("cluster.yaml", "    devices: [{device: RTX 4090, count: 4, price_per_hour: 0.4}]\n", "", 2,
     "gpu has no devices declared", "devices: [{device: RTX 4090, count: 4}]"),
    ("cluster.yaml", "devices:", "device:", 2, "unknown key 'device'", "rename it to devices"),
    ("service.yaml", "per_day: 50000", "per_day: -5", 2, "found -5, needed greater than or equal",
     "change workload/requests_per_day"),
    ("service.yaml", "mean: 400, p95: 900", "mean: 400, p95: 90", 2, "p95 90 below mean 400",
     "write"),
    ("service.yaml", "mean: 400, p95: 900", "histogram: [{tokens: 5}]", 2,
     "needed buckets like", "write"),
    ("service.yaml", "max_model_len: 4096", "max_model_len: 65536", 2,
     "needed at most the model's 32768", "set engine.max_model_len to 32768"),
    ("service.yaml", "max_model_len: 4096", "max_model_len: 256", 2, "needed the workload's mean",
     "or more"),
    ("service.yaml", "max_model_len: 4096", "kind: vlm", 2, "needed 'auto', 'embedded', 'vllm'",
     "change engine/kind"),
    ("service.yaml", "max_model_len: 4096", "max_model_len: 4096, tensor_parallel: 3", 3,
     "tp 3 does not divide 40 attention heads: possible are 1, 2, 4, 8, 40",
     "leave engine.tensor_parallel"),
    ("service.yaml", "config.json}", "config.jsn}", 2, "config.jsn", ""),
    ("service.yaml", "workload:", "workload:\n  requests_csv: none.csv", 2,
     "found no readable file (named by workload.requests_csv)", "arrival_s,input_tokens"),
    ("model/config.json", '"num_attention_heads": 40, ', "", 2, "num_attention_heads", ""),
    ("service.yaml", "requests_per_day: 50000", "requests_per_day: 900000000", 3,
     "none of", "add"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "old", "new", "code", "what", "hint"), WRONG)
def test_a_new_users_mistake_names_the_place_and_the_fix(folder, name, old, new, code, what, hint):
    change(folder, name, old, new)
    ended = plan(folder)
    assert ended.exit_code == code, ended.output
    error, _, fix = ended.stderr.partition("\n\nhint: ")
    assert what in error
    assert hint in fix
    assert fix.strip()
    assert not (folder / "plans").exists()


def test_an_unknown_model_names_near_ones(folder):
    text = (folder / "service.yaml").read_text()
    start = text.index("model: {id:")
    end = text.index("}", start)
    changed = f"{text[:start]}model: {{id: Qwen/Qwen2.5-14B-Instuct{text[end:]}"
    (folder / "service.yaml").write_text(changed)
    ended = plan(folder)
    assert ended.exit_code == 2
    assert "Qwen2.5-14B-Instruct" in ended.stderr


def test_without_an_inventory_a_cluster_or_another_engine_says_how(folder):
    argv = ["plan", str(folder / "service.yaml"), "--out", str(folder / "plans")]
    ended = CliRunner().invoke(app, argv, env={"LLMDEPLOY_STATE_ROOT": None})
    assert ended.exit_code == 3
    assert "--inventory" in ended.stderr
    (folder / "cluster.yaml").write_text("schema: 1\n")
    change(folder, "service.yaml", "{max_model_len", "{kind: vllm, max_model_len")
    ended = CliRunner().invoke(app, argv, env={"LLMDEPLOY_STATE_ROOT": None})
    assert ended.exit_code == 3
    assert "found vllm; this release launches the embedded engine alone" in ended.stderr


def test_the_readme_shows_a_run_of_its_command(tmp_path, monkeypatch, request):
    """Titles and names are compared; `--update-golden` writes the numbers anew."""
    text = README.read_text()
    section = re.search(r"<!-- plan cluster -->\n(.*)<!-- /plan cluster -->", text, re.DOTALL)
    assert section
    command, shown = re.findall(r"^```\n(.*?)^```$", section[1], re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(ROOT)
    argv = [*shlex.split(command)[1:], "--out", str(tmp_path)]
    ended = CliRunner().invoke(app, argv, env={"LLMDEPLOY_STATE_ROOT": None})
    assert ended.exit_code == 0, ended.output
    head = ended.stdout.partition("\n\nrejected layouts")[0] + "\n"
    if request.config.getoption("--update-golden"):
        block = f"```\n{command}```\n\n```\n{head}```\n"
        README.write_text(text.replace(section[1], block))
        shown = head
    titles = [line for line in head.splitlines() if line and not line.startswith((" ", "plan"))]
    there = [line for line in shown.splitlines() if line and not line.startswith((" ", "plan"))]
    assert there == titles

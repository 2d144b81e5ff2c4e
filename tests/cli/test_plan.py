"""`llmdeploy plan` on files: what it writes, what it refuses, and that it repeats itself."""

import json
import pathlib

import pytest
from typer.testing import CliRunner

from llmdeploy.cli.app import app
from llmdeploy.document import parse
from llmdeploy.plan import Plan

from ..plan.cases import bundle
from ..store.tiny_model import write_model

SERVICE = """
schema: 1
cluster: cluster.yaml
model: {id: tiny}
workload:
  requests_per_day: 1000
  input_tokens: {mean: 32, p95: 64}
  output_tokens: {mean: 16, p95: 32}
engine: {max_model_len: 128}
"""


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """A service, its cluster, its model in a store, and the facts of a two-core host."""
    given = write_model(tmp_path / "given")
    added = ["models", "add", "tiny", "--folder", str(given), "--store", str(tmp_path / "models")]
    assert CliRunner().invoke(app, [*added, "--yes"]).exit_code == 0
    (tmp_path / "service.yaml").write_text(SERVICE)
    (tmp_path / "cluster.yaml").write_text("schema: 1\nmodel_store: models\nstate_root: state\n")
    (tmp_path / "facts.json").write_text(bundle().model_dump_json(by_alias=True))
    return tmp_path


def plan(folder: pathlib.Path, *more: str, facts: bool = True):
    given = ("--facts", str(folder / "facts.json")) if facts else ()
    argv = ["plan", str(folder / "service.yaml"), "--out", str(folder / "plans"), *given, *more]
    return CliRunner().invoke(app, argv, env={"LLMDEPLOY_STATE_ROOT": None})


def written(folder: pathlib.Path) -> dict[str, bytes]:
    root = folder / "plans"
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def change(folder: pathlib.Path, old: str, new: str) -> None:
    path = folder / "service.yaml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def test_a_plan_is_written_with_launch_and_gateway_files(folder):
    ended = plan(folder)
    assert ended.exit_code == 0, ended.output
    (place,) = (folder / "plans" / "chat").iterdir()
    made = parse((place / "plan.yaml").read_text(), Plan, place="plan.yaml")
    assert made.id == place.name
    assert made.state_root == str(folder / "state")
    names = {name.removeprefix(f"chat/{made.id}/") for name in written(folder)}
    assert {"plan.yaml", "launch/local/r0.txt", "gateway/rds.json", "gateway/lds.json"} <= names
    assert f"plan {made.id}" in ended.stdout
    assert f"next: llmdeploy launch {place}" in ended.stderr


def test_the_next_command_can_be_pasted_where_the_folder_has_a_space(folder):
    ended = plan(folder, "--out", str(folder / "my plans"))
    (place,) = (folder / "my plans" / "chat").iterdir()
    assert f"next: llmdeploy launch '{place}'\n" in ended.stderr


def test_the_second_plan_is_the_same_bytes_and_says_unchanged(folder):
    first, before = plan(folder), written(folder)
    second = plan(folder)
    assert first.stdout == second.stdout
    assert written(folder) == before
    assert first.stderr.splitlines()[0].endswith(": written")
    assert second.stderr.splitlines()[0].endswith(": unchanged")


def test_a_file_changed_by_hand_is_put_right(folder):
    plan(folder)
    before = written(folder)
    (folder / "plans" / next(name for name in before if name.endswith("rds.json"))).write_text("{}")
    assert plan(folder).stderr.splitlines()[0].endswith(": written")
    assert written(folder) == before


def test_json_is_the_plan_with_its_id(folder):
    tree = json.loads(plan(folder, "--json").stdout)
    assert tree["service"] == "chat"
    assert f"chat/{tree['id']}/plan.yaml" in written(folder)


def test_the_gateway_files_send_all_to_the_release(folder):
    made = json.loads(plan(folder, "--json").stdout)["id"]
    assert made in written(folder)[f"chat/{made}/gateway/rds.json"].decode()


def test_the_state_root_option_wins(folder):
    tree = json.loads(plan(folder, "--json", "--state-root", "/srv/state").stdout)
    assert tree["state_root"] == "/srv/state"


@pytest.mark.end_to_end
def test_without_given_facts_the_host_is_asked_and_two_plans_are_the_same(folder):
    first, second = plan(folder, "--json", facts=False), plan(folder, "--json", facts=False)
    assert first.exit_code == 0, first.output
    assert first.stdout == second.stdout


@pytest.mark.parametrize(
    ("old", "new", "code", "words"),
    [
        ("max_model_len: 128", "max_model_len: 4096", 2, "needed at most the model's 128"),
        ("max_model_len", "max_model_length", 2, "rename it to max_model_len"),
        ("id: tiny", "id: missing", 2, "no such model, found in the store: tiny"),
        ("128}", "128, tensor_parallel: 3}", 3, "3 does not divide 4 attention heads"),
        ("per_day: 1000", "per_day: 900000000", 3, "replicas, and the host has room for 1"),
        ("schema: 1", "schema: [", 2, "cannot be read as YAML"),
    ],
)
def test_what_cannot_be_planned_exits_with_a_hint_and_writes_nothing(folder, old, new, code, words):
    change(folder, old, new)
    ended = plan(folder)
    assert ended.exit_code == code, ended.output
    assert words in ended.stderr
    assert "\n\nhint: " in ended.stderr
    assert not (folder / "plans").exists()


def test_a_host_without_room_is_refused(folder):
    (folder / "facts.json").write_text(
        bundle(memory_total_bytes=2**30).model_dump_json(by_alias=True)
    )
    ended = plan(folder)
    assert ended.exit_code == 3
    assert "a release may use 409.6 MiB" in ended.stderr


@pytest.mark.parametrize("content", [None, "not json: [", "{}"])
def test_a_missing_or_damaged_facts_bundle_is_bad_input(folder, content):
    path = folder / "facts.json"
    path.unlink() if content is None else path.write_text(content)
    ended = plan(folder)
    assert ended.exit_code == 2
    assert "facts.json" in ended.stderr

"""`llmdeploy launch` shows what it will do and refuses plans that it cannot trust."""

import pathlib

import pytest
from typer.testing import CliRunner

from llmdeploy.cli.app import app
from llmdeploy.cli.starting import site_of

from ..release.made import Bench


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def launch(*words: str, answer: str = ""):
    unset = {"LLMDEPLOY_STATE_ROOT": ""}
    return CliRunner().invoke(app, ["launch", *words], input=answer, env=unset)


def test_a_dry_run_prints_the_commands_and_changes_nothing(bench):
    plan = bench.plan()
    result = launch(str(bench.write(plan)), "--dry-run")
    assert result.exit_code == 0
    stage, engine, gateway = result.stdout.splitlines()
    assert stage == f"# write {bench.state_root}/chat/releases/{plan.id}/plan.yaml"
    assert engine.startswith(f"{bench.python} -m llmdeploy.engine --model {bench.store}/tiny ")
    assert f"--port {bench.ports.first} " in engine
    assert gateway.endswith(f":{bench.gateway.port}: add release {plan.id} at weight 0")
    assert not bench.state_root.exists()


def test_a_dry_run_with_hosts_keeps_nothing_of_them(bench, tmp_path):
    hosts = tmp_path / "cluster.yaml"
    hosts.write_text(f"state_root: {bench.state_root}\nmodel_store: {bench.store}\n")
    site_of(bench.plan(), str(hosts), None)
    assert not bench.state_root.exists()


def test_nothing_happens_without_a_yes(bench):
    result = launch(str(bench.write(bench.plan())), answer="n\n")
    assert result.exit_code == 3
    assert "not confirmed, nothing changed" in result.stderr
    assert not bench.state_root.exists()


def test_the_plans_file_is_as_good_as_its_folder(bench):
    folder = bench.write(bench.plan())
    assert launch(f"{folder}/plan.yaml", "--dry-run").stdout == launch(
        str(folder), "--dry-run"
    ).stdout  # fmt: skip


def test_the_state_root_option_wins_over_the_plans(bench, tmp_path):
    other = tmp_path / "other"
    result = launch(str(bench.write(bench.plan())), "--dry-run", "--state-root", str(other))
    assert f"# write {other}/chat/releases/" in result.stdout


def test_a_missing_plan_is_an_input_error(tmp_path):
    result = launch(str(tmp_path / "nowhere"))
    assert result.exit_code == 2
    assert "nowhere: found no readable file: No such file or directory" in result.stderr
    assert "hint: give the folder that `llmdeploy plan` wrote" in result.stderr


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: text[: len(text) // 2] + "\n\t: [", "cannot be read as YAML"),
        (lambda text: f"{text}surprise: 1\n", "unknown key 'surprise'"),
        (lambda text: text.replace("kv_cache_tokens: 1024", "kv_cache_tokens: many"), "found"),
        (lambda text: text.replace("max_queue: 8", "max_queue: 9"), "it was changed by hand"),
        (lambda text: "", "needed a mapping"),
    ],
    ids=["cut off", "unknown key", "no number", "another value", "empty"],
)
def test_a_damaged_plan_is_an_input_error_with_its_place(bench, damage, said):
    file = bench.write(bench.plan()) / "plan.yaml"
    file.write_text(damage(file.read_text()))
    result = launch(str(file.parent), "--yes")
    assert result.exit_code == 2
    assert said in result.stderr
    assert str(file) in result.stderr
    assert not bench.state_root.exists()


def test_a_missing_model_is_an_input_error_and_leaves_nothing(bench):
    plan = bench.plan(model=bench.plan().model.model_copy(update={"id": "other"}))
    result = launch(str(bench.write(plan)), "--yes")
    assert result.exit_code == 2
    assert "no such model, found in the store: tiny" in result.stderr
    files = [path for path in pathlib.Path(bench.state_root).rglob("*") if path.is_file()]
    assert files == []

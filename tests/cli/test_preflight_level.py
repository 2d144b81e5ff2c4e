"""`llmdeploy preflight --level`: what each depth does on this machine, and its replay."""

import json
import pathlib
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from llmdeploy.cli.app import app
from llmdeploy.cli.measuring import free_ports
from llmdeploy.facts.bundle import Bundle
from llmdeploy.inventory import Inventory

from ..facts import hosts

PYTHON = "/usr/bin/python3"
"""One without torch: it starts at once, and what needs torch must be told as not tested."""


def _run(folder: pathlib.Path, *argv: str) -> Result:
    path = str(folder / "service.yaml")
    return CliRunner().invoke(app, ["preflight", path, *argv], env={"LLMDEPLOY_STATE_ROOT": ""})


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "service.yaml").write_text("cluster: cluster.yaml\nmodel: {id: tiny}\n")
    (tmp_path / "cluster.yaml").write_text(
        f"hosts: [{{python: {PYTHON}}}]\nstate_root: state\nmodel_store: models\n"
    )
    return tmp_path


def _report(done: Result) -> Any:
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("argv", [("--quick",), ("--level", "quick")])
def test_quick_measures_nothing(folder: pathlib.Path, argv: tuple[str, ...]) -> None:
    report = _report(_run(folder, *argv, "--json"))
    assert report["facts"]["measured"] is None
    assert not [f for f in report["findings"] if f["origin"].startswith("measured")]


@pytest.mark.end_to_end
def test_deep_tests_the_host_alone_and_what_needs_torch_is_unknown(folder: pathlib.Path) -> None:
    out = folder / "facts.json"
    done = _run(folder, "--level", "deep", "--json", "--out", str(out))
    report = _report(done)
    measured = report["facts"]["measured"]
    assert measured["level"] == "deep"
    assert [clock["host"] for clock in measured["clocks"]] == ["local"]
    assert measured["disks"][0]["bytes_per_s"] > 0
    assert measured["links"] == []
    found = {f["check"]: f["status"] for f in report["findings"]}
    assert found["sto.disk.speed"] == "PASS"
    assert found["cpu.compute.golden"] == "UNKNOWN"
    assert found["cpu.memory.pattern"] == "UNKNOWN"
    assert "net.ports.peer" not in found
    assert _report(_run(folder, "--from", str(out), "--json")) == report
    assert "testing: 1 host: clocks and disks" in done.stderr
    assert sorted(path.name for path in folder.iterdir()) == [
        "cluster.yaml", "facts.json", "service.yaml",
    ]  # fmt: skip


def test_a_level_that_does_not_exist_exits_2(folder: pathlib.Path) -> None:
    done = _run(folder, "--level", "full")
    assert done.exit_code == 2
    assert "standard" in done.stderr


def test_the_ports_tried_are_the_first_block_that_is_free_everywhere() -> None:
    inventory = Inventory()
    first = inventory.ports.first
    busy = hosts.facts(listeners=(hosts.listener(first + 3),))
    free = hosts.facts().model_copy(update={"host": "b"})
    bundle = Bundle(schema=1, llmdeploy="0", hosts=(busy, free))
    size = inventory.ports.block_size
    assert free_ports(bundle, inventory) == tuple(range(first + size, first + 2 * size))

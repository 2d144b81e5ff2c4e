"""`llmdeploy logs` shows the end of the right log."""

import json

import pytest
from typer.testing import CliRunner

from llmdeploy.cli.app import app
from llmdeploy.edge.clock import SystemClock
from llmdeploy.edge.local import LocalShell
from llmdeploy.release import fold, journal
from llmdeploy.release.layout import ServiceLayout
from llmdeploy.release.state import Endpoint

SHELL, CLOCK = LocalShell(), SystemClock()


@pytest.fixture
def layout(tmp_path):
    """A service with an old release of one replica and a new one of two, and their logs."""
    layout = ServiceLayout(root=f"{tmp_path}/chat")
    for release, replicas in (("old", ("r0",)), ("new", ("r0", "r1"))):
        endpoints = [
            Endpoint(replica=name, host="local", address="127.0.0.1", port=1) for name in replicas
        ]
        data = fold.planned_data(port_block=0, core_slot=None, endpoints=endpoints)
        journal.append(fold.PLANNED, data, release=release, layout=layout, shell=SHELL, clock=CLOCK)
        for name in replicas:
            text = "".join(f"{release} {name} line {n}\n" for n in range(200))
            SHELL.write(layout.engine_log(release, name), text.encode())
    SHELL.write(f"{layout.gateway}/envoy.log", b"envoy starts\n")
    return layout


def logs(layout: ServiceLayout, *words: str):
    root = layout.root.rpartition("/")[0]
    return CliRunner().invoke(app, ["logs", "chat", *words, "--state-root", root])


def test_the_newest_releases_last_lines_are_shown(layout):
    result = logs(layout, "--lines", "1")
    assert result.stdout == "r0: new r0 line 199\nr1: new r1 line 199\n"


def test_a_hundred_lines_are_shown_by_default(layout):
    lines = logs(layout, "--release", "old").stdout.splitlines()
    assert (len(lines), lines[0], lines[-1]) == (100, "old r0 line 100", "old r0 line 199")


def test_one_replica_can_be_picked(layout):
    assert logs(layout, "--replica", "r1", "--lines", "1").stdout == "new r1 line 199\n"


def test_the_gateways_log_is_shown(layout):
    assert logs(layout, "--gateway").stdout == "envoy starts\n"


def test_json_lines_name_their_source(layout):
    lines = logs(layout, "--lines", "1", "--json").stdout.splitlines()
    assert json.loads(lines[1]) == {"source": "r1", "line": "new r1 line 199"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--release", "x"), "there is no release x, found: old, new"),
        (("--replica", "r9"), "there is no replica r9, found: r0, r1"),
        (("--gateway", "--replica", "r1"), "--gateway: found together with"),
    ],
)
def test_what_there_is_not_is_an_input_error(layout, words, said):
    result = logs(layout, *words)
    assert result.exit_code == 2
    assert said in result.stderr

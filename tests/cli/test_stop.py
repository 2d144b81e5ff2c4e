"""`llmdeploy stop` says what it will stop and knows what there is."""

import pytest
from typer.testing import CliRunner

from llmdeploy.cli.app import app
from llmdeploy.edge.clock import SystemClock
from llmdeploy.edge.local import LocalShell
from llmdeploy.release import fold, journal
from llmdeploy.release.layout import ServiceLayout
from llmdeploy.release.state import Phase, Standing

SHELL, CLOCK = LocalShell(), SystemClock()


@pytest.fixture
def layout(tmp_path):
    """A service with one release whose launch failed."""
    layout = ServiceLayout(root=f"{tmp_path}/chat")
    data = fold.planned_data(port_block=0, core_slot=None, endpoints=())
    journal.append(fold.PLANNED, data, release="aaa", layout=layout, shell=SHELL, clock=CLOCK)
    mark(layout, Phase.FAILED)
    return layout


def mark(layout: ServiceLayout, phase: Phase) -> None:
    journal.mark_phase("aaa", phase, layout=layout, shell=SHELL, clock=CLOCK)


def stop(layout: ServiceLayout, *words: str, answer: str = ""):
    root = layout.root.rpartition("/")[0]
    return CliRunner().invoke(app, ["stop", *words, "--state-root", root], input=answer)


def test_a_service_without_running_releases_has_nothing_to_stop(layout):
    result = stop(layout, "chat", "--yes")
    assert (result.exit_code, result.stdout) == (0, "chat: stopped nothing, none was running\n")


def test_an_unknown_service_lists_the_known_ones(layout):
    result = stop(layout, "chta", "--yes")
    assert result.exit_code == 2
    assert "there is no service 'chta', found: chat" in result.stderr


def test_an_unknown_release_lists_the_known_ones(layout):
    result = stop(layout, "chat", "--release", "bbb", "--yes")
    assert result.exit_code == 2
    assert "there is no release bbb, found: aaa" in result.stderr


def test_the_live_release_is_refused(layout):
    mark(layout, Phase.PROBED)
    journal.mark_standings(
        {"aaa": Standing.LIVE}, release="aaa", layout=layout, shell=SHELL, clock=CLOCK
    )
    result = stop(layout, "chat", "--release", "aaa", "--yes")
    assert result.exit_code == 3
    assert "release aaa is live, needed one without traffic" in result.stderr


def test_one_release_and_a_purge_do_not_go_together(layout):
    result = stop(layout, "chat", "--release", "aaa", "--purge", "--yes")
    assert result.exit_code == 2
    assert "leave out --release" in result.stderr


def test_nothing_happens_without_a_yes(layout):
    result = stop(layout, "chat", "--purge", answer="n\n")
    assert result.exit_code == 3
    assert f"delete {layout.root}?" in result.stderr
    assert journal.read(layout, SHELL)


def test_a_purge_deletes_the_service_even_with_a_broken_journal(layout, tmp_path):
    SHELL.append(layout.journal, b"scribble\n")
    kept = stop(layout, "chat", "--yes")
    assert kept.exit_code == 3
    assert "line 3: found 'scribble'" in kept.stderr
    purged = stop(layout, "chat", "--purge", "--yes")
    assert purged.exit_code == 0, purged.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_json_output_is_the_services_state(layout):
    mark(layout, Phase.PROBED)
    result = stop(layout, "chat", "--yes", "--json")
    assert '"phase":"stopped"' in result.stdout


@pytest.mark.parametrize("content", [b"", b"scribble\n"], ids=["emptied", "damaged"])
def test_hosts_are_asked_though_the_journal_no_longer_names_them(layout, content):
    inventory = """
schema: 1
hosts:
  - {name: gone, address: 127.0.0.1, port: 9, data_address: 127.0.0.1, python: /usr/bin/python3}
"""
    SHELL.write(layout.journal, content)
    SHELL.write(f"{layout.root}/cluster.yaml", inventory.encode())
    result = stop(layout, "chat", "--purge", "--yes")
    assert result.exit_code == 4, result.stderr
    assert "chat: left undone: gone: " in result.stderr
    assert "when the host is back run the command again" in result.stderr


def test_with_an_emptied_journal_and_nothing_running_it_says_so(layout):
    SHELL.write(layout.journal, b"")
    result = stop(layout, "chat", "--yes")
    assert (result.exit_code, result.stdout) == (0, "chat: stopped nothing, none was running\n")

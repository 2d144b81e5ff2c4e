"""`llmdeploy rollback`: refuses with the way out, and moves nothing then."""

from typer.testing import CliRunner

from llmdeploy.cli.app import app
from llmdeploy.gateway.apply import read_state
from llmdeploy.release.state import Standing

from .service_at import SHELL, service_at


def rollback(root, *words: str, answer: str = ""):
    return CliRunner().invoke(
        app, ["rollback", "chat", *words, "--state-root", str(root)], input=answer
    )


def test_without_a_previous_release_there_is_nothing_to_go_back_to(tmp_path):
    layout, (live,) = service_at(tmp_path, Standing.LIVE)
    result = rollback(tmp_path, "--yes")
    assert result.exit_code == 3
    assert f"chat: nothing to go back to: release {live} is live" in result.stderr
    assert read_state(layout, SHELL).share(live) == 1.0


def test_a_previous_release_that_does_not_answer_is_refused_with_its_start(tmp_path):
    layout, (previous, live) = service_at(tmp_path, Standing.PREVIOUS, Standing.LIVE)
    result = rollback(tmp_path, "--yes")
    assert result.exit_code == 3
    assert f"release {previous}: its engine at http://127.0.0.1:" in result.stderr
    assert f"hint: llmdeploy launch {layout.release(previous)}, then roll back" in result.stderr
    assert read_state(layout, SHELL).share(live) == 1.0


def test_an_unknown_service_is_an_input_error(tmp_path):
    result = rollback(tmp_path, "--yes")
    assert result.exit_code == 2
    assert "there is no service 'chat', found: none" in result.stderr

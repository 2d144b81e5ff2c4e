"""`llmdeploy verify`: its answers as exit codes, before any traffic is touched."""

import json

from typer.testing import CliRunner

from llmdeploy.cli.app import app
from llmdeploy.cli.verify import show
from llmdeploy.facts.finding import Finding, Status
from llmdeploy.gateway.apply import read_state
from llmdeploy.release.state import Standing
from llmdeploy.rollout.outcome import Outcome, Result
from llmdeploy.verdict.acceptance import AcceptanceRecord

from .service_at import SHELL, service_at


def verify(root, *words: str, answer: str = ""):
    return CliRunner().invoke(app, ["verify", *words, "--state-root", str(root)], input=answer)


def test_an_unknown_service_lists_the_known_ones(tmp_path):
    service_at(tmp_path, Standing.LIVE)
    result = verify(tmp_path, "chta", "--yes")
    assert result.exit_code == 2
    assert "there is no service 'chta', found: chat" in result.stderr


def test_a_live_release_needs_nothing(tmp_path):
    _, (live,) = service_at(tmp_path, Standing.LIVE)
    result = verify(tmp_path, "chat", "--yes")
    assert (result.exit_code, result.stdout) == (
        0,
        f"release {live} is live already, nothing to do\n",
    )


def test_the_outcome_as_json_is_the_artefact(tmp_path):
    _, (live,) = service_at(tmp_path, Standing.LIVE)
    outcome = json.loads(verify(tmp_path, "chat", "--yes", "--json").stdout)
    assert (outcome["service"], outcome["release"], outcome["result"]) == ("chat", live, "live")


def test_a_candidate_whose_engine_is_dead_is_refused(tmp_path):
    layout, (live, candidate) = service_at(tmp_path, Standing.LIVE, Standing.CANDIDATE)
    result = verify(tmp_path, "chat", "--yes")
    assert result.exit_code == 3
    assert f"error: release {candidate}: processes -: one does not run, needed all" in result.stderr
    assert f"hint: llmdeploy logs chat --release {candidate}" in result.stderr
    assert read_state(layout, SHELL).share(live) == 1.0


def test_what_acceptance_found_stands_once_on_stdout_and_its_fix_once_on_stderr(capsys):
    def finding(check: str, status: Status) -> Finding:
        fix = "llmdeploy logs" if status == Status.FAIL else ""
        return Finding(check=check, status=status, subject="b", found="no", needed="4", fix=fix)

    findings = (
        finding("accept.golden", Status.FAIL),
        finding("accept.stop", Status.FAIL),
        finding("accept.speed", Status.SKIP),
        finding("accept.log", Status.PASS),
    )
    record = AcceptanceRecord(release="b", at_s=0.0, took_s=1.0, speed=None, findings=findings)
    outcome = Outcome(
        service="chat", release="b", old_release="a", result=Result.REJECTED, share=0.0,
        reasons=("accept.golden: no", "accept.stop: no"), took_s=1.0, acceptance=record,
    )  # fmt: skip
    show(outcome, as_json=False)
    assert capsys.readouterr() == (
        "FAIL accept.golden: no; needed 4\nFAIL accept.stop: no; needed 4\n"
        "SKIP accept.speed: no; needed 4\n"
        "release b was not accepted and stays dark: 3 of 4 checks did not pass\n",
        "hint: llmdeploy logs\n",
    )


def test_nothing_happens_without_a_yes(tmp_path):
    service_at(tmp_path, Standing.LIVE, Standing.CANDIDATE)
    result = verify(tmp_path, "chat", answer="n\n")
    assert result.exit_code == 3
    assert "not confirmed, nothing changed" in result.stderr


def test_an_unknown_release_lists_the_known_ones(tmp_path):
    _, (live,) = service_at(tmp_path, Standing.LIVE)
    result = verify(tmp_path, "chat", "--release", "nope", "--yes")
    assert result.exit_code == 2
    assert f"chat: no release nope, there are: {live}" in result.stderr


def test_a_timeout_needs_its_unit(tmp_path):
    service_at(tmp_path, Standing.LIVE)
    result = verify(tmp_path, "chat", "--timeout", "90", "--yes")
    assert result.exit_code == 2
    assert "--timeout: found '90', needed a number with its unit" in result.stderr
    assert "hint: write it like --timeout 30min" in result.stderr

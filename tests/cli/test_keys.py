import json
import re

import pytest
from typer.testing import CliRunner

from llmdeploy.cli.app import app
from llmdeploy.edge.clock import SystemClock
from llmdeploy.edge.local import LocalShell
from llmdeploy.release import journal
from llmdeploy.release.layout import ServiceLayout


@pytest.fixture
def run(tmp_path):
    """`llmdeploy keys …` for a service `chat` whose gateway does not run."""
    layout = ServiceLayout(root=str(tmp_path / "chat"))
    journal.append("test", layout=layout, shell=LocalShell(), clock=SystemClock())

    def run(*words, answer=""):
        argv = ["keys", *words, "--state-root", str(tmp_path)]
        return CliRunner().invoke(app, argv, input=answer)

    return run


def test_the_token_alone_is_on_stdout(run):
    added = run("add", "chat", "--client", "alice", "--yes")
    assert added.exit_code == 0
    assert re.fullmatch(r"ey[\w-]+\.[\w-]+\.[\w-]+\n", added.stdout)
    assert re.search(r"key [0-9a-f]{16} of alice: in effect once the gateway runs", added.stderr)


def test_a_key_is_listed_without_the_token(run):
    token = run("add", "chat", "--client", "alice", "--rate", "20/s", "--yes").stdout.strip()
    listed = run("list", "chat")
    assert re.search(r"[0-9a-f]{16}  alice +valid +\d{4}-\d\d-\d\d  20/s", listed.stdout)
    found = json.loads(run("list", "chat", "--json").stdout)
    assert [(r["client"], r["rate_per_s"]) for r in found] == [("alice", 20.0)]
    assert token not in listed.stdout + json.dumps(found)


def test_the_default_is_ninety_days(run):
    record = json.loads(run("add", "chat", "--client", "alice", "--yes", "--json").stdout)
    assert record["expires_s"] - record["created_s"] == pytest.approx(90 * 86400)
    assert record["token"].startswith("ey")


def test_a_revoked_key_is_listed_as_such(run):
    key = json.loads(run("add", "chat", "--client", "alice", "--yes", "--json").stdout)["id"]
    revoked = run("revoke", "chat", key, "--yes")
    assert revoked.stdout == f"{key}: revoked, in effect once the gateway runs\n"
    assert "revoked" in run("list", "chat").stdout


def test_nothing_is_added_when_the_answer_is_no(run):
    refused = run("add", "chat", "--client", "alice", answer="n\n")
    assert refused.exit_code == 3
    assert "nothing changed" in refused.stderr
    assert json.loads(run("list", "chat", "--json").stdout) == []


def test_nobody_there_to_answer_is_a_no(run):
    refused = run("add", "chat", "--client", "alice")
    assert refused.exit_code == 3
    assert (
        "error: not confirmed, nothing changed\n\nhint: answer y, or give --yes" in refused.stderr
    )
    assert json.loads(run("list", "chat", "--json").stdout) == []


def test_a_key_that_outlives_the_calendar_is_listed(run, tmp_path):
    run("add", "chat", "--client", "alice", "--yes")
    file = tmp_path / "chat/keys/records.json"
    record = json.loads(file.read_text())[0] | {"expires_s": 8641795989525.0}
    file.write_text(json.dumps([record]))
    listed = run("list", "chat")
    assert re.search(r"alice +valid +never +-", listed.stdout)


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (("--client", "alice", "--expires", "90"), "--expires: found '90', needed"),
        (("--client", "alice", "--rate", "20"), "--rate: found '20', needed a rate like 20/s"),
        (("--client", "a b"), "client: found 'a b', needed"),
    ],
)
def test_bad_input_says_what_was_needed_and_exits_2(run, words, place):
    refused = run("add", "chat", *words, "--yes")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert place in refused.stderr
    assert "hint:" in refused.stderr


def test_an_unknown_key_and_an_unknown_service_exit_2(run):
    assert run("revoke", "chat", "0123", "--yes").exit_code == 2
    unknown = run("list", "chatt")
    assert unknown.exit_code == 2
    assert "chat" in unknown.stderr

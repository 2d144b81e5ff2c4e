"""`llmdeploy doctor` at its edges: what it takes, exit codes, JSON."""

import json
import pathlib
import re

import pytest
from typer.testing import CliRunner

from llmdeploy.cli.app import app
from llmdeploy.cli.doctor_sources import LOG_LIMIT_BYTES, asked_for
from llmdeploy.edge.clock import SystemClock
from llmdeploy.edge.local import LocalShell
from llmdeploy.facts.bundle import Bundle
from llmdeploy.release import fold, journal
from llmdeploy.release.layout import ServiceLayout
from llmdeploy.release.state import Endpoint, Phase

from ..facts.hosts import facts as facts_of_a_host

README = pathlib.Path(__file__).parents[2] / "README.md"
CASES = pathlib.Path(__file__).parents[1] / "cases" / "logs"


def bundle():
    return Bundle(llmdeploy="0.1.0", hosts=(facts_of_a_host(),))


def doctor(*words, stdin=""):
    return CliRunner().invoke(app, ["doctor", *map(str, words)], input=stdin)


def test_without_a_question_all_symptoms_are_listed():
    shown = doctor().stdout
    assert "comm_timeout  communication between processes times out" in shown
    assert "运行中显存持续增长" in shown


def test_a_folder_of_logs_gives_the_first_cause_and_its_consequences(check_golden):
    shown = doctor(CASES / "failed" / "one_rank_out_of_memory")
    assert shown.exit_code == 0
    dated = re.sub(r" at \d{4}-", " at 2026-", shown.stdout)  # the stamps have no year
    check_golden("doctor/ranks.txt", dated.replace(f"{CASES}/", ""))


def test_json_is_the_diagnosis_itself():
    case = CASES / "failed" / "link_cut"
    told = json.loads(doctor(case / "gpu-1.log", case / "gpu-2.log", "--json").stdout)
    assert told["suspects"][0]["id"] == "comm.nccl_timeout"
    assert told["suspects"][0]["evidence"][0]["line_number"] == 2


def test_a_log_comes_from_stdin_too():
    shown = doctor("-", stdin="OSError: [Errno 24] Too many open files\n")
    assert "stdin:1" in shown.stdout


def test_of_a_huge_log_the_end_is_read(tmp_path):
    log = tmp_path / "a.log"
    with log.open("wb") as file:
        file.seek(20 * 2**30)  # a hole: 20 GiB that no memory holds
        file.write(b"\nOSError: [Errno 24] Too many open files\n")
    (seen,) = asked_for([str(log)])[1]
    assert len(seen.text) == LOG_LIMIT_BYTES
    assert seen.text.endswith("Too many open files\n")


def test_an_unknown_error_exits_5_with_what_to_do(tmp_path):
    (tmp_path / "a.log").write_text("FrobError: the frob is off\n")
    shown = doctor(tmp_path / "a.log")
    assert shown.exit_code == 5
    assert "no known failure" in shown.stdout
    assert "hint: give the logs of all ranks" in shown.stderr


def test_a_facts_bundle_answers_the_checks_offline(tmp_path):
    (tmp_path / "facts.json").write_text(bundle().model_dump_json(by_alias=True))
    shown = doctor("启动即失败", "--from", tmp_path / "facts.json")
    assert shown.exit_code == 0
    assert "check     rt.engine.import PASS" in shown.stdout
    assert "excluded" in shown.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("blue", "screen"), "no log file and no known symptom"),
        (("/nowhere/a.log",), "no such log"),
        (("--from", "/nowhere/facts.json"), "found no readable file"),
        (("--service", "nobody", "--state-root", "/nowhere"), "there is no service 'nobody'"),
    ],
)
def test_bad_input_exits_2_with_a_hint(words, said):
    shown = doctor(*words)
    assert shown.exit_code == 2
    assert said in shown.stderr
    assert "\n\nhint: " in shown.stderr


def test_the_log_of_a_failed_start_is_read_where_the_release_kept_it(tmp_path):
    layout, shell, clock = ServiceLayout(root=f"{tmp_path}/chat"), LocalShell(), SystemClock()
    endpoint = Endpoint(replica="r0", host="local", address="127.0.0.1", port=1)
    data = fold.planned_data(port_block=0, core_slot=None, endpoints=[endpoint])
    journal.append(fold.PLANNED, data, release="new", layout=layout, shell=shell, clock=clock)
    journal.mark_phase("new", Phase.FAILED, reason="x", layout=layout, shell=shell, clock=clock)
    shell.write(layout.engine_log("new", "r0"), b"ok\nRuntimeError: can't start new thread\n")
    facts = tmp_path / "facts.json"
    facts.write_text(bundle().model_dump_json(by_alias=True))
    shown = doctor("--service", "chat", "--state-root", tmp_path, "--from", facts)
    assert shown.exit_code == 0, shown.output
    assert "1. proven: the user or the cgroup may not have more processes" in shown.stdout
    assert "r0.log:2" in shown.stdout
    assert "check     os.nproc PASS" in shown.stdout
    assert "note: release new failed, and the launch said: x" in shown.stdout


def test_the_readme_shows_what_it_prints(request, monkeypatch):
    monkeypatch.chdir(README.parent)
    section = re.search(r"<!-- doctor -->\n(.*)<!-- /doctor -->", README.read_text(), re.DOTALL)
    (command,) = re.findall(r"^llmdeploy doctor (.*)$", section[1], re.MULTILINE)
    shown = doctor(*command.split()).stdout.rstrip()
    block = f"```\nllmdeploy doctor {command}\n```\n\n```\n{shown}\n```\n"
    if request.config.getoption("--update-golden"):
        README.write_text(README.read_text().replace(section[1], block))
    else:
        assert section[1] == block

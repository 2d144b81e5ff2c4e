"""Supervisors' files say exactly what runs, and their words are read back right."""

import pytest

from llmdeploy.edge import Completed
from llmdeploy.errors import InputError
from llmdeploy.release.choose import choose
from llmdeploy.release.layout import ServiceLayout
from llmdeploy.release.supervise import ProcessState, Program, exit_words
from llmdeploy.release.supervisord import Supervisord, history, render_daemon, render_program
from llmdeploy.release.systemd import UNITS, Systemd, parse_show, prefix, render_unit

from ..fakes import FakeClock, FakeShell

LAYOUT = ServiceLayout(root="/var/lib/llmdeploy/chat")
PROGRAM = Program(
    name="engine-0123456789ab-r0",
    argv=("/opt/py/bin/python", "-m", "llmdeploy.engine", "--served-name", "100% chat $HOME"),
    env=(("HF_HUB_OFFLINE", "1"), ("OMP_NUM_THREADS", "2")),
    log_path="/var/lib/llmdeploy/chat/runs/0123456789ab/r0.log",
    stop_timeout_s=45,
    cwd="/var/lib/llmdeploy/chat/runs/0123456789ab",
)


def test_supervisords_files_are_as_reviewed(check_golden):
    text = f"{render_daemon(LAYOUT)}\n--- conf.d\n{render_program(PROGRAM, LAYOUT)}"
    check_golden("release/supervisord.txt", text)


def test_the_systemd_unit_is_as_reviewed(check_golden):
    check_golden("release/unit.service", render_unit(PROGRAM, LAYOUT))


def changed(**fields: object) -> Program:
    names = ("name", "argv", "env", "log_path", "stop_timeout_s", "cwd")
    return Program(**({name: getattr(PROGRAM, name) for name in names} | fields))


@pytest.mark.parametrize(
    "program",
    [
        changed(argv=("python", "a\nb")),
        changed(argv=("python", "a ;b")),
        changed(env=(("A", 'say "x"'),)),
        changed(env=(("A", "back\\slash"),)),
    ],
)
def test_words_that_supervisord_would_misread_are_refused(program):
    with pytest.raises(InputError, match=r"needed none"):
        render_program(program, LAYOUT)


def test_services_under_other_roots_have_other_units():
    assert prefix(LAYOUT).startswith("llmdeploy-chat-")
    assert prefix(LAYOUT) != prefix(ServiceLayout(root="/tmp/chat"))


LOG = """\
2026-01-01 00:00:00,000 INFO spawned: 'engine-a' with pid 5
2026-01-01 00:00:01,000 WARN exited: engine-a (terminated by SIGKILL; not expected)
2026-01-01 00:00:02,000 INFO spawned: 'engine-a' with pid 6
2026-01-01 00:00:03,000 INFO success: engine-a entered RUNNING state, process has stayed up
2026-01-01 00:00:04,000 INFO spawned: 'engine-a-2' with pid 7
"""


def test_restarts_and_the_last_exit_come_from_supervisords_log():
    assert history(LOG, "engine-a") == (1, "terminated by SIGKILL")
    assert history(LOG, "engine-a-2") == (0, None)
    assert history(LOG, "other") == (0, None)


def test_a_stop_by_hand_begins_a_new_count():
    stopped = f"{LOG}2026-01-01 00:01:00,000 WARN stopped: engine-a (terminated by SIGTERM)\n"
    assert history(stopped, "engine-a") == (0, None)
    again = f"{stopped}2026-01-01 00:02:00,000 INFO spawned: 'engine-a' with pid 9\n"
    assert history(again, "engine-a") == (0, None)


@pytest.mark.parametrize(
    ("text", "state"),
    [
        (
            "ActiveState=active\nSubState=running\nMainPID=42\nNRestarts=0\n"
            "ExecMainCode=0\nExecMainStatus=0\n",
            ProcessState(running=True, pid=42, restarts=0, exit=None),
        ),
        (
            "ActiveState=activating\nSubState=auto-restart\nMainPID=0\nNRestarts=2\n"
            "ExecMainCode=2\nExecMainStatus=9\n",
            ProcessState(running=False, pid=None, restarts=2, exit="killed by SIGKILL"),
        ),
        (
            "ActiveState=failed\nSubState=failed\nMainPID=0\nNRestarts=5\n"
            "ExecMainCode=1\nExecMainStatus=3\n",
            ProcessState(running=False, pid=None, restarts=5, exit="exit code 3"),
        ),
        (
            "ActiveState=inactive\nSubState=dead\nMainPID=0\nNRestarts=0\n"
            "ExecMainCode=0\nExecMainStatus=0\n",
            ProcessState(running=False, pid=None, restarts=0, exit=None),
        ),
        ("", ProcessState(running=False, pid=None, restarts=0, exit=None)),
    ],
    ids=["running", "restarting", "given up", "never started", "no systemd"],
)
def test_what_systemctl_shows_is_a_state(text, state):
    assert parse_show(text) == state


def test_signals_are_named():
    assert exit_words(-15) == "killed by SIGTERM"
    assert exit_words(-99) == "killed by signal 99"
    assert exit_words(2) == "exit code 2"


@pytest.mark.parametrize(
    ("said", "files", "kind"),
    [
        ("running\nyes\n", {}, Systemd),
        ("degraded\nyes\n", {}, Systemd),
        ("running\nno\n", {}, Supervisord),
        ("offline\n", {}, Supervisord),
        ("", {}, Supervisord),
        ("running\nyes\n", {f"{LAYOUT.supervisor}/conf.d/gateway.ini": b""}, Supervisord),
        ("offline\n", {f"{UNITS}/{prefix(LAYOUT)}gateway.service": b""}, Systemd),
    ],
    ids=["manager", "degraded", "no linger", "offline", "none", "has supervisord", "has units"],
)
def test_a_service_keeps_its_supervisor_and_a_new_one_gets_what_the_host_offers(said, files, kind):
    def answer(argv, stdin):
        return Completed(argv=argv, exit_code=0, stdout=said, stderr="")

    shell = FakeShell(files=dict(files), on_run=answer)
    found = choose(LAYOUT, python="python3", shell=shell, clock=FakeClock())
    assert isinstance(found, kind)

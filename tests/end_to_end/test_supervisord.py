"""supervisord's daemon as a process: when a stop has ended, it has."""

import os
import pathlib
import sys

import pytest

from llmdeploy.edge.clock import SystemClock
from llmdeploy.edge.local import LocalShell
from llmdeploy.release.layout import ServiceLayout
from llmdeploy.release.supervise import Program
from llmdeploy.release.supervisord import Supervisord

pytestmark = pytest.mark.end_to_end


def test_a_shutdown_ends_with_the_daemon_not_with_its_socket(tmp_path):
    shell, layout = LocalShell(), ServiceLayout(root=str(tmp_path / "chat"))
    supervisor = Supervisord(layout=layout, python=sys.executable, shell=shell, clock=SystemClock())
    program = Program(
        name="sleeper", argv=("/bin/sleep", "600"), env=(), log_path=str(tmp_path / "log"),
        stop_timeout_s=5, cwd="/",
    )  # fmt: skip
    for _ in range(5):  # the daemon's last moments are short
        supervisor.start(program)
        pids = [supervisor.state("sleeper").pid, _daemon(layout)]
        supervisor.shutdown()
        assert not [pid for pid in pids if _lives(pid)]
        assert not os.path.exists(layout.supervisor)


def _daemon(layout):
    return int(pathlib.Path(layout.supervisor, "supervisord.pid").read_text())


def _lives(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    except FileNotFoundError:
        return False

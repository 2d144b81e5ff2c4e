"""paramiko is loaded when a host is reached by SSH, and not before."""

import pathlib
import socket
import subprocess
import sys

import pytest


@pytest.mark.parametrize("command", ["--help", "plan --help", "preflight --help", "launch --help"])
def test_the_command_line_starts_without_paramiko(command: str, tmp_path: pathlib.Path) -> None:
    program = (
        "import sys; sys.modules['paramiko'] = None\n"
        f"sys.argv = ['llmdeploy', *{command.split()!r}]\n"
        "from llmdeploy.cli.app import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_paramikos_own_log_is_not_on_stderr() -> None:
    program = (
        "import sys\n"
        "from llmdeploy.edge.ssh import SshShell\n"
        "from llmdeploy.edge.ssh_config import Config, Target\n"
        "from llmdeploy.edge.ssh_connect import Limits\n"
        "from llmdeploy.edge.ssh_pool import Connections\n"
        "from llmdeploy.errors import Unreachable\n"
        "config = Config('/nonexistent', system_path='/nonexistent')\n"
        "with Connections(config=config, limits=Limits(banner_timeout_s=0.5)) as connections:\n"
        "    try:\n"
        "        target = Target(name='gpu', address=f'127.0.0.1:{sys.argv[1]}')\n"
        "        SshShell(target, connections).run(['true'], timeout_s=5)\n"
        "    except Unreachable as error:\n"
        "        print(error)\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as silent:
        done = subprocess.run(
            [sys.executable, "-c", program, str(silent.getsockname()[1])],
            capture_output=True,
            text=True,
            check=False,
        )
    assert "sent no SSH banner in 0.5 s" in done.stdout
    assert done.stderr == ""

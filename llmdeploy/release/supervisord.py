"""Supervision by supervisord (PyPI `supervisor`), one daemon a service, over its unix socket."""

import re
import shlex
import xmlrpc.client
from dataclasses import dataclass
from typing import Any

from llmdeploy.edge import Clock, Shell
from llmdeploy.errors import InputError, Refused
from llmdeploy.release import sockets, supervise
from llmdeploy.release.layout import ServiceLayout
from llmdeploy.release.supervise import ProcessState, Program

_RUNNING = (10, 20)
"""STARTING and RUNNING. Source: supervisor 4.3, supervisor/states.py."""
_ENDED = (0, 100, 200)
"""STOPPED, EXITED and FATAL; same source."""
_LOG_TAIL_BYTES = 2**18
_NO_DAEMON = 7
_CALL = f"""
import socket, sys
server = socket.socket(socket.AF_UNIX)
server.settimeout(float(sys.argv[2]))
try:
    server.connect(sys.argv[1])
except (FileNotFoundError, ConnectionRefusedError):
    sys.exit({_NO_DAEMON})
body = sys.stdin.buffer.read()
head = "POST /RPC2 HTTP/1.0\\r\\nContent-Type: text/xml\\r\\nContent-Length: %d\\r\\n\\r\\n"
server.sendall((head % len(body)).encode() + body)
sys.stdout.buffer.write(server.makefile("rb").read().partition(b"\\r\\n\\r\\n")[2])
"""


def render_daemon(layout: ServiceLayout) -> str:
    """supervisord.conf: its files all lie beside it, programs in conf.d/."""
    return f"""\
[supervisord]
logfile = {layout.supervisor}/supervisord.log
logfile_maxbytes = 4MB
logfile_backups = 1
pidfile = {layout.supervisor}/supervisord.pid
childlogdir = {layout.supervisor}
umask = 077

[unix_http_server]
file = {layout.supervisor_socket}
chmod = 0700

[rpcinterface:supervisor]
supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface

[include]
files = conf.d/*.ini
"""


def render_program(program: Program, layout: ServiceLayout) -> str:
    """conf.d/<name>.ini. SIGTERM goes to the program alone, which drains; SIGKILL to its group."""
    environment = (*program.env, supervise.marker(layout.root, program.name))
    shown = ",".join(f'{name}="{value}"' for name, value in sorted(environment))
    if re.search(r'["\\]', "".join(value for _, value in environment)):
        raise InputError(
            f"{program.name}: environment: found a quote or backslash in {shown}, needed none",
            fix="choose paths and names without them",
        )
    lines = {
        "command": shlex.join(program.argv).replace("%", "%%"),
        "environment": shown.replace("%", "%%"),
        "directory": program.cwd,
        "autostart": "false",
        "autorestart": "true",
        "startsecs": "30",
        "startretries": "5",
        "stopsignal": "TERM",
        "stopwaitsecs": f"{program.stop_timeout_s:.0f}",
        "killasgroup": "true",
        "stdout_logfile": program.log_path.replace("%", "%%"),
        "redirect_stderr": "true",
        "stdout_logfile_maxbytes": str(supervise.LOG_LIMIT_BYTES),
        "stdout_logfile_backups": str(supervise.LOG_BACKUPS),
    }
    for key, value in lines.items():
        if "\n" in value or re.search(r"\s;", value):
            raise InputError(
                f"{program.name}: {key}: found a line break or ` ;` in {value!r}, needed none",
                fix="choose paths and names without them",
            )
    body = "".join(f"{key} = {value}\n" for key, value in lines.items())
    return f"[program:{program.name}]\n{body}"


def history(log: str, name: str) -> tuple[int, str | None]:
    """Restarts since the program was last started by hand, and how it ended last (or None)."""
    spawned, ended = 0, None
    pattern = (
        rf"(spawned|exited|stopped|gave up): '?{re.escape(name)}'?(?: \((.*?)(?:; .*)?\))?(?: |$)"
    )
    for match in re.finditer(pattern, log, flags=re.MULTILINE):
        if match[1] == "spawned":
            spawned += 1
        elif match[1] == "exited":
            ended = match[2]
        else:
            spawned = 0
            ended = None if match[1] == "stopped" else ended
    return max(0, spawned - 1), ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervisord:
    """Implements Supervisor. Its daemon starts with the first program, ends at shutdown."""

    layout: ServiceLayout
    python: str
    """The host's Python that has `supervisor`."""
    shell: Shell
    clock: Clock

    def start(self, program: Program) -> None:
        text = render_program(program, self.layout).encode()
        path = self._file(program.name)
        info = self._info(program.name)
        if info and info["state"] in _RUNNING and self.shell.read(path) == text:
            return
        self._ensure_daemon()  # before the file is there: it reads conf.d when it starts
        self.stop(program.name)
        self.shell.write(path, text, mode=0o600)
        began = len(self.shell.read(self._log_path) or b"")
        self.shell.write(self._began_path(program.name), f"{began}".encode(), mode=0o600)
        self._must("supervisor.reloadConfig")
        self._must("supervisor.addProcessGroup", program.name)
        self._must("supervisor.startProcess", program.name, False)

    def stop(self, name: str) -> None:
        info = self._info(name)
        if info and info["state"] not in _ENDED:
            self._call("supervisor.stopProcess", name, timeout_s=self._drain_s(name) + 30)
        supervise.kill_processes(self.layout.root, name, shell=self.shell)
        if info:
            self._call("supervisor.removeProcessGroup", name)
        self.shell.remove(self._file(name))
        self.shell.remove(self._began_path(name))

    def state(self, name: str) -> ProcessState:
        info = self._info(name)
        if info is None:  # the daemon died: its programs may live on
            pids = supervise.processes(self.layout.root, name, shell=self.shell)
            return ProcessState(
                running=bool(pids), pid=pids[0] if pids else None, restarts=0, exit=None
            )
        restarts, ended = history(self._log(name), name)
        return ProcessState(
            running=info["state"] in _RUNNING,
            pid=info["pid"] or None,
            restarts=restarts,
            exit=ended,
        )

    def list(self) -> tuple[str, ...]:
        names = self.shell.entries(f"{self.layout.supervisor}/conf.d")
        return tuple(name.removesuffix(".ini") for name in names if name.endswith(".ini"))

    def shutdown(self) -> None:
        for name in self.list():
            self.stop(name)
        pid = self._call("supervisor.getPID")
        if pid is not None:
            self._call("supervisor.shutdown")
            deadline_s = self.clock.monotonic_s() + 20
            while self._runs(pid):  # it lets go of its socket well before it ends
                if self.clock.monotonic_s() > deadline_s:
                    raise Refused(
                        f"{self.layout.supervisor}: supervisord (process {pid}) still runs 20 s "
                        "after its shutdown, needed it gone",
                        fix=f"kill {pid}",
                    )
                self.clock.sleep(0.1)
        self.shell.remove(self.layout.supervisor)

    def _runs(self, pid: object) -> bool:
        """Whether that daemon is still a process; a zombie has no command line."""
        seen = self.shell.run(("grep", "-q", "supervisord", f"/proc/{pid}/cmdline"), timeout_s=10)
        return seen.exit_code == 0

    def _ensure_daemon(self) -> None:
        if self._call("supervisor.getState") is not None:
            return
        path = f"{self.layout.supervisor}/supervisord.conf"
        sockets.make_folder(self.layout, shell=self.shell)
        self.shell.write(path, render_daemon(self.layout).encode(), mode=0o600)
        command = f'exec env -i HOME="$HOME" LANG=C.UTF-8 PATH={supervise.SEARCH_PATH} "$@"'
        daemon = (self.python, "-m", "supervisor.supervisord", "-c", path)
        done = self.shell.run(("sh", "-c", command, "sh", *daemon), timeout_s=60)
        if done.exit_code != 0:
            why = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no word why"]
            raise Refused(
                f"{path}: supervisord ended with exit code {done.exit_code}: {why[0]}",
                fix=f"{self.python} -m pip install 'llmdeploy[host]', then launch again",
            )

    def _info(self, name: str) -> dict[str, Any] | None:
        found = self._call("supervisor.getProcessInfo", name)
        return found if isinstance(found, dict) else None

    def _must(self, method: str, *arguments: object) -> None:
        answer = self._call(method, *arguments)
        if answer is None or isinstance(answer, xmlrpc.client.Fault):
            found = answer.faultString if answer else "no answer"
            raise Refused(
                f"{self.layout.supervisor_socket}: {method} "
                f"{' '.join(map(str, arguments))}: {found}",
                fix=f"see {self.layout.supervisor}/supervisord.log",
            )

    def _call(self, method: str, *arguments: object, timeout_s: float = 20) -> Any:
        """The answer, a Fault, or None where no daemon listens."""
        body = xmlrpc.client.dumps(arguments, method)  # type: ignore[arg-type]
        socket, limit = self.layout.supervisor_socket, f"{timeout_s:.0f}"
        caller = (self.python, "-I", "-S", "-c", _CALL, socket, limit)
        done = self.shell.run(caller, timeout_s=timeout_s + 5, stdin=body)
        if done.exit_code == _NO_DAEMON:
            return None
        if done.exit_code != 0:
            raise Refused(
                f"{self.layout.supervisor_socket}: {method}: found "
                f"{(done.stderr.strip().splitlines() or ['no answer'])[-1]}, needed an answer",
                fix=f"see {self.layout.supervisor}/supervisord.log",
            )
        try:
            return xmlrpc.client.loads(done.stdout)[0][0]
        except xmlrpc.client.Fault as fault:
            return fault

    def _file(self, name: str) -> str:
        return f"{self.layout.supervisor}/conf.d/{name}.ini"

    def _drain_s(self, name: str) -> float:
        text = (self.shell.read(self._file(name)) or b"").decode()
        found = re.search(r"^stopwaitsecs = (\d+)$", text, flags=re.MULTILINE)
        return float(found[1]) if found else 60.0

    def _log(self, name: str) -> str:
        """supervisord's log since the program was started by hand."""
        text = self.shell.read(self._log_path) or b""
        began = int(self.shell.read(self._began_path(name)) or b"0")
        began = began if began <= len(text) else 0  # the log was put aside
        return text[began:][-_LOG_TAIL_BYTES:].decode(errors="replace")

    @property
    def _log_path(self) -> str:
        return f"{self.layout.supervisor}/supervisord.log"

    def _began_path(self, name: str) -> str:
        return f"{self.layout.supervisor}/began/{name}"

"""Supervision by systemd user units, for hosts whose user manager outlives the login."""

import hashlib
from dataclasses import dataclass

from llmdeploy.edge import Shell
from llmdeploy.errors import InputError, Refused
from llmdeploy.release import supervise
from llmdeploy.release.layout import ServiceLayout
from llmdeploy.release.supervise import ProcessState, Program

UNITS = "~/.config/systemd/user"
SYSTEM_UNITS = "/etc/systemd/system"
SYSTEM_TARGET = "multi-user.target"
_SHOWN = ("ActiveState", "SubState", "MainPID", "NRestarts", "ExecMainCode", "ExecMainStatus")
_KILLED = ("2", "3")
"""ExecMainCode of a process that a signal ended. Source: CLD_KILLED, CLD_DUMPED in sigaction(2)."""


def prefix(layout: ServiceLayout) -> str:
    """What the unit names of a service begin with; services under other roots have others."""
    service = layout.root.rpartition("/")[2]
    return f"llmdeploy-{service}-{hashlib.sha256(layout.root.encode()).hexdigest()[:8]}-"


def render_unit(program: Program, layout: ServiceLayout, *, target: str = "default.target") -> str:
    """The unit file. SIGTERM goes to the program alone, which drains; SIGKILL to its group."""
    variables = (
        ("HOME", "%h"),
        ("LANG", "C.UTF-8"),
        ("PATH", supervise.SEARCH_PATH),
        *((name, _escaped(value)) for name, value in sorted(program.env)),
        supervise.marker(layout.root, program.name),
    )
    environment = " ".join(f'"{name}={value}"' for name, value in variables)
    command = " ".join(f'"{_escaped(argument)}"' for argument in program.argv)
    limit_kib = supervise.LOG_LIMIT_BYTES // 1024
    log = _escaped(program.log_path)
    limits = "LimitNOFILE=1048576\n" if target == SYSTEM_TARGET else ""  # a user may not raise it
    unit = f"""\
[Unit]
Description=llmdeploy {program.name}
StartLimitIntervalSec=600
StartLimitBurst=5

[Service]
ExecStartPre=-/bin/sh -c "find '{log}' -size +{limit_kib}k -exec mv {{}} '{log}.1' \\\\;"
ExecStart=/usr/bin/env -i {environment} {command}
WorkingDirectory={_escaped(program.cwd)}
StandardOutput=append:{log}
StandardError=inherit
UMask=0077
{limits}Restart=always
RestartSec=1
KillMode=mixed
TimeoutStopSec={program.stop_timeout_s:.0f}

[Install]
WantedBy={target}
"""
    if any("\n" in part for part in (*program.argv, program.log_path, program.cwd)):
        raise InputError(
            f"{program.name}: found a line break in its command or paths, needed none",
            fix="choose paths and names without them",
        )
    return unit


def parse_show(text: str) -> ProcessState:
    """The state in what `systemctl show` printed."""
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    pid, status = int(values.get("MainPID", "0")), int(values.get("ExecMainStatus", "0"))
    running = values.get("ActiveState") in ("active", "reloading") and pid > 0
    restarts, code = int(values.get("NRestarts", "0")), values.get("ExecMainCode", "0")
    ended = supervise.exit_words(-status if code in _KILLED else status) if code != "0" else None
    return ProcessState(
        running=running, pid=pid or None, restarts=restarts, exit=None if running else ended
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Systemd:
    """Implements Supervisor with the user manager of the user that the shell runs as, or with the
    host's own where that is root."""

    layout: ServiceLayout
    shell: Shell
    system: bool = False
    """The host's own manager: needs root, no login and no lingering."""

    def start(self, program: Program) -> None:
        target = SYSTEM_TARGET if self.system else "default.target"
        text = render_unit(program, self.layout, target=target).encode()
        path = self._file(program.name)
        if self.shell.read(path) == text and self.state(program.name).running:
            return
        self.stop(program.name)
        self.shell.write(path, text, mode=0o600)
        # it comes back after a reboot; one reload is enough for the unit and its link
        self._must("enable", "--quiet", "--no-reload", self._unit(program.name))
        self._must("daemon-reload")
        self._must("start", self._unit(program.name))

    def stop(self, name: str) -> None:
        if self.shell.read(self._file(name)) is not None:
            self._must("disable", "--quiet", "--now", self._unit(name))
            self.shell.remove(self._file(name))
            self._must("daemon-reload")
            self._run("reset-failed", self._unit(name))
        supervise.kill_processes(self.layout.root, name, shell=self.shell)

    def state(self, name: str) -> ProcessState:
        wanted = ",".join(_SHOWN)
        return parse_show(self._run("show", self._unit(name), f"--property={wanted}"))

    def list(self) -> tuple[str, ...]:
        start = prefix(self.layout)
        names = (n.removesuffix(".service") for n in self.shell.entries(self._folder))
        return tuple(name.removeprefix(start) for name in names if name.startswith(start))

    def shutdown(self) -> None:
        for name in self.list():
            self.stop(name)

    @property
    def _folder(self) -> str:
        return SYSTEM_UNITS if self.system else UNITS

    @property
    def _manager(self) -> tuple[str, ...]:
        return ("systemctl",) if self.system else ("systemctl", "--user")

    def _unit(self, name: str) -> str:
        return f"{prefix(self.layout)}{name}.service"

    def _file(self, name: str) -> str:
        return f"{self._folder}/{self._unit(name)}"

    def _run(self, *arguments: str) -> str:
        # stopping waits for the drain, which the unit bounds
        return self.shell.run((*self._manager, *arguments), timeout_s=900).stdout

    def _must(self, *arguments: str) -> None:
        done = self.shell.run((*self._manager, *arguments), timeout_s=900)
        if done.exit_code != 0:
            raise Refused(
                f"{' '.join((*self._manager, *arguments))}: exit code {done.exit_code}: "
                f"{done.stderr.strip() or 'no word why'}",
                fix="journalctl -e" if self.system else "journalctl --user -e",
            )


def _escaped(text: str) -> str:
    """A word for a unit file: specifiers, variables and quotes stay what they are."""
    for character, written in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("$", "$$")):
        text = text.replace(character, written)
    return text

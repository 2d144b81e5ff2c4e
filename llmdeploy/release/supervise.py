"""What keeps a service's processes running after the command that started them has ended."""

import signal
from dataclasses import dataclass
from typing import Protocol

from llmdeploy.edge import Shell

GATEWAY = "gateway"
"""The gateway's program name."""
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LOG_LIMIT_BYTES = 32 * 2**20
"""Size at which a log is put aside; one former log is kept under supervisord."""
LOG_BACKUPS = 1
_SWEEP = 'grep -lzsxF -e "$1" /proc/[0-9]*/environ | cut -d/ -f3'


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One supervised process and its children."""

    name: str
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    """The whole environment besides PATH, HOME and LANG."""
    log_path: str
    stop_timeout_s: float
    """How long it may drain after SIGTERM before it is killed."""
    cwd: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessState:
    """What the supervisor sees of a program."""

    running: bool
    pid: int | None
    restarts: int
    """How often it was started again after it ended by itself."""
    exit: str | None
    """How it ended last, in words; None while it never did."""


class Supervisor(Protocol):
    """Starts, watches and stops the programs of one service."""

    def start(self, program: Program) -> None:
        """The program runs; one of that name with other settings is replaced, the same stays."""
        ...

    def stop(self, name: str) -> None:
        """The program and all its children are gone: SIGTERM, its drain time, SIGKILL."""
        ...

    def state(self, name: str) -> ProcessState:
        """The program's state; not running where there is none of that name."""
        ...

    def list(self) -> tuple[str, ...]:
        """Sorted names of all programs that were started and not stopped."""
        ...

    def shutdown(self) -> None:
        """Stops all programs and leaves nothing of the supervisor itself."""
        ...


def engine_program(release: str, replica: str) -> str:
    """The program name of one replica of a release."""
    return f"engine-{release}-{replica}"


def engine_programs(release: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Those of `names` that belong to the release."""
    return tuple(name for name in names if name.startswith(f"engine-{release}-"))


def marker(root: str, name: str) -> tuple[str, str]:
    """The variable that every process of a program has in its environment."""
    return ("LLMDEPLOY_PROGRAM", f"{root}:{name}")


def processes(root: str, name: str, *, shell: Shell) -> tuple[int, ...]:
    """Pids of the program and of all its children, also those whose parent died."""
    variable = "=".join(marker(root, name))
    found = shell.run(("sh", "-c", _SWEEP, "sh", variable), timeout_s=20)
    return tuple(sorted(int(pid) for pid in found.stdout.split()))


def kill_processes(root: str, name: str, *, shell: Shell) -> tuple[int, ...]:
    """Kills what is left of a program at once; the pids that were."""
    pids = processes(root, name, shell=shell)
    if pids:
        shell.run(("kill", "-KILL", *(str(pid) for pid in pids)), timeout_s=10)
    return pids


def exit_words(status: int) -> str:
    """How a process ended, from its exit code (negative: minus the signal's number)."""
    if status >= 0:
        return f"exit code {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"

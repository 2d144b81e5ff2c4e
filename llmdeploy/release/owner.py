"""Who acts on a host: user, host and the process, so that a dead one is told from a busy one."""

from llmdeploy.document import Document
from llmdeploy.edge import Shell

_ASK = "id -un; uname -n; echo $PPID"
_BOOT = "/proc/sys/kernel/random/boot_id"
_START_FIELD = 19
"""Start time, counted after the program's name. Source: proc_pid_stat(5), field 22."""


class Owner(Document):
    """A process on a host. Pid, start and boot together never name another process."""

    user: str
    host: str
    pid: int
    start_ticks: int | None
    """Clock ticks between boot and the process's start; None where /proc does not say."""
    boot: str

    @property
    def actor(self) -> str:
        """`user@host`, as the journal writes it."""
        return f"{self.user}@{self.host}"


def whoami(*, shell: Shell) -> Owner:
    """The process that runs commands through `shell` (over SSH: its session on the host)."""
    lines = shell.run(("sh", "-c", _ASK), timeout_s=10).stdout.split()
    user, host, pid = lines if len(lines) == 3 else ("unknown", "unknown", "0")
    number = int(pid)
    return Owner(
        user=user, host=host, pid=number, start_ticks=_start(number, shell), boot=_boot(shell)
    )


def is_alive(owner: Owner, *, shell: Shell) -> bool:
    """Whether that very process still runs on this boot of the host."""
    if owner.boot != _boot(shell):
        return False
    start_ticks = _start(owner.pid, shell)
    return start_ticks is not None and start_ticks == owner.start_ticks


def _boot(shell: Shell) -> str:
    return (shell.read(_BOOT) or b"unknown").decode().strip()


def _start(pid: int, shell: Shell) -> int | None:
    stat = shell.read(f"/proc/{pid}/stat")
    if not stat:
        return None
    state, *fields = stat.decode(errors="replace").rpartition(")")[2].split()
    return None if state in ("Z", "X") else int(fields[_START_FIELD - 1])

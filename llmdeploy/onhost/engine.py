"""The engine's processes of one rank on this host, and the shared memory they leave."""

import contextlib
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Callable

SHARED = pathlib.Path("/dev/shm")
MARK = "LLMDEPLOY_RANK"
NAMES = ("psm_", "sem.mp-", "vllm", "nccl-", "torch_", "sglang", "sm_")
"""How segments of engines begin: Python's shared memory and semaphores, vLLM's, NCCL's, torch's."""
VITAL = ("VLLM::", "sglang::")
"""How engines title processes that a rank cannot do without.

Source: vLLM 0.32 `set_process_title`, SGLang 0.5.23 `setproctitle`."""
SEARCH_S = 2.0
"""Between two looks at all processes for such. Source: own choice."""
OWN_WORDS_S = 5.0
"""What an engine gets to end by itself, and to log why, once one is gone: vLLM's may take its whole
drain time. Source: own choice; 0.9 to 33 s in own runs."""
RESOLVER = {"RES_OPTIONS": "timeout:1 attempts:2"}
"""torch asks for the name behind each peer's address, in a form that /etc/hosts cannot answer
(::ffff:10.0.0.1): where no name server answers, a group took 10 s longer to form.

Source: torch 2.13 c10d `socket.cpp`; own runs on hosts without a name server."""


class Engine:
    """One rank's engine: its process, all that come of it, and their shared memory."""

    def __init__(self, argv: list[str], env: dict[str, str], *, cwd: str, name: str) -> None:
        self._argv, self._cwd, self._name = argv, cwd, name
        # setproctitle writes titles over the environment that /proc shows, unless told not to
        self._env = {**RESOLVER, **os.environ, **env, MARK: name, "SPT_NOENV": "1"}
        self._process: subprocess.Popen[bytes] | None = None
        self._seen: set[str] = set()
        self._mine: set[str] = set()
        self._vital: dict[int, tuple[str, str]] = {}
        self._searched_s, self._gone_s = 0.0, 0.0

    def start(self) -> None:
        """The engine runs in a session of its own, with this program's output."""
        self._seen = set(_segments())
        self._process = subprocess.Popen(
            self._argv, cwd=self._cwd, env=self._env, stdin=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip

    @property
    def started(self) -> bool:
        return self._process is not None

    def ended(self) -> str | None:
        """How it ended, in words; None while it runs or before it was started."""
        if self._process is None or self._process.poll() is None:
            return None
        return exit_words(self._process.returncode)

    def lost(self) -> str | None:
        """Which process that it cannot do without is gone while it still runs, in words."""
        now_s = time.monotonic()
        if self.started and now_s - self._searched_s > SEARCH_S:
            self._searched_s = now_s
            for pid in self.processes():
                title, born = _title(pid), _born(pid)
                if title.startswith(VITAL) and born is not None:
                    self._vital[pid] = title, born
        gone = [title for pid, (title, born) in self._vital.items() if _born(pid) != born]
        if not gone:
            return None
        self._gone_s = self._gone_s or now_s
        return f"{gone[0]} is gone" if now_s - self._gone_s > OWN_WORDS_S else None

    def note_segments(self) -> None:
        """Remembers which new segments of shared memory are this engine's."""
        new = {name: number for name, number in _segments().items() if name not in self._seen}
        if new:
            held = _held(self.processes())
            self._mine |= {name for name, number in new.items() if number in held}
            self._seen |= self._mine

    def stop(self, *, grace_s: float, meanwhile: Callable[[], object]) -> int:
        """The engine, its children and its segments are gone; how many had to be killed.

        It gets `grace_s` to end by itself; `meanwhile` is called while it does.
        """
        self.note_segments()
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            deadline_s = time.monotonic() + grace_s
            while self._process.poll() is None and time.monotonic() < deadline_s:
                time.sleep(0.05)
                self.note_segments()
                meanwhile()
        return self.clear()

    def clear(self) -> int:
        """Kills what is left of this rank, also of a former start, and removes its segments."""
        killed = 0
        for _ in range(100):
            alive = self.processes()
            if not alive:
                break
            self._mine |= _named(_held(alive))
            for pid in alive:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
            if self._process is not None:
                self._process.poll()
            time.sleep(0.05)
        in_use = _named(_held(_all_processes()))
        for name in (self._mine | self._born()) - in_use:
            with contextlib.suppress(OSError):
                (SHARED / name).unlink()
        return killed

    def _born(self) -> set[str]:
        """Segments of this user that came since the engine started, named as engines name theirs:
        one that died between two looks has left some that nobody holds."""
        if not self.started:
            return set()
        found = set()
        for name in _segments().keys() - self._seen:
            with contextlib.suppress(OSError):
                if name.startswith(NAMES) and (SHARED / name).stat().st_uid == os.getuid():
                    found.add(name)
        return found

    def processes(self) -> tuple[int, ...]:
        """Pids of the engine and of all that came of it, orphans too."""
        session = self._process.pid if self._process is not None else None
        mine = set(marked(self._name))
        return tuple(
            pid for pid in _all_processes() if (_session(pid) == session and session) or pid in mine
        )


def marked(name: str) -> tuple[int, ...]:
    """Pids of all that came of the engine of the rank of that name."""
    wanted = f"{MARK}={name}".encode()
    return tuple(pid for pid in _all_processes() if wanted in _environment(pid))


def exit_words(code: int) -> str:
    """An exit code in words; negative is minus the signal's number."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _all_processes() -> tuple[int, ...]:
    return tuple(int(name) for name in os.listdir("/proc") if name.isdigit())


def _environment(pid: int) -> list[bytes]:
    try:
        return pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _session(pid: int) -> int | None:
    """The session of a process that is no zombie."""
    fields = _stat(pid)
    return None if fields is None else int(fields[3])


def _born(pid: int) -> str | None:
    """When a process that is no zombie began, in ticks: with its number, that very process."""
    fields = _stat(pid)
    return None if fields is None else fields[19]


def _stat(pid: int) -> list[str] | None:
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else fields


def _title(pid: int) -> str:
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text(errors="replace").partition("\0")[0]
    except OSError:
        return ""


def _segments() -> dict[str, int]:
    """Name to file number of every segment on the host."""
    found = {}
    with contextlib.suppress(OSError):
        for entry in os.scandir(SHARED):
            with contextlib.suppress(OSError):
                found[entry.name] = entry.inode()
    return found


def _named(numbers: set[int]) -> set[str]:
    return {name for name, number in _segments().items() if number in numbers}


def _held(pids: tuple[int, ...]) -> set[int]:
    """File numbers in /dev/shm that the processes map or have open.

    Names would not do: `sem_open` maps a semaphore under another name, and renames it.
    """
    found: set[int] = set()
    start = f"{SHARED}/"
    for pid in pids:
        with contextlib.suppress(OSError):
            maps = pathlib.Path(f"/proc/{pid}/maps").read_text(errors="replace")
            found |= {int(line.split()[4]) for line in maps.splitlines() if start in line}
            for number in os.listdir(f"/proc/{pid}/fd"):
                path = f"/proc/{pid}/fd/{number}"
                if os.readlink(path).startswith(start):
                    found.add(os.stat(path).st_ino)
    return found

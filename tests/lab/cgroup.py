"""The control groups of one booted host, in cgroup v2, v1 or both."""

import contextlib
import os
import pathlib
import signal
import time

from .needs import CGROUPS

_WANTED = ("unified", "systemd", "memory", "cpu", "cpuacct", "freezer", "pids")


class Cgroup:
    """All groups of one name; the host's init makes its own below them."""

    def __init__(self, name: str) -> None:
        whole = (CGROUPS / "cgroup.controllers").exists()
        roots = [CGROUPS] if whole else [CGROUPS / c for c in _WANTED if (CGROUPS / c).is_dir()]
        self._folders = [root / name for root in roots]

    @property
    def entering(self) -> str:
        """sh that moves the shell itself into all of them."""
        return "".join(
            f"mkdir -p {folder}; echo $$ >{folder}/cgroup.procs; " for folder in self._folders
        )

    def make(self) -> None:
        for folder in self._folders:
            folder.mkdir(exist_ok=True)

    def processes(self) -> list[int]:
        """Every process in the groups and below."""
        found: list[int] = []
        for folder, _, _ in os.walk(self._folders[0]):
            with contextlib.suppress(OSError):
                text = (pathlib.Path(folder) / "cgroup.procs").read_text()
                found += [int(word) for word in text.split() if word != "0"]
        return found

    def freeze(self, *, frozen: bool) -> None:
        """As a hung host: its kernel still acknowledges, nothing in it answers."""
        for folder in self._folders:
            if (folder / "cgroup.freeze").exists():
                (folder / "cgroup.freeze").write_text("1" if frozen else "0")
                return
        for folder in self._folders:
            if (folder / "freezer.state").exists():
                (folder / "freezer.state").write_text("FROZEN" if frozen else "THAWED")
                return
        raise AssertionError("no cgroup of this machine can be frozen")

    def limit_memory(self, memory_bytes: int) -> None:
        for folder in self._folders:
            for name in ("memory.max", "memory.limit_in_bytes"):
                if (folder / name).exists():
                    (folder / name).write_text(str(memory_bytes))
                    return
        raise AssertionError("no cgroup of this machine limits memory")

    def kill(self, *, limit_s: float = 10.0) -> None:
        """Ends every process at once."""
        deadline_s = time.monotonic() + limit_s
        while pids := self.processes():
            for pid in pids:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            assert time.monotonic() < deadline_s, f"processes {pids} do not end"
            time.sleep(0.02)

    def remove(self) -> None:
        for folder in self._folders:
            for below, _, _ in os.walk(folder, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(below)

"""Ranks of a group as processes on this machine, with an engine that only pretends."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from llmdeploy.release.aboard import archive

ENGINE = """
import mmap, os, signal, socket, subprocess, sys, time
port, name, head = int(sys.argv[1]), sys.argv[2], sys.argv[3] == "0"
segment = open("/dev/shm/" + name, "w+b")
segment.truncate(4096)
held = mmap.mmap(segment.fileno(), 4096)
import multiprocessing
lock = multiprocessing.get_context("spawn").Lock()
wait = ["-c", "import time; time.sleep(600)"]
subprocess.Popen([sys.executable, *wait], start_new_session=True)
subprocess.Popen(["VLLM::Worker", *wait], executable=sys.executable)
if head:
    if os.path.exists(sys.argv[5]):
        time.sleep(float(open(sys.argv[5]).read()))
    server = socket.create_server(("127.0.0.1", port))
print("engine of", name, "is up", flush=True)
if os.path.exists(sys.argv[4]):
    sys.exit(3)
time.sleep(600)
"""
"""Holds shared memory, has a worker and a child in a session of its own; the head listens."""


def free_port() -> int:
    """A TCP port of loopback that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Ranks:
    """The keepers of one group."""

    folder: pathlib.Path
    hosts: int = 2
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.before = set(os.listdir("/dev/shm"))
        self.group_port, self.rendezvous_port = free_port(), free_port()
        self.program = self.folder / "onhost.pyz"
        self.program.write_bytes(archive())

    def segment(self, position: int) -> pathlib.Path:
        return pathlib.Path("/dev/shm", f"llmdeploy-test-{self.group_port}-{position}")

    def flaw(self, position: int) -> pathlib.Path:
        """Where this file is, the rank's engine ends with exit code 3."""
        return self.folder / f"flaw-{position}"

    def late(self, position: int) -> pathlib.Path:
        """Where this file is, it says after how many seconds the rank's engine listens."""
        return self.folder / f"late-{position}"

    def spec(self, position: int, **changes: Any) -> dict[str, Any]:
        return {
            "name": f"test/{self.group_port}/{position}",
            "position": position,
            "hosts": self.hosts,
            "address": "127.0.0.1",
            "group_port": self.group_port,
            "token": "secret",
            "rendezvous_port": self.rendezvous_port,
            "argv": [
                sys.executable, "-c", ENGINE, str(self.rendezvous_port),
                self.segment(position).name, str(position), str(self.flaw(position)),
                str(self.late(position)),
            ],
            "env": [],
            "cwd": str(self.folder),
            "events": str(self.folder / f"events-{position}.jsonl"),
            "start_timeout_s": 60.0,
            "stop_timeout_s": 5.0,
            "pulse": None,
        } | changes  # fmt: skip

    def start(self, position: int, **changes: Any) -> None:
        path = self.folder / f"spec-{position}.json"
        path.write_text(json.dumps(self.spec(position, **changes)))
        log = (self.folder / f"log-{position}").open("ab")
        with log:
            self.processes[position] = subprocess.Popen(
                [sys.executable, "-I", "-S", str(self.program), "keep", str(path)],
                stdout=log,
                stderr=log,
            )

    def events(self, position: int) -> list[dict[str, Any]]:
        path = self.folder / f"events-{position}.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]

    def log(self, position: int) -> str:
        return (self.folder / f"log-{position}").read_text()

    def await_event(self, position: int, event: str, *, limit_s: float = 60) -> dict[str, Any]:
        """The event once it is there."""
        deadline_s = time.monotonic() + limit_s
        while time.monotonic() < deadline_s:
            for one in self.events(position):
                if one["event"] == event:
                    return one
            time.sleep(0.05)
        raise AssertionError(f"rank {position}: no {event}: {self.log(position)}")

    def engines(self) -> list[int]:
        """Pids of all that came of the group's engines."""
        found = []
        mark = f"LLMDEPLOY_RANK=test/{self.group_port}/".encode()
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z" and mark in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def left(self) -> list[str]:
        """What of the group is still there: nothing, once all keepers ended."""
        new = set(os.listdir("/dev/shm")) - self.before
        shared = sorted(name for name in new if name.startswith(("sem.mp-", "llmdeploy-test-")))
        return [*(str(pid) for pid in self.engines()), *shared]

    def close(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
        subprocess.run(["kill", "-9", *map(str, self.engines())], check=False, capture_output=True)
        for number in range(self.hosts):
            self.segment(number).unlink(missing_ok=True)

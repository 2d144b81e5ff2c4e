"""A service on this machine for end-to-end tests: files, commands, live load, and its end."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

ROOT = pathlib.Path(__file__).parents[2]

SERVICE = """
schema: 1
name: story
cluster: cluster.yaml
model: {{id: smollm2-135m-instruct}}
workload:
  peak_factor: 2
  input_tokens: {{mean: 40, p95: 100}}
  output_tokens: {{mean: 16, p95: 48}}
objectives: {{ttft_p95: 10s, tpot_p95: 2s, error_ratio: 0.1%}}
engine: {{max_model_len: 1024, max_num_batched_tokens: {batched_tokens}{drill}}}
gateway: {{port: {port}, key_rate: 500/s}}
release: {{steps: {steps}, min_requests: {min_requests}, step_timeout: 300s}}
"""


def free_port() -> int:
    """A TCP port of loopback that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Story:
    """One service's folder, its commands and its load."""

    folder: pathlib.Path
    store: pathlib.Path
    port: int
    good: str = ""
    """The first release, once it is live."""

    def command(self, *words: str) -> tuple[list[str], dict[str, str]]:
        """The argv and environment of a CLI call."""
        environment = {**os.environ, "LLMDEPLOY_STATE_ROOT": str(self.folder / "state")}
        return [sys.executable, "-m", "llmdeploy", *words], environment

    def run(
        self, *words: str, code: int | None = 0, cwd: pathlib.Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """The ended CLI call; fails the test when its exit code is another than `code`."""
        argv, environment = self.command(*words)
        done = subprocess.run(
            argv, env=environment, cwd=cwd or self.folder, capture_output=True, text=True
        )
        shown = f"llmdeploy {' '.join(words)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert code is None or done.returncode == code, shown
        return done

    def json(self, *words: str, code: int = 0) -> Any:
        """The artefact of a CLI call."""
        return json.loads(self.run(*words, "--json", code=code).stdout)

    def plan(
        self,
        name: str,
        *,
        batched_tokens: int = 512,
        drill: str = "",
        steps: str = "[5%, 25%, 50%, 100%]",
        min_requests: int = 15,
    ) -> pathlib.Path:
        """Plans a service of these settings; the plan's folder."""
        cluster = f"schema: 1\nstate_root: {self.folder}/state\nmodel_store: {self.store}\n"
        (self.folder / "cluster.yaml").write_text(cluster)
        text = SERVICE.format(
            batched_tokens=batched_tokens,
            drill=f", drill: {drill}" if drill else "",
            port=self.port,
            steps=steps,
            min_requests=min_requests,
        )
        (self.folder / f"{name}.yaml").write_text(text)
        planned = self.json("plan", f"{name}.yaml", "--out", "plans")
        return self.folder / "plans" / "story" / str(planned["id"])

    def launch(self, plan: pathlib.Path) -> str:
        """Launches a plan dark; the release's id."""
        self.run("launch", str(plan), "--yes")
        return plan.name

    def first_release(self) -> None:
        """Plans, launches and verifies the good first release and makes a key."""
        self.good = self.launch(self.plan("good"))
        self.run("verify", "story", "--yes")
        key = self.run("keys", "add", "story", "--client", "tests", "--rate", "500/s", "--yes")
        (self.folder / "key").write_text(key.stdout.strip())

    def only_good(self) -> None:
        """Stops every other release; fails where the good one does not carry all traffic."""
        status = self.json("status", "story")
        assert status["weights"] == [{"release": self.good, "share": 1.0}]
        for release in status["releases"]:
            if release["id"] != self.good and release["endpoints"]:
                self.run("stop", "story", "--release", release["id"], "--yes")

    @contextmanager
    def load(self, *, clients: int = 32, max_tokens: int = 16) -> Iterator[list[dict[str, Any]]]:
        """Streaming clients while the block runs; the list holds their records after it."""
        records: list[dict[str, Any]] = []
        out = self.folder / f"load-{time.monotonic_ns()}.json"
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "examples" / "load.py"),
             "--url", f"http://127.0.0.1:{self.port}", "--key-file", str(self.folder / "key"),
             "--clients", str(clients), "--max-tokens", str(max_tokens),
             "--seconds", "1800", "--json", str(out)],
        )  # fmt: skip
        try:
            yield records
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=180)
        records.extend(json.loads(out.read_text()))

    def close(self) -> None:
        """Stops everything; fails when a process of this folder is left."""
        self.run("stop", "story", "--purge", "--yes", code=None)
        left = processes_naming(str(self.folder))
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert not left, f"left running: {left}"


def processes_naming(text: str) -> list[int]:
    """Ids of processes with `text` in their command line, this one and shells around it aside."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) not in (os.getpid(), os.getppid()):
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if text in words:
                found.append(int(entry.name))
    return found


def harmed(records: list[dict[str, Any]], good: set[str]) -> list[dict[str, Any]]:
    """Requests that a good release, or the gateway itself, broke, refused or never answered."""
    return [r for r in records if r["kind"] != "ok" and (r["release"] in good or not r["release"])]


def without_ids(text: str) -> str:
    """Text with release and token ids made equal, so that two runs can be compared."""
    return re.sub(r"\b[0-9a-f]{12}\b", "ID", text)

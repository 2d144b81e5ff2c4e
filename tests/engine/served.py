"""Starts an engine process for a test and ends it by its id, whatever happens."""

import contextlib
import json
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import openai

HERE = pathlib.Path(__file__).parent
REAL = ("-W", "ignore", "-m", "llmdeploy.engine")
FAKE = (str(HERE / "fake_engine.py"),)
_START_TIMEOUT_S = 120.0


@dataclass(frozen=True, kw_only=True)
class Served:
    """A running engine."""

    process: subprocess.Popen[bytes]
    log: pathlib.Path
    url: str

    def client(self, **options: object) -> openai.OpenAI:
        """OpenAI's own client for this engine, which must be closed."""
        settings = {"base_url": f"{self.url}/v1", "api_key": "none", "max_retries": 0, **options}
        return openai.OpenAI(**settings)

    def get(self, path: str) -> httpx.Response:
        """The answer to GET."""
        return httpx.get(self.url + path, timeout=30)

    def post(self, path: str, body: object) -> httpx.Response:
        """The answer to POST of JSON, or of bytes as they are."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return httpx.post(self.url + path, content=content, timeout=60)

    def metric(self, name: str) -> float:
        """One sample of /metrics by its name with labels; 0 where there is none."""
        for line in self.get("/metrics").text.splitlines():
            if line.startswith(f"llmdeploy_engine_{name} "):
                return float(line.rsplit(" ", 1)[1])
        return 0.0

    def events(self) -> list[dict[str, object]]:
        """The JSON lines of the log."""
        lines = self.log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def wait_for(self, holds, timeout_s: float = 30.0) -> None:
        """Asks until `holds()`; fails past the time."""
        deadline_s = time.monotonic() + timeout_s
        while not holds():
            assert time.monotonic() < deadline_s, self.log.read_text()[-3000:]
            time.sleep(0.02)

    def terminate(self) -> int:
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


@contextlib.contextmanager
def serving(
    folder: pathlib.Path, *options: str, program: tuple[str, ...] = FAKE, phase: str = "ready"
) -> Iterator[Served]:
    """An engine on a free port that has reached `phase`; `folder` holds its log."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "engine.log"
    argv = [sys.executable, *program, "--port", "0", *options]
    with log.open("wb") as file:
        process = subprocess.Popen(argv, stderr=file, stdout=file, cwd=HERE.parents[1])
    try:
        served = Served(process=process, log=log, url=_url(process, log))
        served.wait_for(lambda: served.get("/ready").json()["phase"] == phase, _START_TIMEOUT_S)
        yield served
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def _url(process: subprocess.Popen[bytes], log: pathlib.Path) -> str:
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline_s and process.poll() is None:
        for line in log.read_text().splitlines():
            if line.startswith("{") and '"listening"' in line:
                return f"http://127.0.0.1:{json.loads(line)['port']}"
        time.sleep(0.02)
    raise AssertionError(f"did not listen: {log.read_text()[-3000:]}")

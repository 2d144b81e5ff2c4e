"""What `llmdeploy launch` adds to the engine's own start, on this machine.

    python -m tests.bench.launch --rounds 3              one host, the embedded engine
    python -m tests.bench.launch --rounds 3 --hosts 2    booted hosts and vLLM's CPU build; root

In turns: the launch of a plan, from the command to its end (ready, dark), and the very same
engine command by hand, until it says that it is ready. The gateway runs already, as for every
release but a service's first. Shown are both, the difference, and where the launch's time went.
"""

import argparse
import itertools
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

from tests.bench import launch_group
from tests.end_to_end.story import Story, free_port

STORE = pathlib.Path(os.environ.get("LLMDEPLOY_TEST_CACHE", "~/.cache/llmdeploy-tests"))
READY_LIMIT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """An engine as the launch started it."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    port: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hosts", type=int, default=1, help="booted hosts of a group (default 1)")
    wanted = parser.parse_args()
    store = STORE.expanduser() / "models"
    if wanted.hosts > 1:
        made = sorted(STORE.expanduser().glob("vllm-*/whole"))
        assert made, "vLLM's CPU build is not there: ./tests/engines.sh"
        python = str(made[-1].parent / "bin" / "python")
        launch_group.measure(wanted.rounds, hosts=wanted.hosts, python=python, store=store)
        return
    folder = pathlib.Path(tempfile.mkdtemp(prefix="llmdeploy-bench-"))
    story = Story(folder=folder, store=store, port=free_port())
    try:
        story.first_release()
        _measure(story, wanted.rounds)
    finally:
        story.close()
        shutil.rmtree(folder, ignore_errors=True)


def _measure(story: Story, rounds: int) -> None:
    plan = story.plan("beside", batched_tokens=256)
    added = []
    for number in range(rounds):
        launch_s = _timed(story.launch, plan)
        engine = _command(story, plan.name)
        print(f"round {number + 1}: launch {launch_s:.2f} s, of that {_phases(story, plan.name)}")
        story.run("stop", "story", "--release", plan.name, "--yes")
        bare_s = _timed(_start, engine)
        added.append(launch_s - bare_s)
        print(f"  the engine alone {bare_s:.2f} s: the launch adds {added[-1]:+.2f} s", flush=True)
    print(f"median: {statistics.median(added):+.2f} s")


def _timed(task: Callable[[Any], object], given: Any) -> float:
    begun_s = time.monotonic()
    task(given)
    return time.monotonic() - begun_s


def _command(story: Story, release: str) -> Command:
    """The release's engine, found by its port."""
    seen = next(r for r in story.json("status", "story")["releases"] if r["id"] == release)
    port = int(seen["endpoints"][0]["port"])
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            argv = tuple((folder / "cmdline").read_bytes().decode().split("\0")[:-1])
            lines = (folder / "environ").read_bytes().decode().split("\0")[:-1]
        except OSError:
            continue
        if "llmdeploy.engine" in argv and str(port) in argv:
            environment = dict(line.split("=", 1) for line in lines)
            return Command(argv=argv, environment=environment, port=port)
    raise AssertionError(f"no engine on port {port}")


def _start(engine: Command) -> None:
    """The engine by hand, until it is ready; then it is ended, which costs nothing here."""
    process = subprocess.Popen(
        engine.argv, env=engine.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _await_ready(f"http://127.0.0.1:{engine.port}/ready")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def _await_ready(url: str) -> None:
    deadline_s = time.monotonic() + READY_LIMIT_S
    while time.monotonic() < deadline_s:
        try:
            if httpx.get(url, timeout=5).json().get("phase") == "ready":
                return
        except (httpx.HTTPError, ValueError):
            pass
        time.sleep(0.05)
    raise AssertionError(f"{url}: not ready after {READY_LIMIT_S:g} s")


def _phases(story: Story, release: str) -> str:
    path = story.folder / "state/story/journal.jsonl"
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    mine = [e for e in entries if e.get("release") == release and e["data"].get("phase")]
    steps = [
        f"{after['data']['phase']} {after['at_s'] - before['at_s']:.2f} s"
        for before, after in itertools.pairwise(mine)
    ]
    return ", ".join(steps[-8:])


if __name__ == "__main__":
    main()

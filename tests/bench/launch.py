"""What `llmdeploy launch` adds to the engine's own start, on this machine.

    python -m tests.bench.launch --rounds 3              one host, the embedded engine
    python -m tests.bench.launch --rounds 3 --hosts 2    booted hosts and vLLM's CPU build; root

In turns: the launch of a plan, from the command to its end (ready, dark), and the very same
engine command by hand, until it says that it is ready and has answered the requests that launch
proves it with. The gateway runs already, as for every release but a service's first. Shown are
both, the difference, and where the launch's time went.
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
from dataclasses import dataclass

import httpx

from tests.bench import launch_group
from tests.bench.proven import prove
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
        begun_s = time.time()
        story.launch(plan)
        launch_s = time.time() - begun_s
        engine = _command(story, plan.name)
        spent = _phases(story, plan.name, begun_s)
        print(f"round {number + 1}: launch {launch_s:.2f} s, of that {spent}")
        story.run("stop", "story", "--release", plan.name, "--yes")
        ready_s, proven_s = _by_hand(plan, engine)
        added.append(launch_s - proven_s)
        print(
            f"  by hand {proven_s:.2f} s, ready after {ready_s:.2f} s: the launch adds "
            f"{added[-1]:+.2f} s",
            flush=True,
        )
    print(f"median: {statistics.median(added):+.2f} s")


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


def _by_hand(plan: pathlib.Path, engine: Command) -> tuple[float, float]:
    """Seconds until it is ready, and until it has answered; then it is ended, which costs nothing
    here."""
    begun_s = time.monotonic()
    process = subprocess.Popen(
        engine.argv, env=engine.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _await_ready(f"http://127.0.0.1:{engine.port}/ready")
        ready_s = time.monotonic() - begun_s
        prove(plan, address="127.0.0.1", port=engine.port)
        return ready_s, time.monotonic() - begun_s
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


def _phases(story: Story, release: str, begun_s: float) -> str:
    """How long each phase took since then, the first from the command on."""
    path = story.folder / "state/story/journal.jsonl"
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    mine = [e for e in entries if e.get("release") == release and e["data"].get("phase")]
    reached = [(e["data"]["phase"], e["at_s"]) for e in mine if e["at_s"] >= begun_s]
    steps = itertools.pairwise([("begun", begun_s), *reached])
    return ", ".join(f"{phase} {at_s - before_s:.2f} s" for (_, before_s), (phase, at_s) in steps)


if __name__ == "__main__":
    main()

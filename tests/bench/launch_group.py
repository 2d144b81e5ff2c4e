"""What `llmdeploy launch` adds to a group's own start: vLLM's CPU build over booted hosts.

Used by `python -m tests.bench.launch --hosts 2`. In turns: the launch, and the very same commands
by hand on all hosts at the same time, until the head lists its model and has answered the requests
that launch proves it with. The gateway runs and the model lies on the hosts already.
"""

import os
import pathlib
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

import httpx

from tests.bench.proven import prove
from tests.end_to_end.story import free_port
from tests.lab.bed import Bed
from tests.lab.cluster_story import ClusterStory, one_core_each, phases
from tests.lab.machine import Machine

READY_LIMIT_S = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A rank's engine as the launch started it."""

    machine: Machine
    core: int
    argv: tuple[str, ...]
    environment: tuple[str, ...]


def measure(rounds: int, *, hosts: int, python: str, store: pathlib.Path) -> None:
    """Prints both, the difference, and where the launch's time went."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="llmdeploy-bench-"))
    venv = pathlib.Path(python).parents[1]
    shared = (str(venv), sys.base_prefix)
    try:
        with Bed(
            folder / "b", size=hosts, name="ldl", prefix="10.88", disk="2g", shared=shared
        ) as bed:
            one_core_each(bed)
            story = ClusterStory(
                bed,
                python=python,
                version=venv.name.removeprefix("vllm-"),
                store=store,
                port=free_port(),
            )
            try:
                _rounds(story, rounds)
            finally:
                story.run("stop", "chat", "--yes", "--purge", code=None)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _rounds(story: ClusterStory, rounds: int) -> None:
    plan = story.plan()
    story.launch(plan)
    story.run("stop", "chat", "--release", plan.name, "--yes")
    added = []
    for number in range(rounds):
        begun_s = time.monotonic()
        story.launch(plan)
        launch_s = time.monotonic() - begun_s
        print(f"round {number + 1}: launch {launch_s:.2f} s, of that {phases(story, plan.name)}")
        commands = _commands(story)
        story.run("stop", "chat", "--release", plan.name, "--yes")
        ready_s, proven_s = _by_hand(story, plan, commands)
        added.append(launch_s - proven_s)
        print(
            f"  by hand {proven_s:.2f} s, {ready_s:.2f} s until the model was listed: the launch "
            f"adds {added[-1]:+.2f} s",
            flush=True,
        )
    print(f"median: {statistics.median(added):+.2f} s")


def _commands(story: ClusterStory) -> list[Command]:
    cores = sorted(os.sched_getaffinity(0))
    found = []
    for number, machine in enumerate(story.bed.machines):
        listed = machine.run("ps", "-ww", "-eo", "pid=,args=").splitlines()
        (pid,) = (line.split()[0] for line in listed if "entrypoints.cli.main serve" in line)
        argv = machine.run("cat", f"/proc/{pid}/cmdline").split("\0")[:-1]
        environment = machine.run("cat", f"/proc/{pid}/environ").split("\0")[:-1]
        core = cores[number % len(cores)]
        found.append(
            Command(machine=machine, core=core, argv=tuple(argv), environment=tuple(environment))
        )
    return found


def _by_hand(
    story: ClusterStory, folder: pathlib.Path, commands: list[Command]
) -> tuple[float, float]:
    """Seconds until the head lists its model, and until it has answered as for launch."""
    head, address = commands[0], story.bed.machines[0].address
    port = int(head.argv[head.argv.index("--port") + 1])
    begun_s = time.monotonic()
    processes = [_start(command) for command in commands]
    try:
        _await_listed(f"http://{address}:{port}/v1/models")
        ready_s = time.monotonic() - begun_s
        prove(folder, address=address, port=port)
        return ready_s, time.monotonic() - begun_s
    finally:
        for command in commands:
            command.machine.run("sh", "-c", "pkill -9 -i vllm; pkill -9 -f vllm.entr[y]; true")
            command.machine.run("sh", "-c", "rm -f /dev/shm/*")
        for process in processes:
            process.wait()


def _start(command: Command) -> subprocess.Popen[bytes]:
    """The engine on its host and core, as the host's init would start it."""
    line = shlex.join(("env", "-i", *command.environment, *command.argv))
    inside = ("taskset", "-c", str(command.core), "setsid", "sh", "-c", f"exec {line}")
    return subprocess.Popen(
        command.machine.entering(*inside),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _await_listed(url: str) -> None:
    deadline_s = time.monotonic() + READY_LIMIT_S
    while time.monotonic() < deadline_s:
        try:
            if httpx.get(url, timeout=5).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.05)
    raise AssertionError(f"{url}: not there after {READY_LIMIT_S:g} s")

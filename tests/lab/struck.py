"""What strikes a group of real vLLM on the second host, and what is on a host meanwhile."""

import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from .cluster_story import ClusterStory
from .machine import Machine


@dataclass(frozen=True)
class Fault:
    """What strikes node2, and what the head's keeper must tell of it."""

    strike: Callable[[ClusterStory], object]
    mend: Callable[[ClusterStory], object]
    told: str
    within_s: float
    """Until it is noticed and the head's engine is gone: ranks wait 10 s for a silent one
    (onhost/group.py), engines get 2 s to end (onhost/keep.py), and the cores are crowded."""


HOLDER = """
import socket, time
for _ in range(180):
    held = socket.socket()
    try:
        held.bind(("{address}", {port}))
        break
    except OSError:
        held.close()
        time.sleep(0.5)
else:
    raise SystemExit("{address}:{port} stays taken")
if {listens}:
    held.listen()
print("held", flush=True)
input()
"""


def second(story: ClusterStory) -> Machine:
    return story.bed.machines[1]


def processes(machine: Machine, words: str) -> list[str]:
    """Numbers of its processes with the words in their command line."""
    lines = machine.run("ps", "-ww", "-eo", "pid=,args=").splitlines()
    return [line.split()[0] for line in lines if words in line]


def inventory(machine: Machine) -> tuple[int, int, int]:
    """How many engines, workers and segments of shared memory are on the host."""
    engines = len(processes(machine, "entrypoints.cli.main serve"))
    workers = len(processes(machine, "VLLM::Worker"))
    return engines, workers, len(machine.run("ls", "/dev/shm").split())


def boot_id(machine: Machine) -> str:
    """Another one after each boot."""
    return machine.run("cat", "/proc/sys/kernel/random/boot_id").strip()


@contextmanager
def holding(machine: Machine, port: int, *, listens: bool) -> Iterator[None]:
    """Another program has the port on the host; one that does not listen shows in no list.

    It waits until the kernel lets go of connections that an engine had there before (60 s).
    """
    code = HOLDER.format(address=machine.address, port=port, listens=listens)
    with subprocess.Popen(
        machine.entering("/usr/bin/python3", "-c", code),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as holder:  # fmt: skip
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        try:
            yield
        finally:
            holder.communicate(b"\n", timeout=20)


def _kill(words: str) -> Callable[[ClusterStory], object]:
    def strike(story: ClusterStory) -> None:
        (pid,) = processes(second(story), words)
        second(story).run("kill", "-9", pid)

    return strike


def _nothing(story: ClusterStory) -> None:
    """The group mends itself."""


FAULTS = {
    "kill -9 of a worker": Fault(_kill("VLLM::Worker"), _nothing, "the engine", 20.0),
    "kill -9 of the second host's vllm serve": Fault(
        _kill("entrypoints.cli.main serve"), _nothing, "killed by SIGKILL", 10.0
    ),
    "a frozen host": Fault(
        lambda story: second(story).freeze(),
        lambda story: second(story).thaw(),
        "rank 1 said nothing",
        25.0,
    ),
    "a cut link": Fault(
        lambda story: story.bed.network.cut(second(story).plug),
        lambda story: story.bed.network.heal(second(story).plug),
        "rank 1 said nothing",
        25.0,
    ),
    "a reboot of the second host": Fault(
        lambda story: second(story).run("systemctl", "--no-block", "reboot"),
        _nothing,
        "rank 1 was told to stop",
        20.0,
    ),
}


@dataclass(frozen=True)
class Refusal:
    """What is wrong before a launch, and what that must say."""

    told: tuple[str, ...]
    within_s: float
    """Until the launch has ended, on crowded cores."""
    plan: Mapping[str, Any] = field(default_factory=dict)


ELSEWHERE = "10.255.255.2"
REFUSALS = {
    "an address that the host does not have": Refusal(
        ("node2: found the addresses", f"needed {ELSEWHERE} among them"),
        20.0,
        plan={"addresses": {"node2": ELSEWHERE}},
    ),
    "tensors that do not divide": Refusal(
        (
            "heads or widths cannot be divided over so many devices",
            "heads (9) must be divisible by tensor parallel size (2)",
        ),
        120.0,
        plan={"model": "smollm2-135m-instruct"},
    ),
}

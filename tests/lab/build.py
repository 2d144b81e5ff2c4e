"""Builds what hosts are given: a GPU driver's library and tool, and a clock that is wrong."""

import pathlib
from dataclasses import dataclass

from .sshd import run

SOURCES = pathlib.Path(__file__).with_name("native")


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """The files, on this machine."""

    library: pathlib.Path
    """libnvidia-ml.so.1: what pynvml and engines load."""
    tool: pathlib.Path
    """nvidia-smi."""
    clock: pathlib.Path
    """Preloaded, it adds /etc/clock_offset to the time."""


def build(folder: pathlib.Path) -> Built:
    """All of them, with the C compiler of this machine."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Built(
        library=folder / "libnvidia-ml.so.1",
        tool=folder / "nvidia-smi",
        clock=folder / "skewed_clock.so",
    )
    shared = ("-shared", "-fPIC", "-fvisibility=hidden")
    _compile("fake_nvml.c", made.library, *shared)
    _compile("fake_smi.c", made.tool)
    _compile("skewed_clock.c", made.clock, "-shared", "-fPIC")
    return made


def ini(name: str) -> str:
    """One of the hosts' card files: `rtx4090x8` or `h100x8`."""
    return (SOURCES / f"{name}.ini").read_text()


def _compile(source: str, target: pathlib.Path, *options: str) -> None:
    run("gcc", "-Wall", "-Wextra", "-O1", *options, "-o", str(target), str(SOURCES / source))

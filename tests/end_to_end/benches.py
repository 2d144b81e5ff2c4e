"""A bench with real supervision: where its service stands and what is left of it."""

import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from llmdeploy.cli.context import make_site
from llmdeploy.release import journal, stop, supervise
from llmdeploy.release.layout import ServiceLayout
from llmdeploy.release.site import Site

from ..release.made import Bench

DEADLINE_S = 180.0


@contextmanager
def open_bench(folder: pathlib.Path) -> Iterator[Bench]:
    """A bench whose service is stopped, and checked for leftovers, in the end."""
    bench = Bench(folder)
    try:
        yield bench
    finally:
        stop.stop_service(purge=True, site=site_of(bench))
    for _ in range(50):  # what was just killed may still be on its way out
        if not leftovers(bench):
            break
        time.sleep(0.2)
    assert leftovers(bench) == []
    assert list(bench.state_root.glob("*")) == []


def site_of(bench: Bench) -> Site:
    layout = ServiceLayout(root=f"{bench.state_root}/chat")
    return make_site(layout, python=str(bench.python))


def leftovers(bench: Bench) -> list[str]:
    """Command lines of processes that belong to the bench."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
        except OSError:
            continue
        if f"{bench.folder}/".encode() in line and int(folder.name) != os.getpid():
            found.append(line.decode(errors="replace").replace("\0", " "))
    return found


def engines(site: Site, release: str) -> list[int]:
    """Pids of the bench's engine of that release, its child included."""
    name = supervise.engine_program(release, "r1")
    return list(supervise.processes(site.layout.root, name, shell=site.shell))


def engines_of(site: Site, release: str) -> list[int]:
    """Pids of all engine processes of that release."""
    state = journal.state(site.layout, shell=site.shell).release(release)
    names = [supervise.engine_program(release, e.replica) for e in state.endpoints]
    pids = [supervise.processes(site.layout.root, name, shell=site.shell) for name in names]
    return sorted(pid for found in pids for pid in found)


def command(*words: str, state_root: pathlib.Path) -> subprocess.Popen[str]:
    """`llmdeploy …` as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "llmdeploy", *words],
        env={**os.environ, "LLMDEPLOY_STATE_ROOT": str(state_root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(*words: str, state_root: pathlib.Path) -> tuple[int, str, str]:
    process = command(*words, state_root=state_root)
    stdout, stderr = process.communicate(timeout=DEADLINE_S)
    return process.returncode, stdout, stderr


def phases(state_root: pathlib.Path) -> list[str]:
    """Phases, and the names of other events, in the journal of the service chat."""
    path = state_root / "chat" / "journal.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    entries = [json.loads(line) for line in lines if line.endswith("}")]
    return [entry["data"].get("phase") or entry["event"] for entry in entries]

"""The probe's programs in a real Python: ports asked of the kernel, packages found untouched."""

import os
import pathlib
import socket
import subprocess
import sys

import pytest

from llmdeploy.edge.clock import SystemClock
from llmdeploy.edge.local import LocalShell
from llmdeploy.facts.bundle import HostFacts
from llmdeploy.facts.collect import Depth, Paths, collect

VERSION = """\
from typing import Optional

__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip']
__version__ = '2.9.0'
debug = False
cuda: Optional[str] = {cuda}
git_version = '0fabc3ba44823f257e70ce397d989c8de5e362c1'
hip: Optional[str] = {hip}
"""
"""As torch's builds have it."""


def _asked(folder: pathlib.Path, python: str) -> HostFacts:
    paths = Paths(state_root=f"{folder}/state", model_store=f"{folder}/m", service="c", model="x")
    shell, clock = LocalShell(), SystemClock()
    return collect("a", python, paths, depth=Depth.FIND, shell=shell, clock=clock).hosts[0]


@pytest.mark.parametrize("python", [sys.executable, "/nowhere/py"])
def test_a_listening_port_is_found_with_and_without_python(
    tmp_path: pathlib.Path, python: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address, port = server.getsockname()
        found = {(at.address, at.port): at for at in _asked(tmp_path, python).listeners or ()}
        listener = found[address, port]
    own = pathlib.Path("/proc/self/comm").read_text().strip()
    holder = None if python == "/nowhere/py" else f"{own} (pid {os.getpid()})"
    assert (listener.process, listener.ours) == (holder, False)


def test_an_open_connection_is_no_listening_port(tmp_path: pathlib.Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            found = {at.port for at in _asked(tmp_path, sys.executable).listeners or ()}
            own = client.getsockname()[1]
    assert port in found
    assert own not in found


@pytest.mark.parametrize(
    ("cuda", "hip", "version"),
    [("'12.8'", "None", "12.8"), ("None", "'6.4.43482'", "6.4.43482"), ("None", "None", None)],
)
def test_quick_reads_what_torch_is_built_for_and_imports_nothing(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    cuda: str,
    hip: str,
    version: str | None,
) -> None:
    for name in ("torch", "transformers"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("import os; os._exit(66)  # never imported")
    (tmp_path / "torch" / "version.py").write_text(VERSION.format(cuda=cuda, hip=hip))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    facts = _asked(tmp_path, sys.executable)
    told = {entry.name: (entry.duration_s, entry.error) for entry in facts.imports or ()}
    assert (told["torch"], told["transformers"]) == ((None, None), (None, None))
    assert (facts.problem("torch_cuda_version"), facts.torch_cuda_version) == (None, version)
    assert facts.torch_cuda_devices == (0 if version is None else None)
    assert facts.problem("architecture_known") == "not tried: --quick"


def test_quick_names_the_package_that_is_not_there(tmp_path: pathlib.Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    python.chmod(0o755)
    facts = _asked(tmp_path, str(python))
    told = {entry.name: entry.error for entry in facts.imports or ()}
    assert told["torch"] == "ModuleNotFoundError: No module named 'torch'"
    assert facts.problem("torch_cuda_version") == "the package it needs does not import"


def test_who_is_dead_at_both_looks_is_stuck(tmp_path: pathlib.Path) -> None:
    ended = subprocess.Popen(["true"])  # nobody waits for it: a zombie
    try:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        stuck = {
            entry.pid: entry for entry in _asked(tmp_path, "/nowhere/py").stuck_processes or ()
        }
    finally:
        ended.wait()
    assert (stuck[ended.pid].state, stuck[ended.pid].name) == ("Z", "true")

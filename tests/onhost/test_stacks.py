"""Stacks of a rank's processes by a py-spy that only pretends; the processes are real."""

import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from llmdeploy.onhost import stacks
from llmdeploy.onhost.engine import MARK


@pytest.fixture
def rank() -> Iterator[tuple[str, int]]:
    """Name and pid of a rank's process."""
    name = f"test/stacks/{os.getpid()}"
    process = subprocess.Popen(["sleep", "60"], env={**os.environ, MARK: name})
    yield name, process.pid
    process.kill()
    process.wait()


def environment(folder: pathlib.Path, script: str) -> str:
    """A Python whose environment has that py-spy."""
    (folder / "python").symlink_to(sys.executable)
    (folder / "py-spy").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "py-spy").chmod(0o755)
    return str(folder / "python")


def test_the_stacks_of_all_processes_of_the_rank_are_kept_for_its_owner_alone(
    tmp_path: pathlib.Path, rank: tuple[str, int]
) -> None:
    python, target = environment(tmp_path, 'echo "$1 of $3: all_reduce"'), tmp_path / "r0.stacks"
    assert stacks.dump(rank[0], python, target) == {"path": str(target), "dumped": 1}
    assert target.read_text() == f"== process {rank[1]}\ndump of {rank[1]}: all_reduce\n"
    assert target.stat().st_mode & 0o777 == 0o600


def test_what_py_spy_may_not_do_is_told(tmp_path: pathlib.Path, rank: tuple[str, int]) -> None:
    python = environment(tmp_path, 'echo "Permission Denied: try sudo" >&2; exit 1')
    assert stacks.dump(rank[0], python, tmp_path / "r0.stacks") == {
        "lacks": "py-spy could look into none of 1 processes: Permission Denied: try sudo"
    }


def test_an_environment_without_py_spy_lacks_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, rank: tuple[str, int]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert stacks.dump(rank[0], "/none/python", tmp_path / "r0.stacks") == {
        "lacks": "py-spy is neither beside /none/python nor in PATH"
    }


def test_a_rank_that_is_gone_has_no_stacks(tmp_path: pathlib.Path) -> None:
    python = environment(tmp_path, "echo never")
    told = stacks.dump("test/nobody", python, tmp_path / "r0.stacks")
    assert told == {"lacks": f"no process has {MARK}=test/nobody"}


def test_a_disk_that_takes_no_file_is_told(tmp_path: pathlib.Path, rank: tuple[str, int]) -> None:
    python = environment(tmp_path, "echo stacks")
    told = stacks.dump(rank[0], python, tmp_path / "none" / "r0.stacks")
    assert told == {"lacks": f"{tmp_path}/none/r0.stacks: No such file or directory"}

"""This machine as a host: what ends, what is killed, what lands on the disk."""

import os
import pathlib
import stat
import time

import pytest

from llmdeploy.edge.local import LocalShell
from llmdeploy.errors import InputError, Unreachable

SHELL = LocalShell()


def test_a_command_gives_its_exit_code_and_both_outputs() -> None:
    done = SHELL.run(["sh", "-c", "cat; echo oops >&2; exit 3"], timeout_s=10, stdin="in")
    assert (done.exit_code, done.stdout, done.stderr) == (3, "in", "oops\n")


def test_a_command_sees_the_given_environment() -> None:
    done = SHELL.run(["sh", "-c", "echo $GREETING"], timeout_s=10, env={"GREETING": "hello"})
    assert done.stdout == "hello\n"


def test_a_missing_program_is_named_with_a_fix() -> None:
    with pytest.raises(Unreachable, match="no-such-program cannot be started") as caught:
        SHELL.run(["no-such-program"], timeout_s=10)
    assert "install no-such-program" in caught.value.fix


def test_a_command_past_its_deadline_is_killed_with_its_children(tmp_path: pathlib.Path) -> None:
    pid_file = tmp_path / "pid"
    with pytest.raises(Unreachable, match=r"did not end in 0\.5 s"):
        SHELL.run(["sh", "-c", f"sleep 60 & echo $! > {pid_file}; wait"], timeout_s=0.5)
    child = int(pid_file.read_text())
    give_up_s = time.monotonic() + 10  # a killed process takes its signal when it next runs
    while runs(child):
        assert time.monotonic() < give_up_s, f"process {child} still runs"


def runs(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def test_a_written_file_is_whole_and_has_its_mode(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "a" / "secret")
    SHELL.write(path, b"one", mode=0o600)
    SHELL.write(path, b"two", mode=0o600)
    assert SHELL.read(path) == b"two"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert SHELL.entries(str(tmp_path / "a")) == ("secret",)


def test_create_succeeds_once(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "lock")
    assert SHELL.create(path, b"first")
    assert not SHELL.create(path, b"second")
    assert SHELL.read(path) == b"first"
    assert SHELL.entries(str(tmp_path)) == ("lock",)


def test_appended_lines_can_be_read_from_an_offset(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "journal")
    SHELL.append(path, b"one\n")
    SHELL.append(path, b"two\n")
    assert SHELL.read_from(path, offset_bytes=4) == b"two\n"
    assert SHELL.read_from(str(tmp_path / "none"), offset_bytes=0) == b""


def test_removing_takes_files_and_folders_and_tolerates_none(tmp_path: pathlib.Path) -> None:
    SHELL.write(str(tmp_path / "folder" / "file"), b"x")
    SHELL.remove(str(tmp_path / "folder"))
    SHELL.remove(str(tmp_path / "folder"))
    assert SHELL.read(str(tmp_path / "folder" / "file")) is None
    assert SHELL.entries(str(tmp_path)) == ()


def test_a_path_that_cannot_be_written_is_named_with_a_fix(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match=r"Not a directory|File exists") as caught:
        SHELL.write(str(tmp_path / "file" / "below"), b"x")
    assert "its disk has room" in caught.value.fix

"""The built package stands on its own: it starts anywhere and without torch."""

import importlib.metadata
import os
import pathlib
import subprocess
import sys
import zipfile

import pytest

from llmdeploy.cli.app import COMMANDS

ROOT = pathlib.Path(__file__).parents[1]


def _run(*argv: str, cwd: pathlib.Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False)


def test_help_lists_every_command_and_every_command_has_a_file(tmp_path: pathlib.Path) -> None:
    shown = _run(sys.executable, "-m", "llmdeploy", "--help", cwd=tmp_path).stdout
    for command in COMMANDS:
        assert f" {command} " in shown
        assert (ROOT / "llmdeploy" / "cli" / f"{command}.py").exists()


@pytest.mark.parametrize("command", list(COMMANDS))
def test_a_commands_help_opens_with_its_line_in_the_list(command: str) -> None:
    shown = _run(sys.executable, "-m", "llmdeploy", command, "--help", cwd=ROOT)
    assert shown.returncode == 0
    assert " ".join(COMMANDS[command].split()) in " ".join(shown.stdout.split())


@pytest.mark.parametrize("command", ["--help", "plan --help", "status --help"])
def test_the_command_line_starts_without_torch(command: str, tmp_path: pathlib.Path) -> None:
    program = (
        "import sys; sys.modules['torch'] = sys.modules['transformers'] = None\n"
        f"sys.argv = ['llmdeploy', *{command.split()!r}]\n"
        "from llmdeploy.cli.app import main; main()"
    )
    done = _run(sys.executable, "-c", program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.end_to_end
def test_the_wheel_builds_and_works_from_an_empty_folder(tmp_path: pathlib.Path) -> None:
    copied = _run("git", "clone", "-q", str(ROOT), str(tmp_path / "clone"), cwd=tmp_path)
    assert copied.returncode == 0, copied.stderr
    built = _run(
        sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), cwd=tmp_path / "clone"
    )
    assert built.returncode == 0, built.stderr
    wheel = next(tmp_path.glob("llmdeploy-*.whl"))
    unpacked = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
    assert not (unpacked / "plans").exists()
    empty = tmp_path / "empty"
    empty.mkdir()
    program = (
        "import sys; sys.argv = ['llmdeploy', '--help']\nfrom llmdeploy.cli.app import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=empty, env={**os.environ, "PYTHONPATH": str(unpacked)}, capture_output=True, text=True,
    )  # fmt: skip
    assert "preflight" in done.stdout, done.stderr
    for data in (
        "facts/probe.sh",
        "facts/probe_files.awk",
        "observe/signatures/memory.yaml",
        "py.typed",
    ):
        assert (unpacked / "llmdeploy" / data).exists(), data


def test_the_version_is_the_packages(tmp_path: pathlib.Path) -> None:
    shown = _run(sys.executable, "-m", "llmdeploy", "--version", cwd=tmp_path).stdout
    assert shown == f"llmdeploy {importlib.metadata.version('llmdeploy')}\n"

"""Makes a Python environment with an engine in it: whole, under its name, or not at all.

What it is made of is known before; what came of it (every package's version) is written last, into
the file that says it is whole. An environment is never changed after that: engines run from it.
"""

import fcntl
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
from typing import Any

SHOWN_LINES = 5
"""Of pip's last words in an error."""
NOT_INHERITED = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_TARGET", "PIP_PREFIX", "PIP_USER")
"""Of the caller's environment: they would put packages elsewhere, or take them from there."""


class Failed(Exception):
    """It could not be made."""


def main(text: str) -> int:
    """Prints what the environment holds as JSON, or `{"error": …}`: exit code 1."""
    spec = json.loads(text)
    try:
        print(json.dumps(made(spec)), flush=True)
    except (Failed, OSError) as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 1
    return 0


def made(spec: dict[str, Any]) -> dict[str, Any]:
    """What the file `whole` says, which the environment's folder has once it is whole.

    The spec: `folder`, `whole`, `requirements`, `constraints` (NAME==VERSION), `wheels` (a folder
    or null).
    """
    folder = pathlib.Path(spec["folder"])
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w") as guard:
        try:
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Failed("it is being made there right now by another command") from error
        whole = pathlib.Path(spec["whole"])
        if not whole.exists():
            shutil.rmtree(folder, ignore_errors=True)  # what a killed command left
            try:
                _fill(folder, spec)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
        found: dict[str, Any] = json.loads(whole.read_text())
        return found


def _fill(folder: pathlib.Path, spec: dict[str, Any]) -> None:
    log = pathlib.Path(f"{folder}.log")
    log.unlink(missing_ok=True)
    _run([sys.executable, "-m", "venv", str(folder)], log)
    python = str(folder / "bin" / "python")
    pip = [python, "-m", "pip", "--no-input", "--disable-pip-version-check"]
    source = ["--no-index", "--find-links", spec["wheels"]] if spec["wheels"] else []
    held = folder / "constraints.txt"
    held.write_text("".join(f"{line}\n" for line in spec["constraints"]))
    install = ["install", "--only-binary", ":all:", *source, "--constraint", str(held)]
    _run([*pip, *install, *spec["requirements"]], log)
    listed = json.loads(_run([*pip, "list", "--exclude", "pip", "--format", "json"], log))
    state = {
        "python": platform.python_version(),
        "packages": {plain(one["name"]): one["version"] for one in listed},
        "requirements": spec["requirements"],
    }
    draft = folder / "whole.draft"
    draft.write_text(json.dumps(state, sort_keys=True))
    draft.rename(spec["whole"])


def plain(name: str) -> str:
    """The package's name in its one normal form."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _run(argv: list[str], log: pathlib.Path) -> str:
    """Its stdout; Failed with its last words, the rest in the log."""
    env = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
    done = subprocess.run(argv, capture_output=True, text=True, env=env, check=False)
    with log.open("a") as file:
        file.write(f"$ {' '.join(argv)}\n{done.stdout}{done.stderr}")
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")] or lines
        raise Failed(f"{' '.join(errors[-SHOWN_LINES:])[:1000]} (whole log: {log})")
    return done.stdout

"""Where the threads of a rank's processes stand, by py-spy of the engine's own environment."""

import json
import os
import pathlib
import shutil
import subprocess

from llmdeploy.onhost.engine import MARK, marked

TIMEOUT_S = 10.0
"""Of one process: one that the kernel holds cannot be looked into. Source: own choice."""
MOST_PROCESSES = 32
"""Source: own choice: the ranks of 8 cards, with their helpers."""


def main(name: str, python: str, target: str) -> int:
    """Writes the stacks of the rank of that name to the file `target`; prints one line of JSON."""
    print(json.dumps(dump(name, python, pathlib.Path(target))))
    return 0


def dump(name: str, python: str, target: pathlib.Path) -> dict[str, object]:
    """`path` of the file and `dumped`, the number of processes in it; or `lacks`, why there are
    none."""
    spy = find(python)
    if spy is None:
        return {"lacks": f"py-spy is neither beside {python} nor in PATH"}
    parts = [(pid, _stack(spy, pid)) for pid in marked(name)[:MOST_PROCESSES]]
    if not parts:
        return {"lacks": f"no process has {MARK}={name}"}
    text = "\n".join(f"== process {pid}\n{said}" for pid, (said, _) in parts)
    try:
        number = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(number, "w") as file:
            file.write(text)
    except OSError as error:
        return {"lacks": f"{target}: {error.strerror}"}
    dumped = sum(good for _, (_, good) in parts)
    if not dumped:
        last = next((s.strip().splitlines()[-1] for _, (s, _) in parts if s.strip()), "no word")
        return {"lacks": f"py-spy could look into none of {len(parts)} processes: {last[:200]}"}
    return {"path": str(target), "dumped": dumped}


def find(python: str) -> str | None:
    """py-spy of the environment that the Python is of, else of the host."""
    beside = os.path.join(os.path.dirname(python), "py-spy")
    if os.path.dirname(python) and os.access(beside, os.X_OK):
        return beside
    return shutil.which("py-spy")


def _stack(spy: str, pid: int) -> tuple[str, bool]:
    """What py-spy says of the process, and whether that is its stacks."""
    try:
        done = subprocess.run(
            [spy, "dump", "--pid", str(pid)], capture_output=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"py-spy did not end in {TIMEOUT_S:.0f} s\n", False
    except OSError as error:
        return f"{spy}: {error}\n", False
    said = (done.stdout + done.stderr).decode(errors="replace")
    return said, done.returncode == 0

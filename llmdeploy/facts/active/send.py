"""Runs a program on a host's Python over its shell's standard input, and reads its lines."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

from llmdeploy.edge import Shell
from llmdeploy.errors import LlmDeployError
from llmdeploy.facts.redact import redact

Program = Literal["listen", "wire", "disk", "collective", "compute"]
TALKING = ("listen", "wire")
"""Programs that share more than the head."""
PLAIN = (*TALKING, "disk")
"""Programs that any Python runs."""
MARGIN_S = 5.0
"""How much longer the shell waits than the program may run: it ends by itself first."""
NO_PYTHON = 127
_START = (
    'case $1 in "~/"*) p=$HOME/${1#"~/"} ;; *) p=$1 ;; esac; shift; '
    'command -v "$p" >/dev/null 2>&1 || p=$1; shift; '
    f'command -v "$p" >/dev/null 2>&1 || {{ echo "no Python: $p is not there" >&2; '
    f'exit {NO_PYTHON}; }}; exec "$p" - "$@"'
)
_END = (
    'for p in $(grep -lzsxF -e "$1" /proc/[0-9]*/cmdline | cut -d/ -f3); do '
    '[ "$p" = $$ ] || kill "$p" 2>/dev/null; done; true'
)
_OWN_IMPORT = re.compile(
    r"^from (?:llmdeploy\.\S+|__future__) import (?:\([^)]*\)|.*)\n", re.MULTILINE
)
_SIGNALS = {14: "its watchdog ended it", 9: "it was killed", 11: "it crashed (SIGSEGV)"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A host of the tests: how it is asked, and where its peers reach it."""

    host: str
    python: str
    """The engine's; tests that need no package fall back to `python3`."""
    shell: Shell
    address: str | None = None
    interface: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a program said until it ended."""

    lines: tuple[Mapping[str, Any], ...]
    problem: str | None
    """Why it did not end well, in words; None: it did."""

    def of(self, kind: str) -> list[Mapping[str, Any]]:
        return [line for line in self.lines if line["kind"] == kind]

    @property
    def why(self) -> str | None:
        """The program's own word of what was wrong, else how it ended."""
        own = [*self.of("problem"), *self.of("error")]
        return redact(str(own[0]["reason"])) if own else self.problem


def text(program: Program) -> str:
    """One file: the head that all programs share, then the program without its own imports."""
    package = files("llmdeploy.facts.active")
    names = ["watch", *(["talk"] if program in TALKING else []), program]
    head, *parts = (package.joinpath(f"program_{name}.py").read_text() for name in names)
    return "\n".join([head, *(_OWN_IMPORT.sub("", part) for part in parts)])


def command(python: str, request: Mapping[str, Any], *, any_python: bool) -> tuple[str, ...]:
    """The command whose stdin is the program; `any_python`: the engine's own is not needed."""
    fallback = "python3" if any_python else python
    return ("sh", "-c", _START, "sh", python, fallback, json.dumps(request))


def ask(
    seat: Seat, program: Program, request: Mapping[str, Any], *, limit_s: float, source: str = ""
) -> Answer:
    """The program's answer; never raises for what happens on the host.

    The program ends itself at `limit_s`. `source` is its text where that was made already.
    """
    argv = command(seat.python, {**request, "limit_s": limit_s}, any_python=program in PLAIN)
    try:
        ended = seat.shell.run(argv, timeout_s=limit_s + MARGIN_S, stdin=source or text(program))
    except LlmDeployError as error:
        return Answer(lines=(), problem=str(error).removeprefix(f"{seat.host}: "))
    lines = tuple(_lines(ended.stdout))
    if ended.exit_code == 0:
        return Answer(lines=lines, problem=None)
    return Answer(lines=lines, problem=_words(ended.exit_code, ended.stderr))


def end(seat: Seat, request: Mapping[str, Any], *, limit_s: float) -> None:
    """The program that `ask` started with this request ends, as far as the host answers."""
    wanted = json.dumps({**request, "limit_s": limit_s})
    with suppress(LlmDeployError):
        seat.shell.run(("sh", "-c", _END, "sh", wanted), timeout_s=10)


def _lines(stdout: str) -> list[Mapping[str, Any]]:
    found = []
    for line in stdout.splitlines():
        if line.startswith('{"kind"'):
            try:
                found.append(json.loads(line))
            except ValueError:  # cut off where it was ended
                continue
    return found


def _words(code: int, stderr: str) -> str:
    said = [line for line in redact(stderr).strip().splitlines() if line.strip()]
    number = code - 128 if code > 128 else -code if code < 0 else 0
    if number:
        return _SIGNALS.get(number, f"signal {number} ended it")
    return said[-1][:300] if said else f"it ended with exit code {code} and said nothing"

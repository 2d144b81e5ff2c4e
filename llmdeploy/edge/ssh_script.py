"""What is run on a host over SSH: one POSIX sh wrapper for commands, one script a file action."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llmdeploy.errors import InputError

MARK = b"@llmdeploy "
"""Begins the first line of both outputs; what a login script prints before it is dropped."""
NOT_THERE = 3
EXISTS = 4
CUT_SHORT = 5
"""Exit codes of the scripts on files."""

_BEGIN = 'printf "@llmdeploy %s\\n" "$$"; printf "@llmdeploy %s\\n" "$$" >&2; '
# a value may be a secret: it comes over standard input, never in argv
_ENVIRONMENT = 'while IFS= read -r line && [ -n "$line" ]; do export "$line"; done; '
_COMMAND = (
    'command -v -- "$1" >/dev/null 2>&1 || { echo "@llmdeploy missing" >&2; exit 127; }; '
    '"$@"; exit "$?"'  # not exec: sh turns a signal into 128 + its number
)
_HOME = 'case $1 in "~") p=$HOME ;; "~/"*) p=$HOME/${1#"~/"} ;; *) p=$1 ;; esac; '
# a cut link ends the input early: a file of the wrong length must not be put in place
_DRAFT = (
    'f=$(dirname -- "$p") && mkdir -p -- "$f" && d=$(mktemp "$f/.llmdeploy.XXXXXXXX") || exit 1; '
    "trap 'rm -f -- \"$d\"' EXIT; "
    'cat >"$d" && chmod "$3" "$d" || exit 1; '
    f'[ "$(wc -c <"$d")" -eq "$2" ] || exit {CUT_SHORT}; '
    'sync "$d" 2>/dev/null || sync; '
)
READ = f'{_HOME}[ -f "$p" ] || exit {NOT_THERE}; cat -- "$p"'
READ_FROM = (
    f'{_HOME}[ -f "$p" ] || exit {NOT_THERE}; '
    'if [ -n "$3" ]; then tail -c "+$2" -- "$p" | head -c "$3"; else tail -c "+$2" -- "$p"; fi'
)
WRITE = f'{_HOME}{_DRAFT}mv -f -- "$d" "$p" && {{ sync "$f" 2>/dev/null || :; }}'
CREATE = (
    f'{_HOME}{_DRAFT}if ln -- "$d" "$p" 2>/dev/null; then sync "$f" 2>/dev/null || :; '
    f'elif [ -e "$p" ] || [ -L "$p" ]; then exit {EXISTS}; else ln -- "$d" "$p"; fi'
)
APPEND = f'{_HOME}{_DRAFT}cat -- "$d" >>"$p" && {{ sync "$p" 2>/dev/null || sync; }}'
REMOVE = f'{_HOME}if [ -d "$p" ] && [ ! -L "$p" ]; then rm -rf -- "$p"; else rm -f -- "$p"; fi'
ENTRIES = f'{_HOME}[ -d "$p" ] || exit 0; LC_ALL=C ls -A -- "$p"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One output behind its mark."""

    group: int | None
    """Id of the command's process group; None: no shell came to run it."""
    text: bytes
    noise: bytes
    """What came before the mark."""


def command(argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> str:
    """The line for the login shell, whatever shell that is."""
    script = f"{_BEGIN}{_ENVIRONMENT if env else ''}{_COMMAND}"
    return f"exec sh -c {shlex.join([script, 'sh', *argv])}"


def on_file(script: str, *arguments: str) -> str:
    """The line that runs one of the scripts above."""
    return f"exec sh -c {shlex.join([_BEGIN + script, 'sh', *arguments])}"


def environment(env: Mapping[str, str] | None) -> bytes:
    """The head of standard input that sets the environment."""
    for key, value in (env or {}).items():
        if "\n" in value or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
            raise InputError(
                f"environment variable {key!r}: found a line break in its value or another sign "
                "in its name, needed one line and a plain name",
                fix="put such a value into a file and name the file instead",
            )
    lines = [f"{key}={value}\n" for key, value in (env or {}).items()]
    return "".join([*lines, "\n"]).encode() if lines else b""


def kill(group: int) -> str:
    """The line that ends a command with its children."""
    return f"exec sh -c 'kill -s KILL -- -{group}'"


def said(output: bytes) -> Said:
    """An output cut at its mark."""
    start = output.find(MARK)
    end = output.find(b"\n", start)
    if start < 0 or end < 0:
        return Said(group=None, text=b"", noise=output)
    group = output[start + len(MARK) : end].decode(errors="replace").strip()
    return Said(
        group=int(group) if group.isdigit() else None, text=output[end + 1 :], noise=output[:start]
    )

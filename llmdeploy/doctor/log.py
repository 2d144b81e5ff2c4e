"""A log as it was given, what it is of, and the last error in it that nothing here knows."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from llmdeploy.doctor.diagnosis import Block

BEFORE, LONGEST = 40, 25
"""Lines above an error that its traceback may begin in, and lines shown of it."""
_ERROR = re.compile(
    r"\b(?:ERROR|CRITICAL|FATAL|panic)\b|^\[?[EF]\d{4} |Traceback \(most recent call last\)"
    r"|\b\w*(?:Error|Exception)\b:|\"level\": ?\"(?:error|critical)\"|terminate called"
    r"|\bcore dumped|^error: |Killed$",
    re.MULTILINE,
)
_START = re.compile(
    r"\"event\": ?\"start\"|vLLM API server version|server_args=ServerArgs\(|^build: \d+ \("
)
"""What engines say first at each start: a log may hold several."""
_RANKS = (
    re.compile(r"\[rank ?(\d+)\]", re.IGNORECASE),
    re.compile(r"\(?Worker_((?:[DPTE]P\d+_?)+)"),
    re.compile(r"VllmWorker(?:Process)?[-_](\d+)"),
    re.compile(r" ((?:DP\d+ )?(?:PP\d+ )?TP\d+)(?: EP\d+)?\]"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """One log; `shift_s` is how far its host's clock is ahead of the others'."""

    name: str
    text: str
    shift_s: float = 0.0


def rank_of(line: str) -> str | None:
    """The rank that the line says it is of; None where it says none."""
    for form in _RANKS:
        found = form.search(line[:200])
        if found:
            return found[1].strip("_ ")
    return None


def last_start(lines: Sequence[str]) -> int:
    """Index of the line with which the last start in the log begins; 0 where none says so."""
    found = (i for i in range(len(lines) - 1, -1, -1) if _START.search(lines[i]))
    return next(found, 0)


def last_error(log: Log) -> Block | None:
    """The log's last error with its traceback; None where nothing in it looks like an error."""
    lines = log.text.splitlines()
    last = next((i for i in range(len(lines) - 1, -1, -1) if _ERROR.search(lines[i])), None)
    if last is None:
        return None
    began = next(
        (i for i in range(last, max(-1, last - BEFORE), -1) if "Traceback (most rec" in lines[i]),
        last,
    )
    first = max(began, last - LONGEST + 1)
    return Block(
        source=log.name,
        first_line=first + 1,
        lines=tuple(line[:300] for line in lines[first : last + 1]),
    )

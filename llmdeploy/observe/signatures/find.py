"""What a log says went wrong: lines matched against the catalogue, causes told from noise."""

import bisect
import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from llmdeploy.observe.log_time import line_time_s
from llmdeploy.observe.signatures.catalogue import Severity, Signature, catalogue
from llmdeploy.observe.signatures.literals import literals

SHOWN = 300
"""Characters kept of a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A signature found in a log."""

    signature: Signature
    line_number: int
    line: str


def causes(log_text: str) -> tuple[Cause, ...]:
    """Every match in the log, by line; at most one signature a line, specific before generic."""
    lines = log_text.splitlines()
    if not lines:
        return ()
    text = "\n".join(lines)
    starts = _starts(lines)
    best: dict[int, Signature] = {}
    for signature in catalogue():
        for index in _matched(signature, text, lines=lines, starts=starts):
            known = best.get(index)
            if known is None or _weight(signature) < _weight(known):
                best[index] = signature
    return tuple(
        Cause(signature=best[index], line_number=index + 1, line=lines[index].strip()[:SHOWN])
        for index in sorted(best)
    )


def first_cause(log_text: str) -> Cause | None:
    """The cause of a failure: the earliest specific fatal line, else the earliest generic one.

    Lines that also healthy ranks say are the cause where nothing else is; consequences and
    warnings never are. None where the log knows no known cause.
    """
    fatal = [c for c in causes(log_text) if c.signature.severity == Severity.FATAL]
    own = [c for c in fatal if not c.signature.echo]
    specific = [c for c in own if c.signature.specificity == "specific"]
    return next(iter(specific or own or fatal), None)


def diagnose(log_text: str) -> str | None:
    """The first cause in one sentence with its line, as `launch` shows it; None if unknown."""
    cause = first_cause(log_text)
    if cause is None:
        return None
    return f"{cause.signature.cause} (log line {cause.line_number}: {cause.line})"


def _weight(signature: Signature) -> tuple[bool, bool]:
    """The smaller one names a line that two signatures find."""
    return signature.specificity == "generic", signature.severity != Severity.FATAL


def _matched(
    signature: Signature, text: str, *, lines: Sequence[str], starts: Sequence[int]
) -> tuple[int, ...]:
    """Indices of the lines that the signature holds for, in order."""
    found = _indices(signature.pattern, text, lines=lines, starts=starts)
    if found and signature.silence_s is not None:
        return tuple(i for i in found if _silent(lines, i, signature.silence_s))
    if len(found) >= signature.repeats > 1:
        resets = _indices(signature.resets, text, lines=lines, starts=starts)
        return _repeated(signature, found, resets)
    return found if len(found) >= signature.repeats else ()


def _indices(
    pattern: str | None, text: str, *, lines: Sequence[str], starts: Sequence[int]
) -> tuple[int, ...]:
    """Indices of the lines that the pattern finds; few are tried where it needs certain words."""
    if pattern is None:
        return ()
    words = _words(pattern)
    tried = range(len(lines)) if words is None else _holding(words, text, starts)
    search = _compiled(pattern).search
    return tuple(index for index in tried if search(lines[index]))


def _holding(words: Sequence[str], text: str, starts: Sequence[int]) -> list[int]:
    """Indices of the lines that hold one of the words."""
    found: set[int] = set()
    for word in words:
        at = text.find(word)
        while at >= 0:
            index = bisect.bisect_right(starts, at) - 1
            found.add(index)
            following = starts[index + 1] if index + 1 < len(starts) else len(text)
            at = text.find(word, following)
    return sorted(found)


def _repeated(signature: Signature, found: Sequence[int], resets: Sequence[int]) -> tuple[int, ...]:
    """Those that come for the n-th time without a reset between."""
    kept, count, last = [], 0, -1
    for index in found:
        between = bisect.bisect_right(resets, index) > bisect.bisect_right(resets, last)
        count = 1 if between and last >= 0 else count + 1
        last = index
        if count >= signature.repeats:
            kept.append(index)
    return tuple(kept)


def _silent(lines: Sequence[str], index: int, silence_s: float) -> bool:
    """Whether the next stamped line comes that much later; False where no later one is stamped."""
    began_s = line_time_s(lines, index)
    if began_s is None:
        return False
    for later in range(index + 1, len(lines)):
        at_s = line_time_s(lines[later : later + 1], 0)
        if at_s is not None:
            return at_s - began_s > silence_s
    return False


def _starts(lines: Sequence[str]) -> list[int]:
    starts, at = [], 0
    for line in lines:
        starts.append(at)
        at += len(line) + 1
    return starts


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@functools.cache
def _words(pattern: str) -> tuple[str, ...] | None:
    return literals(pattern)

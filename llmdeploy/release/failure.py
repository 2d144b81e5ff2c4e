"""Why an engine did not start: the first cause in what it said, never just its last line."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

_READ_LOG = "read the whole log: llmdeploy logs NAME --release ID"
_KILLED = (
    "if nobody killed it, the kernel's out-of-memory killer did: dmesg | grep -i 'killed process'"
)
_ENDS_TRACEBACK = re.compile(r"^[A-Za-z_][\w.]*(?:: .*)?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """A cause in words and what to do about it."""

    what: str
    fix: str


def first_cause(
    log: str,
    *,
    stated: Reason | None,
    ended: str | None,
    diagnose: Callable[[str], str | None],
) -> Reason:
    """The reason an engine failed, from the surest source that has one.

    `stated`: what the engine itself told at /ready. `log`: its log since the start. `ended`: how
    the process ended, None while it runs. `diagnose`: the known failures in a log, None if none.
    """
    if stated is not None:
        return stated
    text = plain(log)
    told = _told(log) or _printed(text)
    if told is not None:
        return told
    known = diagnose(text)
    if known is not None:
        return Reason(what=known, fix=_READ_LOG)
    words = [f"the process ended ({ended})"] if ended else []
    last = next((line for line in reversed(text.splitlines()) if line.strip()), None)
    words.append(traceback_end(text) or (f"last log line: {last}" if last else "its log is empty"))
    fix = _KILLED if ended and "SIGKILL" in ended else _READ_LOG
    return Reason(what="; ".join(words), fix=fix)


def plain(log: str) -> str:
    """The log with the tracebacks in its JSON lines written out as lines."""
    lines: list[str] = []
    for line in log.splitlines():
        entry = _json(line)
        lines.append(line if "traceback" not in entry else str(entry.get("event", "")))
        lines += str(entry.get("traceback", "")).splitlines()
    return "\n".join(lines)


def traceback_end(text: str) -> str | None:
    """The line that names the error of the first traceback; None where there is no traceback.

    Of a chain ("during handling of the above") that is the first error: what follows it.
    """
    lines = iter(text.splitlines())
    if not any(line.startswith("Traceback (most recent call last)") for line in lines):
        return None
    return next((line for line in lines if _ENDS_TRACEBACK.match(line)), None)


def _told(log: str) -> Reason | None:
    """The first JSON line that states a reason, as the engine logs its own failures."""
    for line in log.splitlines():
        entry = _json(line)
        reason = entry.get("reason") or entry.get("error")
        if reason and entry.get("level") in ("error", "critical", None):
            return Reason(what=str(reason), fix=str(entry.get("fix") or _READ_LOG))
    return None


def _printed(text: str) -> Reason | None:
    """`error: …` and `hint: …`, as every program of llmdeploy ends on expected errors."""
    found = re.search(r"^error: (.+)$(?:\n\s*^hint: (.+)$)?", text, flags=re.MULTILINE)
    return Reason(what=found[1], fix=found[2] or _READ_LOG) if found else None


def _json(line: str) -> dict[str, object]:
    if not line.startswith("{"):
        return {}
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) else {}

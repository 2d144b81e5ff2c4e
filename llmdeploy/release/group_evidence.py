"""What the ranks of a group tell: events, logs, and the first cause of an end."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llmdeploy.errors import Refused, Unreachable
from llmdeploy.release.failure import Reason, first_cause, plain
from llmdeploy.release.groups import Rank
from llmdeploy.release.site import Orders

LOG_LIMIT_BYTES = 2**22
_KEEPER = "[rank "
"""Begins the keeper's own lines in an engine's log: they tell of ends, never of causes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """Why a rank ended, as its keeper knows it."""

    kind: str
    """As `onhost.group.End` has it."""
    position: int
    """The rank that it began with."""
    what: str
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """One rank at one look; None: its host does not answer."""

    rank: Rank
    log: str | None
    ended: Ended | None
    silent: str | None
    """Why the host does not answer."""
    started: bool = False
    """Its engine runs, or ran."""
    log_bytes: int = 0
    """How long the log is."""


def hear(rank: Rank, *, with_log: bool, known_bytes: int = 0) -> Heard:
    """What the rank's host says of it now; `known_bytes` of its log are known already."""
    shell = rank.station.shell
    try:
        events = shell.read(rank.events_path) or b""
        log = None
        if with_log:
            found = shell.read_from(rank.log_path, offset_bytes=0, limit_bytes=LOG_LIMIT_BYTES)
            log = found.decode(errors="replace")
            known_bytes = max(known_bytes, len(found))
        grown = b""
        if log is None or known_bytes >= LOG_LIMIT_BYTES:
            grown = shell.read_from(
                rank.log_path, offset_bytes=known_bytes, limit_bytes=LOG_LIMIT_BYTES
            )
    except Unreachable as error:
        return Heard(rank=rank, log=None, ended=None, silent=str(error), log_bytes=known_bytes)
    text = events.decode(errors="replace")
    return Heard(
        rank=rank,
        log=log,
        ended=parse_ended(text),
        silent=None,
        started='"event": "started"' in text,
        log_bytes=known_bytes + len(grown),
    )


def parse_ended(events: str) -> Ended | None:
    """The first end among the keeper's events; None while there is none."""
    for line in events.splitlines():
        try:
            fields = json.loads(line)
        except ValueError:  # the line is just being written
            continue
        if fields.get("event") == "ended":
            return Ended(
                kind=fields["kind"],
                position=fields["position"],
                what=fields["what"],
                at_s=fields["at_s"],
            )
    return None


def broken(heard: Sequence[Heard], orders: Orders) -> Refused | None:
    """The first cause once a rank of the group ended; None while all stand.

    `heard` are the group's ranks by position. What its engine did by itself comes before what the
    others saw of it, and a known cause in any rank's log before any other words.
    """
    ends = [one.ended for one in heard if one.ended is not None]
    if not ends:
        return None
    own = [end for end in ends if end.kind in ("own", "frozen")]
    end = min(own or ends, key=lambda one: one.at_s)
    culprit = next((one for one in heard if one.rank.member.position == end.position), heard[0])
    others = [one for one in heard if one is not culprit]
    for one in (culprit, *others):
        known = orders.cause(engine_lines(one.log or ""))
        if known is not None:
            return _refused(one.rank, known, end, culprit.rank)
    reason = _unknown(culprit, end, orders.diagnose)
    return _refused(culprit.rank, reason, end, culprit.rank)


def engine_lines(log: str) -> str:
    """The log without the keeper's own lines."""
    lines = plain(log).splitlines()
    return "\n".join(line for line in lines if not line.startswith(_KEEPER))


def _unknown(culprit: Heard, end: Ended, diagnose: Callable[[str], str | None]) -> Reason:
    if culprit.silent is not None:
        return Reason(
            what=f"{end.what}; {culprit.silent}",
            fix=f"see whether {culprit.rank.station.name} is up and its data network whole: "
            "llmdeploy preflight",
        )
    if end.kind in ("lost", "late", "frozen", "peer"):
        last = _last_line(engine_lines(culprit.log or ""))
        return Reason(
            what=f"{end.what}; last log line: {last}",
            fix="read the logs of all ranks: llmdeploy logs NAME --release ID",
        )
    return first_cause(
        engine_lines(culprit.log or ""), stated=None, ended=end.what, diagnose=diagnose
    )


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "none")


def _refused(rank: Rank, reason: Reason, end: Ended, culprit: Rank) -> Refused:
    first = "" if rank is culprit else f"; {culprit.place} ended first: {end.what}"
    return Refused(
        f"{rank.place}: {reason.what}{first} (log: {rank.station.name}:{rank.log_path})",
        fix=reason.fix,
    )

"""First causes before their consequences, over the logs of all ranks by corrected time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from llmdeploy.doctor.diagnosis import Evidence
from llmdeploy.doctor.log import Log, last_start, rank_of
from llmdeploy.observe.log_time import line_time_s, year_of
from llmdeploy.observe.signatures import Cause, Severity, Signature, causes

SLACK_S = 5.0
"""How far the clocks of two hosts may differ. Source: own choice: preflight warns from 1 s on."""
KEPT = 5
"""Lines kept of one cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One line of one log that a signature knows."""

    signature: Signature
    evidence: Evidence
    log: int
    """Index of the log."""

    @property
    def order(self) -> tuple[bool, float, int, int]:
        """By time; what has none comes after, in the order given."""
        at_s = self.evidence.at_s
        return at_s is None, at_s or 0.0, self.log, self.evidence.line_number


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """Everything that was found, each cause's lines together."""

    first: tuple[tuple[Found, ...], ...]
    """Causes, the first one first."""
    warnings: tuple[tuple[Found, ...], ...]
    consequences: tuple[tuple[Found, ...], ...]


def ranked(logs: Sequence[Log], *, year: int) -> Ranked:
    """Causes and consequences in the logs; `year` is for stamps without one."""
    found = [one for index in range(len(logs)) for one in _found(logs, index, year=year)]
    fatal = [f for f in found if f.signature.severity == Severity.FATAL]
    after = [f for f in fatal if _is_aftermath(f, fatal)]
    own = [f for f in fatal if not f.signature.echo and f not in after]
    echoes = [f for f in fatal if f.signature.echo]
    if own and not _came_before(echoes, own):
        first, later = own, [*echoes, *after]
    else:
        first, later = (echoes, [*own, *after]) if echoes else (own, after)
    known = {f.signature.id for f in first}
    warnings = [f for f in found if f.signature.severity == Severity.WARNING]
    behind = [w for w in warnings if known & set(w.signature.explains)]
    wrappers = [f for f in found if f.signature.severity == Severity.CONSEQUENCE]
    rest = [w for w in warnings if w not in behind]
    return Ranked(
        first=(*_together(behind), *_together(first, weigh=True)),
        warnings=_together(rest),
        consequences=_together([f for f in (*later, *wrappers) if f.signature.id not in known]),
    )


def _found(logs: Sequence[Log], index: int, *, year: int) -> Iterable[Found]:
    log = logs[index]
    lines = log.text.splitlines()
    known_year = year_of(lines[:200]) or next(
        (found for other in logs if (found := year_of(other.text.splitlines()[:200]))), year
    )
    for cause in _of_last_start(causes(log.text), lines):
        at = cause.line_number - 1
        at_s = line_time_s(lines, at, year=known_year)
        yield Found(
            signature=cause.signature,
            log=index,
            evidence=Evidence(
                source=log.name,
                line_number=cause.line_number,
                line=cause.line,
                at_s=None if at_s is None else round(at_s - log.shift_s, 3),
                rank=rank_of(lines[at]),
            ),
        )


def _of_last_start(found: Sequence[Cause], lines: Sequence[str]) -> Sequence[Cause]:
    """What is of the log's last start, where that failed; all of it where it did not."""
    began = last_start(lines)
    later = [cause for cause in found if cause.line_number > began]
    failed = any(cause.signature.severity == Severity.FATAL for cause in later)
    return later if failed else found


def _is_aftermath(one: Found, fatal: Sequence[Found]) -> bool:
    """A generic line after another failure of the same process, such as the abort that ends it."""
    return one.signature.specificity == "generic" and any(
        other.log == one.log
        and other.signature.id != one.signature.id
        and other.evidence.line_number < one.evidence.line_number
        and (other.signature.specificity == "specific")
        for other in fatal
    )


def _came_before(echoes: Sequence[Found], own: Sequence[Found]) -> bool:
    """Whether all ranks said that they waited in vain well before any failure of its own."""
    echoed = [f.evidence.at_s for f in echoes]
    failed = [f.evidence.at_s for f in own]
    if not echoed or None in echoed or None in failed:
        return False
    return min(t for t in echoed if t is not None) + SLACK_S < min(
        t for t in failed if t is not None
    )


def _together(found: Sequence[Found], *, weigh: bool = False) -> tuple[tuple[Found, ...], ...]:
    """Lines of one signature together, each group by its first line; `weigh`: what is generic
    comes after what is specific where the same log has both, or where no time tells."""
    groups: dict[str, list[Found]] = {}
    for one in sorted(found, key=lambda f: f.order):
        groups.setdefault(one.signature.id, []).append(one)
    ordered = sorted(groups.values(), key=lambda g: (weigh and _shared(g[0], found), g[0].order))
    return tuple(tuple(group) for group in ordered)


def _shared(one: Found, found: Sequence[Found]) -> bool:
    return one.signature.specificity == "generic" and any(
        other.signature.specificity == "specific"
        and (other.log == one.log or other.evidence.at_s is None or one.evidence.at_s is None)
        for other in found
    )

"""Where a gray release stands, folded from the journal: what a killed command left, goes on."""

from collections.abc import Sequence
from dataclasses import dataclass

from llmdeploy.release.entry import Entry
from llmdeploy.release.fold import PLANNED, STANDING

ACCEPTED = "accepted"
"""Acceptance passed: data has `pids`, the engines' process ids then."""
STEP_INTENT = "step intended"
"""Weights are about to move: data has share and old (empty: none)."""
STEP = "step begun"
"""Weights moved and were confirmed: data as before, and took_s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One share of traffic that a release was given."""

    share: float
    old: str | None
    started_s: float
    """When the gateway had confirmed it, seconds since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """How far one release has come since its launch."""

    accepted_pids: str | None
    """The processes that were accepted; None before acceptance."""
    steps: tuple[Step, ...]
    intended: Step | None
    """A step that was begun and not confirmed: a command died there."""

    @property
    def step(self) -> Step | None:
        """The step it is at; None while dark."""
        return self.steps[-1] if self.steps else None


def position(entries: Sequence[Entry], release_id: str) -> Position:
    """Where the release stands. A new launch of the same release begins anew, and a decision about
    it (live, back, candidate again) ends its steps."""
    pids: str | None = None
    steps: list[Step] = []
    intended: Step | None = None
    for entry in entries:
        if entry.event == STANDING and release_id in entry.data:
            steps, intended = [], None
        if entry.release != release_id:
            continue
        if entry.event == PLANNED:
            pids, steps, intended = None, [], None
        elif entry.event == ACCEPTED:
            pids = entry.data["pids"]
        elif entry.event == STEP_INTENT:
            intended = _step(entry)
        elif entry.event == STEP:
            steps.append(_step(entry))
            intended = None
    return Position(accepted_pids=pids, steps=tuple(steps), intended=intended)


def next_share(shares: Sequence[float], *, now: float, first_release: bool) -> float:
    """The share after `now`. A first release has nobody to split with: all at once."""
    if first_release:
        return 1.0
    return next((share for share in shares if share > now), 1.0)


def _step(entry: Entry) -> Step:
    return Step(
        share=float(entry.data["share"]),
        old=entry.data["old"] or None,
        started_s=entry.at_s,
    )

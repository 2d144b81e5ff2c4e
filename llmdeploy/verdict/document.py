"""The verdict: what the evidence says about a release right now, and what is missing."""

from enum import StrEnum

from llmdeploy.document import Document


class Decision(StrEnum):
    """The three answers; no data is HOLD."""

    PROMOTE = "promote"
    HOLD = "hold"
    ROLL_BACK = "roll_back"


class Evidence(Document):
    """One sequential test at this look."""

    metric: str
    """`errors`, `ttft`, `tpot`, `output_length`."""
    old_requests: int
    new_requests: int
    old_value: float | None
    """Failed share for errors; median seconds or tokens otherwise."""
    new_value: float | None
    e_value: float
    """Evidence that the new release is worse than allowed; valid at every look."""
    limit: float
    """Roll back when e_value reaches it: the metric's part of the error budget, inverted."""


class Verdict(Document):
    """One look at one step."""

    release: str
    share: float
    at_s: float
    decision: Decision
    reasons: tuple[str, ...]
    evidence: tuple[Evidence, ...]
    live_requests: int
    synthetic_requests: int
    missing_requests: int
    """How many more requests the step needs before it can pass; 0 when enough."""
    missing_s: float | None
    """About how long that takes at the present rate; None while nothing arrives."""

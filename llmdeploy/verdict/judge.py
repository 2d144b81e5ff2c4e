"""The judge: one look's evidence to promote, hold or roll back. Pure, so that records replay."""

import math
from collections.abc import Callable, Sequence

from llmdeploy.document import Document
from llmdeploy.units import show_ratio, show_seconds
from llmdeploy.verdict.document import Decision, Evidence, Verdict
from llmdeploy.verdict.look import Look
from llmdeploy.verdict.measure import (
    BUDGET_PARTS,
    HINT_RATIO,
    comparable,
    compared_requests,
    evidence_of,
    has_pace,
    old_is_down,
)

LEAN_FACTOR, LEAN_S = 5, 60.0
"""A release that evidence speaks against, but does not convict, is watched until it has this many
times `min_requests`, and this long: latency convicts by episodes, and those take time.

Source: own simulation: twice the time at sigma 0.6 is convicted after 76 requests in the median at
half of the traffic, with `min_requests` 20 (tests/verdict/test_sequential.py)."""

SETTLED_S = 15.0
"""Shortest step beside an old release: three episodes.

Source: own simulation, as EPISODE_S: in the first seconds after a shift the old release still has
its queue and looks slow; 2 of 15 releases with twice the time passed all steps in that shade."""

COMPARED_RATIO = 0.5
"""Part of `min_requests` whose latency must stand in full blocks beside the old release's before
latency can pass a step or convict.

Source: own measurements (2 cores, 32 clients): right after a shift the old release is still busy
with what it had, and the new one's first answers would pass before anything can be compared; and
four answers during one short disturbance of the new release's core gave an e-value of 11,600: the
test knows random labels, not a neighbour that is busy for ten seconds."""


class DecisionRecord(Document):
    """What is written when a step ends: `decide(look, guard)` must give `verdict` again."""

    look: Look
    guard: str | None
    verdict: Verdict


def decide(look: Look, guard: str | None) -> Verdict:
    """The judge's verdict, or roll back at once for what a hard guard saw."""
    verdict = judge(look)
    if guard is None:
        return verdict
    reasons = (guard, *(r for r in verdict.reasons if verdict.decision == Decision.ROLL_BACK))
    return verdict.model_copy(
        update={"decision": Decision.ROLL_BACK, "reasons": reasons, "missing_requests": 0}
    )


def judge(look: Look) -> Verdict:
    """The verdict on one look; no data is HOLD."""
    evidence = tuple(evidence_of(look))
    news = [s for s in look.samples if s.new]
    decision, reasons, missing = _decide(look, evidence, len(news))
    elapsed_s = look.at_s - look.step_started_s
    rate_per_s = len(news) / elapsed_s if elapsed_s > 0 else 0.0
    return Verdict(
        release=look.release,
        share=look.share,
        at_s=look.at_s,
        decision=decision,
        reasons=reasons,
        evidence=evidence,
        live_requests=sum(not s.probe for s in news),
        synthetic_requests=sum(s.probe for s in news),
        missing_requests=missing,
        missing_s=None if missing and not rate_per_s else missing / (rate_per_s or 1.0),
    )


def _decide(
    look: Look, evidence: Sequence[Evidence], news: int
) -> tuple[Decision, tuple[str, ...], int]:
    hints = tuple(_words(e, look) for e in evidence if e.metric not in BUDGET_PARTS and _over(e))
    judged = [e for e in evidence if e.metric in BUDGET_PARTS]
    least = look.policy.min_requests
    needed = math.ceil(COMPARED_RATIO * least)
    short = needed - compared_requests(look) if comparable(look) and not old_is_down(look) else 0
    convicts = [e for e in judged if _over(e) and (short <= 0 or e.metric == "errors")]
    if convicts:
        return Decision.ROLL_BACK, tuple(_words(e, look) for e in convicts) + hints, 0
    if news < least:
        why = f"{news} of {least} requests seen"
        return Decision.HOLD, (why, *hints), least - news
    if short > 0:
        why = f"latency compared for {needed - short} of {needed} requests with the old release"
        return Decision.HOLD, (why, *hints), short
    elapsed_s = look.at_s - look.step_started_s
    if comparable(look) and elapsed_s < SETTLED_S:
        why = f"{show_seconds(elapsed_s)} of at least {show_seconds(SETTLED_S)} beside the old"
        return Decision.HOLD, (why, *hints), 1
    leaning = [e for e in judged if e.e_value > 1]
    if leaning and (elapsed_s < LEAN_S or news < LEAN_FACTOR * least):
        words = tuple(f"not settled: {_words(e, look)}" for e in leaning)
        return Decision.HOLD, words + hints, max(_until_settled(e, news, least) for e in leaning)
    against = "no metric convicts" if leaning else "no metric speaks against"
    enough = f"{news} requests seen, {least} needed, {against} the release"
    return Decision.PROMOTE, (enough, *hints), 0


def _until_settled(evidence: Evidence, news: int, least: int) -> int:
    """Requests until the limit at the present growth of evidence, or until watching ends."""
    most = LEAN_FACTOR * least - news
    pace = math.log(evidence.limit) / max(math.log(evidence.e_value), 0.1)
    return max(1, min(max(1, most), math.ceil(news * (pace - 1))))


def _over(evidence: Evidence) -> bool:
    return evidence.e_value >= evidence.limit


def _words(evidence: Evidence, look: Look) -> str:
    """`tpot: 52 ms against 25 ms of the old release, at most 25 % more allowed (e-value …)`."""
    show = _shown(evidence.metric)
    new = "nothing" if evidence.new_value is None else show(evidence.new_value)
    like = " at like load" if has_pace(look, evidence.metric) else ""
    old = ""
    if evidence.old_value is not None:
        old = f" against {show(evidence.old_value)} of the old{like}"
    needed = {
        "errors": f"at most {show_ratio(look.objectives.error_ratio)} promised",
        "ttft": _latency_words(look, look.objectives.ttft_p95_s),
        "tpot": _latency_words(look, look.objectives.tpot_p95_s),
        "output_length": f"a hint only, told from {show_ratio(HINT_RATIO)} on",
    }[evidence.metric]
    return (
        f"{evidence.metric}: {new}{old}, {needed} (e-value {evidence.e_value:.3g} of "
        f"{evidence.limit:.3g} after {evidence.new_requests} requests)"
    )


def _latency_words(look: Look, objective_s: float) -> str:
    if comparable(look):
        return f"at most {show_ratio(look.policy.slower_ratio)} more allowed"
    return f"95 % promised under {show_seconds(objective_s)}"


def _shown(metric: str) -> Callable[[float], str]:
    if metric == "errors":
        return show_ratio
    if metric == "output_length":
        return lambda tokens: f"{tokens:g} tokens"
    return show_seconds

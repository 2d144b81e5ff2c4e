"""What one look measures: errors, latency and output length as sequential evidence. Pure."""

import math
import statistics
from collections.abc import Sequence

from llmdeploy.verdict.document import Evidence
from llmdeploy.verdict.like_load import LoadCurve
from llmdeploy.verdict.look import Look, Sample
from llmdeploy.verdict.sequential import (
    Block,
    Ranked,
    blocks_of,
    e_value,
    log_e_excess,
    log_e_origin,
    log_e_slower,
    upper_ratio,
)

BUDGET_PARTS = {"errors": 0.6, "ttft": 0.2, "tpot": 0.2}
"""How the false alarm budget is split over the metrics that can roll back.

Source: own choice: failures are the worst harm, so theirs is the largest part; by simulation a
halved part costs a latency test about 3 requests of 40."""

OVER_RATIO = 0.05
"""The share of values that may be above a 95th percentile. Source: definition."""

FLOOR_RATIO = 1e-4
"""Smallest error ratio tested against: an objective of 0 could never be tested.

Source: own choice; one failure in ten thousand."""

DOWN_FAILURES = 5
"""Failures without an answer after which the old release is down: nothing to compare with then.

Source: own choice."""

HINT_RATIO = 0.1
"""Output lengths nearer than this are not told apart. Source: own choice."""

PROBE_SHARE = 0.5
"""Probes go to both releases in pairs. Source: rollout/probes.py."""


def evidence_of(look: Look) -> list[Evidence]:
    """The evidence of each metric that this look can tell: against the old release, else the
    objective."""
    found = [_errors(look)]
    for metric, objective_s in (
        ("ttft", look.objectives.ttft_p95_s),
        ("tpot", look.objectives.tpot_p95_s),
    ):
        if comparable(look):
            found.append(_latency_against_old(look, metric))
        else:
            found.append(_latency_against_objective(look, metric, objective_s))
    if comparable(look):
        found.append(_output_length(look))
    return found


def comparable(look: Look) -> bool:
    """Whether old and new answer at the same time, the new one under no more load."""
    return look.old_release is not None and look.share <= 0.5


def _errors(look: Look) -> Evidence:
    news = [s for s in look.samples if s.new]
    olds = [s for s in look.samples if not s.new]
    failures = sum(s.failed for s in news)
    allowed = min(0.5, max(look.objectives.error_ratio, FLOOR_RATIO))
    if (base := look.baseline) and not comparable(look):
        allowed = max(allowed, _excused(base.failures, base.requests, allowed))
    log_e = log_e_excess(failures, len(news), allowed_ratio=allowed)
    if comparable(look) and any(s.failed for s in olds):  # is the new one really worse?
        broken = [s for s in look.samples if s.failed]
        share = {True: PROBE_SHARE, False: look.share}
        log_e = min(log_e, log_e_origin([(s.new, share[s.probe]) for s in broken]))
    return Evidence(
        metric="errors",
        old_requests=len(olds),
        new_requests=len(news),
        old_value=sum(s.failed for s in olds) / len(olds) if olds else None,
        new_value=failures / len(news) if news else None,
        e_value=e_value(log_e),
        limit=_limit(look, BUDGET_PARTS["errors"]),
    )


def _latency_against_old(look: Look, metric: str) -> Evidence:
    log_e = log_e_slower(_blocks(look, metric))
    evidence = _measured(look, metric, log_e=log_e, limit=_limit(look, BUDGET_PARTS[metric]))
    return evidence.model_copy(update={"old_value": _old_at_like_load(look, metric, evidence)})


def _blocks(look: Look, metric: str) -> list[Block]:
    """Live requests ranked among live ones, then probes among probes."""
    allowed = look.policy.slower_ratio
    blocks: list[Block] = []
    for probe in (False, True):
        ranked = _at_like_load(look, metric, probe=probe)
        share = PROBE_SHARE if probe else look.share
        blocks.extend(blocks_of(ranked, share=share, allowed_ratio=allowed))
    return blocks


def _at_like_load(look: Look, metric: str, *, probe: bool) -> list[Ranked]:
    """Latencies as parts of what the old release takes with as many requests in flight."""
    ranked = _ranked(look.samples, metric, probe=probe)
    curve = _curve(look, metric)
    if curve is None:
        return ranked
    return [
        Ranked(new=r.new, value=r.value / curve.at(r.load or 1.0), ended_s=r.ended_s, load=r.load)
        for r in ranked
    ]


def _old_at_like_load(look: Look, metric: str, evidence: Evidence) -> float | None:
    """The old release's median at the loads that the new one had: what the words compare."""
    curve = _curve(look, metric)
    news = [r for r in _shown(look, metric) if r.new]
    if curve is None or not news:
        return evidence.old_value
    return statistics.median(curve.at(r.load or 1.0) for r in news)


def has_pace(look: Look, metric: str) -> bool:
    """Whether the metric's old value is what the old release takes at the new one's load."""
    return _curve(look, metric) is not None


def _curve(look: Look, metric: str) -> LoadCurve | None:
    return {"ttft": look.pace.ttft, "tpot": look.pace.tpot}.get(metric)


def compared_requests(look: Look) -> int:
    """New requests whose time per token or first token has been ranked beside old ones."""
    return max(
        sum(sum(block.order) for block in _blocks(look, metric) if not all(block.order))
        for metric in ("ttft", "tpot")
    )


def old_is_down(look: Look) -> bool:
    """Whether the old release answers nothing but errors: then it is no measure."""
    olds = [s for s in look.samples if not s.new]
    return len(olds) >= DOWN_FAILURES and all(s.failed for s in olds)


def _latency_against_objective(look: Look, metric: str, objective_s: float) -> Evidence:
    """More than 5 % above the objective, where the old release kept it at like load."""
    news = [r for p in (False, True) for r in _ranked(look.samples, metric, probe=p) if r.new]
    allowed = OVER_RATIO
    if base := look.baseline:
        slow = base.slow_starts if metric == "ttft" else base.slow_answers
        allowed = max(allowed, _excused(slow, base.answers, allowed))
    over = sum(r.value > max(objective_s, _excused_s(look, metric, r)) for r in news)
    log_e = log_e_excess(over, len(news), allowed_ratio=allowed)
    evidence = _measured(look, metric, log_e=log_e, limit=_limit(look, BUDGET_PARTS[metric]))
    return evidence.model_copy(update={"old_value": _old_at_like_load(look, metric, evidence)})


def _excused_s(look: Look, metric: str, new: Ranked) -> float:
    """What the old release's 95th percentile was at this load, and what more is allowed."""
    curve = _curve(look, metric)
    if curve is None:
        return 0.0
    return curve.at(new.load or 1.0) * curve.p95_ratio * (1 + look.policy.slower_ratio)


def _output_length(look: Look) -> Evidence:
    """Longer or shorter answers: a hint, since a new model may well answer differently."""
    logs = []
    for sign in (1, -1):
        blocks: list[Block] = []
        for probe in (False, True):
            ranked = [
                Ranked(new=r.new, value=max(r.value, 1.0) ** sign, ended_s=r.ended_s)
                for r in _ranked(look.samples, "output_length", probe=probe)
            ]
            share = PROBE_SHARE if probe else look.share
            blocks.extend(blocks_of(ranked, share=share, allowed_ratio=HINT_RATIO))
        logs.append(log_e_slower(blocks))
    log_e = max(logs) - math.log(2)
    return _measured(look, "output_length", log_e=log_e, limit=_limit(look, 1.0))


def _measured(look: Look, metric: str, *, log_e: float, limit: float) -> Evidence:
    shown = _shown(look, metric)
    news = [r.value for r in shown if r.new]
    olds = [r.value for r in shown if not r.new]
    return Evidence(
        metric=metric,
        old_requests=len(olds),
        new_requests=len(news),
        old_value=statistics.median(olds) if olds else None,
        new_value=statistics.median(news) if news else None,
        e_value=e_value(log_e),
        limit=limit,
    )


def _shown(look: Look, metric: str) -> list[Ranked]:
    """Live requests, or probes where the new release has no other."""
    live = _ranked(look.samples, metric, probe=False)
    return live if any(r.new for r in live) else _ranked(look.samples, metric, probe=True)


def _ranked(samples: Sequence[Sample], metric: str, *, probe: bool) -> list[Ranked]:
    field = {"ttft": "ttft_s", "tpot": "tpot_s", "output_length": "output_tokens"}[metric]
    return [
        Ranked(new=s.new, value=float(value), ended_s=s.ended_s, load=s.load)
        for s in samples
        if s.probe == probe and (value := getattr(s, field)) is not None
    ]


def _excused(events: int, trials: int, allowed: float) -> float:
    """What the old release's own record excuses: its upper bound, if it broke the rule itself."""
    if not trials or events / trials <= allowed:
        return 0.0
    return min(0.9, upper_ratio(events, trials))


def _limit(look: Look, part: float) -> float:
    """The e-value that rolls back: the metric's part of the budget at one step, inverted."""
    budget = max(look.policy.false_alarm_ratio, 1e-9) * part / len(look.policy.steps)
    return 1 / budget

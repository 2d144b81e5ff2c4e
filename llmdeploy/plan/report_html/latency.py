"""Latency against concurrency: what clients of one replica see as its load grows."""

import math
from collections.abc import Sequence

from llmdeploy.plan.document import Plan
from llmdeploy.plan.report_html.chart import Line, axis, chart
from llmdeploy.plan.report_html.words import key, section, text
from llmdeploy.simulate import Peak
from llmdeploy.simulate.curve import Curve
from llmdeploy.units import show_ratio, show_seconds

CONCURRENCY = "requests decoded together, each"
TALLEST = 20
"""A curve is drawn up to this many times its objective. Source: own choice."""


def latency(plan: Plan, curves: Sequence[Curve]) -> str:
    """One section a kind of replica, with the time to the first token and the time per token."""
    return "".join(_section(plan, curve) for curve in curves)


def _section(plan: Plan, curve: Curve) -> str:
    points = [point for point in curve.points if point.stable and point.batch > 0]
    if len(points) < 2:
        return ""
    mark = ("planned peak", curve.planned_batch)
    first = _chart(
        "TTFT", points, plan.objectives.ttft_p95_s, mark,
        [[(p.batch, p.ttft_p95_s) for p in points], [(p.batch, p.ttft_p50_s) for p in points]],
    )  # fmt: skip
    later = _chart(
        "TPOT", points, plan.objectives.tpot_p95_s, mark,
        [[(p.batch, p.tpot_p95_s) for p in points], [(p.batch, p.tpot_mean_s) for p in points]],
    )  # fmt: skip
    lead = (
        f"{curve.name}: {curve.replicas} replica(s), each at growing rates up to"
        f" {show_ratio(points[-1].utilisation_ratio)} of what it sustains"
        f" ({points[-1].sustained_rate_per_s / curve.replicas:.3g} requests/s)."
    )
    keys = key([("second", "p95 of requests"), ("first", "median (TTFT) or mean (TPOT)"),
                ("bad", "objective (p95)")])  # fmt: skip
    body = (
        f'{keys}<div class="pair"><div><h3>Time to first token</h3>{first}</div>'
        f"<div><h3>Time per output token</h3>{later}</div></div>"
    )
    return section("Latency against concurrency", body + _words(points, plan), lead=lead)


def _chart(
    name: str,
    points: Sequence[Peak],
    promised_s: float,
    mark: tuple[str, float],
    pairs: Sequence[Sequence[tuple[float, float]]],
) -> str:
    highest = max(promised_s, min(p[1] for p in pairs[0])) * TALLEST
    values = [y for pair in pairs for _, y in pair if math.isfinite(y) and y <= highest]
    x = axis(CONCURRENCY, [p.batch for p in points], logarithmic=True)
    y = axis(f"{name}, s", [*values, promised_s], logarithmic=True)
    lines = [
        Line(colour=colour, points=tuple((a, b) for a, b in pair if b <= highest))
        for colour, pair in zip(("second", "first"), pairs, strict=True)
    ]
    limit = (f"objective {show_seconds(promised_s)}", promised_s)
    return chart(f"{name} against concurrency", x, y, lines=lines, limit=limit, mark=mark)


def _words(points: Sequence[Peak], plan: Plan) -> str:
    kept = [
        p for p in points
        if p.ttft_p95_s <= plan.objectives.ttft_p95_s and p.tpot_p95_s <= plan.objectives.tpot_p95_s
    ]  # fmt: skip
    if not kept:
        return '<p class="note">No load keeps both objectives.</p>'
    last = kept[-1]
    words = (
        f"Both objectives hold up to {last.batch:.3g} requests together and"
        f" {show_ratio(last.utilisation_ratio)} of the sustained rate (of the points drawn)."
    )
    return f'<p class="note">{text(words)}</p>'

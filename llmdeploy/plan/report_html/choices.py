"""The layouts: what was chosen, what nothing else beats, and why the others were rejected."""

from collections.abc import Sequence

from llmdeploy.plan.cluster import Choice, Cluster, Quality, RejectedLayout
from llmdeploy.plan.report_html.chart import Dot, axis, chart
from llmdeploy.plan.report_html.words import key, rows, section, short, text
from llmdeploy.units import show_seconds

COLOURS: dict[Quality, str] = {"as published": "first", "8 bits": "third", "4 bits": "second"}
MOST_REJECTED = 30
"""Rows of one rule; further ones are counted. Source: own choice."""


def pareto(cluster: Cluster) -> str:
    """The plot of the layouts that nothing else beats, and their table."""
    choices = cluster.choices
    if not choices:
        return ""
    words, costs = _costs(choices, cluster.cost.currency)
    x = axis(words, costs)
    y = axis("TPOT p95, s", [choice.tpot_p95_s for choice in choices])
    dots = [
        Dot(
            colour=COLOURS[choices[group[0]].quality],
            x=costs[group[0]],
            y=choices[group[0]].tpot_p95_s,
            label=", ".join(str(n + 1) for n in group),
            filled=any(choices[n].chosen for n in group),
        )
        for group in _together(choices, costs)
    ]
    used = [quality for quality in COLOURS if any(c.quality == quality for c in choices)]
    keys = key([(COLOURS[quality], f"weights {quality}") for quality in used])
    drawn = chart("layouts by cost and time per token", x, y, dots=dots)
    lead = f"Layouts that carry the peak and nothing else beats, of {cluster.looked_at} looked at."
    return section("Pareto set", f"{keys}{drawn}" + _table(choices, cluster), lead=lead)


def _costs(choices: Sequence[Choice], currency: str | None) -> tuple[str, list[float]]:
    prices = [choice.price_per_hour for choice in choices]
    if all(price is not None for price in prices):
        return f"{currency or 'price'} per hour", [price or 0.0 for price in prices]
    powers = [choice.power_w for choice in choices]
    if all(power is not None for power in powers):
        return "devices' power, kW", [(power or 0.0) / 1e3 for power in powers]
    return "devices", [float(choice.devices) for choice in choices]


def _together(choices: Sequence[Choice], costs: Sequence[float]) -> list[list[int]]:
    """Numbers of the choices by place: those that would cover each other share one dot."""
    wide = (max(costs) - min(costs)) or 1.0
    times = [choice.tpot_p95_s for choice in choices]
    tall = (max(times) - min(times)) or 1.0
    groups: dict[tuple[int, int, str], list[int]] = {}
    for n, choice in enumerate(choices):
        place = (round(costs[n] / wide * 14), round(times[n] / tall * 12), choice.quality)
        groups.setdefault(place, []).append(n)
    return list(groups.values())


def _table(choices: Sequence[Choice], cluster: Cluster) -> str:
    heads = ("no.", "layout", "devices", "spares", "an hour", "TTFT p95", "TPOT p95", "weights")
    lines = [
        (
            str(n + 1),
            f"<b>{text(choice.layout)}</b> (chosen)" if choice.chosen else text(choice.layout),
            str(choice.devices),
            str(choice.spares),
            _hourly(choice, cluster.cost.currency),
            show_seconds(choice.ttft_p95_s),
            show_seconds(choice.tpot_p95_s),
            choice.quality,
        )
        for n, choice in enumerate(choices)
    ]
    columns = "2.2em minmax(0, 3fr) repeat(6, minmax(0, 1fr))"
    return rows(heads, lines, columns=columns)


def _hourly(choice: Choice, currency: str | None) -> str:
    if choice.price_per_hour is not None:
        return text(f"{short(choice.price_per_hour)} {currency or ''}".strip())
    return f"{short(choice.power_w / 1e3)} kW" if choice.power_w is not None else "not known"


def rejected(cluster: Cluster) -> str:
    """The rejected layouts by the rule that rejects them, with its words."""
    by_rule: dict[str, list[RejectedLayout]] = {}
    for layout in cluster.rejected:
        by_rule.setdefault(layout.rule, []).append(layout)
    parts = []
    for rule, layouts in sorted(by_rule.items(), key=lambda item: -len(item[1])):
        lines = [(text(one.layout), text(one.words)) for one in layouts[:MOST_REJECTED]]
        more = len(layouts) - len(lines)
        rest = f'<p class="note">and {more} more by this rule</p>' if more else ""
        parts.append(
            f"<details open><summary>{text(rule)}: {len(layouts)}</summary>"
            + rows(("layout", "why not"), lines, columns="minmax(0, 1fr) minmax(0, 2fr)")
            + rest
            + "</details>"
        )
    lead = f"{len(cluster.rejected)} layouts, by the rule that rejects them."
    return section("Rejected layouts", "".join(parts), lead=lead)

"""The page of a plan, whole: one file without anything from outside."""

from collections.abc import Iterator, Sequence

from llmdeploy.estimate.calibration import Forecast
from llmdeploy.plan.document import Plan
from llmdeploy.plan.report_html.bars import memory_bars
from llmdeploy.plan.report_html.choices import pareto, rejected
from llmdeploy.plan.report_html.decided import alternatives, cost, notes, placed, promised
from llmdeploy.plan.report_html.forecasts import forecasts
from llmdeploy.plan.report_html.latency import latency
from llmdeploy.plan.report_html.style import STYLE
from llmdeploy.plan.report_html.words import figure, number, rows, section, text
from llmdeploy.simulate.curve import Curve

TILES = (
    ("replicas", "replicas that carry the peak"),
    ("peak_rate", "requests at the peak"),
    ("needed_throughput", "output needed at the peak"),
    ("utilisation", "utilisation at the peak"),
    ("ttft_p95", "first token, p95"),
    ("tpot_p95", "per token, p95"),
    ("tpot", "per token, saturated"),
    ("max_num_seqs", "requests together, a replica"),
)
"""Figures that head the page, as far as the plan has them."""


def render(plan: Plan, curves: Sequence[Curve] = (), *, records: Sequence[Forecast] = ()) -> str:
    """The plan as HTML, with the records of former releases; the same input gives the same text."""
    title = f"Plan {plan.id} for {plan.service}"
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{text(title)}</title><style>{STYLE}</style>"
    )
    body = "".join(part for part in _parts(plan, curves, records) if part)
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}</head><body><main>{body}</main>'
        "</body></html>\n"
    )


def _parts(plan: Plan, curves: Sequence[Curve], records: Sequence[Forecast]) -> Iterator[str]:
    yield f"<h1>{text(plan.service)}: {text(plan.model.id)}</h1>"
    shape = plan.model.shape
    yield (
        f"<p>Plan {text(plan.id)}. {text(shape.architecture)}, {shape.layers} layers,"
        f" {plan.workload.requests_per_day:,} requests a day, peak"
        f" {plan.workload.peak_factor:g} times the mean.</p>"
    )
    yield _tiles(plan)
    yield promised(plan)
    yield memory_bars(plan)
    yield latency(plan, curves)
    if plan.cluster is not None:
        yield pareto(plan.cluster)
        yield cost(plan.cluster)
    yield forecasts(records)
    yield placed(plan)
    yield notes(plan)
    if plan.cluster is not None:
        yield alternatives(plan.cluster)
        yield rejected(plan.cluster)
    yield _formulas(plan)


def _tiles(plan: Plan) -> str:
    found = [(words, figure(plan.figures, name)) for name, words in TILES]
    shown = "".join(
        f'<div class="tile"><b>{_large(number(value.value, value.unit))}</b>'
        f"<span>{text(words)}</span></div>"
        for words, value in found
        if value is not None
    )
    return f'<div class="tiles">{shown}</div>'


def _large(words: str) -> str:
    """The number large, its unit small."""
    value, _, unit = words.partition(" ")
    return f"{text(value)} <small>{text(unit)}</small>" if unit else text(value)


def _formulas(plan: Plan) -> str:
    lines = [
        (
            text(value.name.replace("_", " ")),
            f'<span class="number">{text(number(value.value, value.unit))}</span>',
            f'<span class="soft">{text(value.origin)}</span>',
            f'<span class="formula">{text(value.formula)}</span>',
        )
        for value in plan.figures
    ]
    columns = "minmax(0, 1.3fr) minmax(0, 1fr) minmax(0, 0.8fr) minmax(0, 4fr)"
    body = rows(("figure", "value", "origin", "formula"), lines, columns=columns)
    lead = "Every figure with the numbers put in; sizes in bytes, times in seconds."
    return section("Formulas", body, lead=lead)

"""How far the service's last forecasts were off, release by release."""

from collections.abc import Iterator, Sequence

from llmdeploy.estimate.calibration import NEWEST, Forecast, told
from llmdeploy.plan.report_html.chart import Line, axis, chart
from llmdeploy.plan.report_html.words import rows, section, short, text
from llmdeploy.units import show_seconds

NAMES = {
    "output_tokens_per_s": "output tokens/s", "ttft_s": "first token", "tpot_s": "per token",
    "kv_cache_tokens": "KV tokens",
}  # fmt: skip


def forecasts(records: Sequence[Forecast]) -> str:
    """One row for each quantity of the newest records, oldest first; empty without records."""
    newest = sorted(records, key=lambda record: record.at_s)[-NEWEST:]
    lines = [line for record in newest for line in _lines(record)]
    if not lines:
        return ""
    heads = ("release", "engine", "requests", "figure", "predicted", "measured", "off by")
    columns = "minmax(0, 1.4fr) minmax(0, 1.2fr) minmax(0, 0.8fr) minmax(0, 1.2fr)"
    table = rows(heads, lines, columns=f"{columns} repeat(3, minmax(0, 1fr))")
    notes = "".join(f'<p class="note">{text(words)}</p>' for words in told(newest))
    lead = (
        "What former releases measured when they went live, against what was predicted at that"
        " load."
    )
    return section("Forecasts against actuals", _drawn(newest) + table + notes, lead=lead)


def _lines(record: Forecast) -> Iterator[tuple[str, ...]]:
    for one in record.compared:
        off = (one.ratio - 1) * 100
        yield (
            text(record.release),
            text(f"{record.engine} on {record.device}"),
            str(record.requests),
            NAMES[one.name],
            f'<span class="number">{_value(one.name, one.predicted)}</span>',
            f'<span class="number">{_value(one.name, one.measured)}</span>',
            f'<span class="number">{off:+.0f} %</span>',
        )


def _value(name: str, value: float) -> str:
    return show_seconds(value) if name.endswith("_s") and "per_s" not in name else short(value)


def _drawn(records: Sequence[Forecast]) -> str:
    """Measured over predicted speed by release; nothing to draw with fewer than two."""
    points = [
        (float(number), one.ratio)
        for number, record in enumerate(records, 1)
        for one in record.compared[:1]
    ]
    if len(points) < 2:
        return ""
    x = axis("releases, oldest first", [at for at, _ in points])
    y = axis("measured / predicted", [1.0, *(ratio for _, ratio in points)])
    line = Line(colour="first", points=tuple(points))
    label = "measured over predicted by release"
    return chart(label, x, y, lines=[line], limit=("as predicted", 1.0))

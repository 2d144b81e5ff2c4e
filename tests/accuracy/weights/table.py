"""The table of errors by family and by format."""

import statistics
from collections import defaultdict

from .rows import Compared


def quantile(values: list[float], share: float) -> float:
    """The value that `share` of all are not above."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def errors(rows: list[Compared]) -> list[float]:
    return [abs(row.error_ratio) for row in rows if not row.drafted]


def render(rows: list[Compared], title: str) -> str:
    """Median, 90th percentile and worst error in percent, by family and by format."""
    lines = [f"Weights of one device, {title}: error in percent",
             f"{'':32}{'rows':>6}{'median':>9}{'p90':>9}{'worst':>9}"]  # fmt: skip
    lines.append(_line("all", errors(rows)))
    for key in ("format", "family"):
        groups = defaultdict(list)
        for row in rows:
            if not row.drafted:
                groups[getattr(row, key)].append(abs(row.error_ratio))
        lines.append(f"by {key}")
        lines.extend(_line(f"  {name}", found) for name, found in sorted(groups.items()))
    return "\n".join(lines)


def _line(name: str, found: list[float]) -> str:
    figures = (statistics.median(found), quantile(found, 0.9), max(found))
    return f"{name:32}{len(found):6}" + "".join(f"{100 * figure:9.2f}" for figure in figures)

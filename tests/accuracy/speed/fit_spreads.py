"""Errors of a fit on points that it saw or did not see, and the intervals that follow."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from llmdeploy.estimate.speed.coefficients import Fitted
from llmdeploy.estimate.speed.estimate import estimate

from .fit_model import Model, coefficients, fitted
from .fit_points import thinned
from .rows import Point

LEAST_POINTS = 10
"""Of a model or device that is held out: fewer say nothing."""
ATTRIBUTES = (("tpot", "tpot_s"), ("ttft", "ttft_s"), ("tokens", "output_tokens_per_s"))
FIGURES = tuple(figure for figure, _ in ATTRIBUTES)
OUTSIDE = 0.03
"""Of fitted points below and above an interval's ends. Less than a twentieth: launches of which
the keys tell only a part are met worse, and those between the fitted and the held out are many."""
UNSEEN_EACH_WAY = 1.5
"""How much wider roofline is than interpolated. Source: assumed; no launch that we know has
neither an engine nor a device family that others share."""
LEAST_LOG = 0.1
"""No interval is narrower. Source: runs of one launch differ by 5 to 10 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """Points with the logarithms of foretold over measured figures, nan where not measured."""

    points: list[Point]
    figures: dict[str, np.ndarray]

    @classmethod
    def of(cls, model: Model, found: list[Point]) -> "Tested":
        """What the estimate says with these coefficients: from the keys alone, not with the
        requests at once that were measured."""
        made = [
            estimate(point.case, Fitted(coefficients=one, method="calibrated", kind="", seen=False))
            for point, one in zip(found, coefficients(model, found), strict=True)
        ]
        figures = {
            figure: np.array(
                [
                    math.log(getattr(told, name).value / measured)
                    if (measured := getattr(point, name)) else math.nan
                    for point, told in zip(found, made, strict=True)
                ]
            )
            for figure, name in ATTRIBUTES
        }  # fmt: skip
        return cls(points=found, figures=figures)

    def and_also(self, other: "Tested") -> "Tested":
        return Tested(
            points=self.points + other.points,
            figures={f: np.concatenate([self.figures[f], other.figures[f]]) for f in FIGURES},
        )


def kind(point: Point) -> str:
    """As the product names it: engine and whether the model has experts."""
    return f"{point.case.engine.name}/{'experts' if point.has_experts else 'dense'}"


def loaded_kind(point: Point) -> str:
    load = "closed loop" if point.tpot_s is not None else "full"
    return f"{'experts' if point.has_experts else 'dense'}, {load}"


def grouped(made: Tested, by: Callable[[Point], str]) -> Iterator[tuple[str, str, np.ndarray]]:
    """Group, figure and its logarithms."""
    members: dict[str, list[int]] = defaultdict(list)
    for i, point in enumerate(made.points):
        members[by(point)].append(i)
    for name, places in sorted(members.items()):
        for figure in FIGURES:
            logs = made.figures[figure][places]
            if np.isfinite(logs).any():
                yield name, figure, logs[np.isfinite(logs)]


def held_out(found: list[Point], by: Callable[[Point], str], *, most: int = 10) -> Tested:
    """Errors on each model (or device) of a fit that never saw it."""
    made = Tested(points=[], figures={f: np.zeros(0) for f in FIGURES})
    for name, count in Counter(by(p) for p in found).items():
        if count < LEAST_POINTS:
            continue
        held = thinned([p for p in found if by(p) == name], 25)
        model = fitted(thinned([p for p in found if by(p) != name], most), rounds=8)
        made = made.and_also(Tested.of(model, held))
    return made


def spreads(parts: dict[str, Tested]) -> str:
    """The intervals of coefficients.yaml, and the medians behind them."""
    by_method = {
        "seen": parts["seen"],
        "calibrated": parts["model"].and_also(parts["device"]),
        "interpolated": parts["architecture"],
    }
    lines = ["spreads:"]
    for figure in FIGURES:
        lines.append(f"  {figure}:")
        least = most = 0.0
        for method, made in by_method.items():
            _, _, logs = next(x for x in grouped(made, lambda _: "") if x[1] == figure)
            ends = _ends(logs)
            least, most = min(least, ends[0]), max(most, ends[1])
            low, high = (least, most) if method == "interpolated" else ends
            lines.append(f"    {method}: [{low:.2f}, {high:.2f}]")
            if method == "interpolated":
                wider = UNSEEN_EACH_WAY
                lines.append(f"    roofline: [{wider * low:.2f}, {wider * high:.2f}]")
                continue
            for name, its, logs in grouped(made, kind):
                if its == figure and len(logs) >= 2 * LEAST_POINTS:
                    low, high = _ends(logs)
                    lines.append(f"    {name}/{method}: [{low:.2f}, {high:.2f}]")
    lines.append("held_out:  # medians of |foretold / measured - 1| of launches never seen")
    for word in ("model", "device", "architecture"):
        cells = [
            f"{name} {figure}: {np.median(np.abs(np.expm1(logs))):.3f}"
            for name, figure, logs in grouped(parts[word], lambda p: loaded_kind(p).split(",")[0])
        ]
        lines.append(f"  {word}: {{{', '.join(cells)}}}")
    return "\n".join(lines) + "\n"


def _ends(logs: np.ndarray) -> tuple[float, float]:
    """Of log(measured / foretold)."""
    low, high = np.quantile(-logs, (OUTSIDE, 1 - OUTSIDE))
    return min(low, -LEAST_LOG), max(high, LEAST_LOG)

"""Fits the coefficients of the speed estimate to measured serving points.

`python -m tests.accuracy.speed.fit [--write]`: prints the errors on fitted points and on models,
devices and architectures that were held out of the fit; with --write also coefficients.yaml.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Callable

import numpy as np

from llmdeploy.estimate.speed.coefficients import NAMES, classes

from .fit_model import Model, fitted
from .fit_points import saturated, thinned, usable
from .fit_spreads import Tested, grouped, held_out, loaded_kind, spreads
from .rows import Point, points


def report(title: str, made: Tested, by: Callable[[Point], str]) -> None:
    """A line a group and figure: how many, median and 90th percentile, and the bias."""
    sys.stdout.write(f"{title}\n")
    for name, figure, logs in grouped(made, by):
        if len(logs) < 8:
            continue
        ratios = np.abs(np.expm1(logs))
        sys.stdout.write(
            f"  {name:56.56} {figure:6} {len(logs):5d}  median {np.median(ratios):6.1%}"
            f"  p90 {np.quantile(ratios, 0.9):6.1%}  bias {np.mean(logs):+6.1%}\n"
        )


def written(model: Model, found: list[Point]) -> str:
    """The factors of coefficients.yaml."""
    lines = ["factors:", "  base:"]
    for i, name in enumerate(NAMES):
        lines.append(f"    {name}: {model.vector[i]:.3f}")
    by_class: dict[str, list[str]] = defaultdict(list)
    for (group, name, i), value in zip(model.slots, model.vector, strict=True):
        if group != "base" and abs(value) >= 0.02:
            by_class[f"{group}={name}"].append(f"{NAMES[i]}: {value:.2f}")
    for key, cells in by_class.items():
        lines.append(f"  {key}: {{{', '.join(cells)}}}")
    lines.append("launches:")
    counts: Counter[str] = Counter()
    for point in found:
        counts.update(f"{group}={name}" for group, name in classes(point.case).items())
    lines += [f"  {key}: {count}" for key, count in sorted(counts.items())]
    seen: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for point in found:
        seen[point.case.engine.name][device(point)].add(point.family)
    lines.append("seen:")
    for engine, devices in sorted(seen.items()):
        lines.append(f"  {engine}:")
        lines += [f"    {name}: [{', '.join(sorted(f))}]" for name, f in sorted(devices.items())]
    return "\n".join(lines) + "\n"


def device(point: Point) -> str:
    assert point.case.device is not None
    return point.case.device.id


def family(point: Point) -> str:
    return point.family


def architecture(point: Point) -> str:
    assert point.case.device is not None
    return point.case.device.architecture


def main() -> None:
    every = points(mended=True)
    found = [p for p in every if usable(p) or saturated(p)]
    model = fitted(thinned(found, 40))
    made = Tested.of(model, found)
    told = [p for p in every if usable(p, drafted=True) or saturated(p)]
    parts = {"seen": Tested.of(model, told)}
    for word, by in (("model", family), ("device", device), ("architecture", architecture)):
        parts[word] = held_out(found, by)
        report(f"held-out {word}", parts[word], loaded_kind)
    report("fitted", made, loaded_kind)
    report("by engine", made, lambda p: f"{p.case.engine.name}/{loaded_kind(p)}")
    if "--write" in sys.argv:
        sys.stdout.write(written(model, found) + spreads(parts))


if __name__ == "__main__":
    main()

"""Which measured points coefficients are fitted to, and what each says of steps."""

import functools
import random
from collections import defaultdict
from dataclasses import replace

from llmdeploy.estimate.speed.benchmark import batch_requests, benchmarked
from llmdeploy.estimate.speed.estimate import estimate
from llmdeploy.estimate.speed.seats import seats
from llmdeploy.estimate.speed.spread import groups

from .rows import Point

FULL = 0.96
"""Share of a full server's requests that decode. Source: assumed; the rest computes prompts."""


def usable(point: Point, *, drafted: bool = False) -> bool:
    """A steady closed loop whose clients all found a seat; `drafted`: also of drafted tokens."""
    running, callers = point.running, point.case.concurrency
    if point.odd or (point.drafted and not drafted):
        return False
    if running is None or callers is None or not point.case.output_tokens:
        return False
    if (point.ttft_s or 0) > 10 and running < 0.85 * callers:
        return False
    return point.case.device is not None and point.case.shape.parameters is not None


def saturated(point: Point) -> bool:
    """A full server of which only the throughput was measured."""
    known = point.case.input_tokens and (point.case.output_tokens or 0) > 8
    return (
        not point.odd and bool(known) and point.tpot_s is None and point.ttft_s is None
        and point.output_tokens_per_s is not None and point.case.request_rate_per_s is None
        and point.group.startswith(("trtllm", "rocm"))
    )  # fmt: skip


@functools.cache
def loaded(point: Point) -> tuple[float, float]:
    """Requests at once, and seconds between tokens: of a full server, what its throughput says, of
    a batch that it served in waves without the last one, as far as the table foretells that."""
    if point.tpot_s is not None:
        return point.case.concurrency or 1, point.tpot_s
    rate = point.output_tokens_per_s or 1
    if point.case.concurrency is not None:
        at_once = point.case.concurrency
    else:
        case = benchmarked(point.case)
        at_once = seats(case) * groups(case).replicas
        if requests := batch_requests(point.case):
            at_once = min(at_once, requests)
            told = estimate(point.case)
            steady = estimate(replace(case, concurrency=at_once))
            rate *= steady.output_tokens_per_s.value / told.output_tokens_per_s.value
    return at_once, at_once * FULL / rate


def running_of(point: Point) -> float | None:
    return point.running if point.tpot_s is not None else loaded(point)[0] * FULL


def cell(point: Point) -> tuple[str, str, str]:
    assert point.case.device is not None
    full = " full" if point.tpot_s is None else ""
    return point.case.engine.name, point.case.device.id + full, point.family


def thinned(found: list[Point], most: int) -> list[Point]:
    """No two equal measurements, and at most so many points of one cell."""
    cells: dict[tuple[str, str, str], dict[tuple[float, float], Point]] = defaultdict(dict)
    for point in found:
        seen = (point.tpot_s or 0, point.ttft_s or 0)
        if point.tpot_s is None:
            seen = (point.output_tokens_per_s or 0, 0.0)
        cells[cell(point)][seen] = point
    draw = random.Random(1)
    kept = []
    for same in cells.values():
        each = list(same.values())
        kept += each if len(each) <= most else draw.sample(each, most)
    return kept

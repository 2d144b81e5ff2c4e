"""How many requests are decoded together: the stationary distribution of the batch."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llmdeploy.simulate.steps import Steps, between

GRID = 40
"""Points of the distribution. Source: own choice: quantiles move by less than 0.1 % with 100."""

FEW = 3.0
"""Requests together from which on stalls widen their distribution. Source: own choice."""

LEVELS = 1
"""Parts of the distribution of the batch. Source: own choice: with three the errors against the
simulation stay the same to 0.1 % (tests/simulate/test_queue.py), for three times the time."""

UNEVEN = 0.4
"""Variance of one replica's batch around its share of all requests.

Source: own simulation: least busy of four keeps replicas within one request of each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A replica's batch, as one of few that stand for all."""

    chance: float
    decode_s: float
    """A step without prompts, where something is decoded."""
    step_s: float
    """A step in the mean."""
    idle_ratio: float
    """Share of time in which nothing is decoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """What a replica looks like at a random moment, and to a random token."""

    batch: float
    batch_variance: float
    token_step_s: float
    """Mean step over tokens."""
    relaxation_s: float
    """How long the batch stays off its mean."""
    levels: tuple[Level, ...]
    waiting_ratio: float
    """Share of requests that find every slot of every replica taken."""
    waiting_s: float
    """How long those wait for a slot in the mean."""


def crowd(load: Steps, *, replicas: int) -> Crowd:
    """The batch of one of these replicas: a birth-and-death chain over the requests of all.

    Weight of j requests: product over i <= j of rate / (i / (decoded tokens x step at i)), as a
    queue with processor sharing has for any output lengths; geometric past the slots, with the
    wait of Allen and Cunneen: (1 + variation) / 2 of the exponential one's. Prompts stall decoding,
    which widens the distribution by 1 + rate^2 E[prefill^2] / 2 / (1 - prefill's share)^2: the
    chain's logarithm is divided by that.
    Source: Cohen 1979 (generalised processor sharing); Allen 1990, eq. 5.78.
    """
    total_rate_per_s = load.rate_per_s * replicas
    slots = load.room.most_batch * replicas
    left = max(0.05, 1 - load.rate_per_s * load.input_tokens * load.prefill.s_per_token)
    stalls = 1 + load.rate_per_s**2 * load.prefill.square_mean / 2 / left**2
    stalls += load.room.variation
    alone_s = load.step_s(1.0, load.rate_per_s)
    many = load.rate_per_s * load.decoded_tokens * alone_s
    stalls = 1 + (stalls - 1) * many / (many + FEW)  # where few are together, none are widened

    lengths_s = tuple(load.step_s(knot, load.rate_per_s) for knot in load.knots)
    work = total_rate_per_s * load.decoded_tokens

    def growth(requests: float) -> float:
        """log of weight(j) / weight(j - 1)."""
        seen = max(1.0, _seen(requests / replicas, replicas))
        return math.log(work * between(load.knots, lengths_s, seen) / requests) / stalls

    points = _points(growth, slots)
    logs = [0.0]
    for low, high in itertools.pairwise(points):
        logs.append(logs[-1] + (high - low) * growth((low + high + 1) / 2))
    top = max(logs)
    weights = [
        math.exp(log - top) * width for log, width in zip(logs, _widths(points), strict=True)
    ]
    ratio = math.exp(min(-1e-9, growth(slots)))
    full = math.exp(logs[-1] - top) * ratio / (1 - ratio) if points[-1] >= slots else 0.0
    return _summed(load, replicas, points, weights, full)


def _seen(batch: float, replicas: int) -> float:
    """The batch that a request finds itself in, itself included, where replicas share the load."""
    if replicas == 1:
        return batch
    if batch <= 1:
        return 1.0
    return batch + UNEVEN / batch * min(1.0, batch - 1)


def _points(growth: Callable[[float], float], slots: float) -> list[float]:
    """Numbers of requests around the likeliest, as far as they weigh anything."""
    low, mode = 1e-3, slots
    if growth(slots) < 0:
        for _ in range(24):
            middle = (low + mode) / 2
            low, mode = (middle, mode) if growth(middle) > 0 else (low, middle)
    near = max(0.25, mode * 0.02)
    slope = growth(max(1e-3, mode - near)) - growth(mode + near)
    spread = 1 / math.sqrt(max(slope / (2 * near), 0.1 / (mode + 1)))
    first = max(0.0, math.floor(mode - 7 * spread))
    last = min(slots, math.ceil(mode + 8 * spread + 6))
    width = max(1.0, math.ceil((last - first) / GRID))
    points = [first + i * width for i in range(int((last - first) / width) + 1)]
    return points if points[-1] >= last else [*points, last]


def _widths(points: Sequence[float]) -> list[float]:
    """How many numbers of requests each point stands for: half way to its neighbours."""
    if len(points) == 1:
        return [1.0]
    gaps = [high - low for low, high in itertools.pairwise(points)]
    inner = [(before + after) / 2 for before, after in itertools.pairwise(gaps)]
    return [(gaps[0] + 1) / 2, *inner, (gaps[-1] + 1) / 2]


def _summed(
    load: Steps, replicas: int, points: Sequence[float], weights: Sequence[float], full: float
) -> Crowd:
    """The crowd of these weights; `full` is the weight of all requests past the slots."""
    total = sum(weights) + full
    chances = [weight / total for weight in weights]
    batches = [point / replicas for point in points]
    chances[-1] += full / total
    batch = sum(c * b for c, b in zip(chances, batches, strict=True))
    token_step_s = load.step_s(1.0, load.rate_per_s)
    if batch > 0:
        token_step_s = sum(
            c * b * load.step_s(_seen(b, replicas), load.rate_per_s)
            for c, b in zip(chances, batches, strict=True)
            if c * b > 1e-9 * batch
        ) / batch  # fmt: skip
    square = sum(c * b * b for c, b in zip(chances, batches, strict=True))
    pooled_variance = max(0.0, square - batch**2)
    spare_per_s = (load.sustained_rate_per_s - load.rate_per_s) * replicas
    full_s = (1 + load.output_variation) / 2 / spare_per_s
    room = load.room
    freed_s = (room.most_batch - room.free_batch) / load.rate_per_s / replicas
    tight = sum(c for c, b in zip(chances, batches, strict=True) if b > room.free_batch)
    waiting = max(full / total, tight)
    return Crowd(
        batch=batch,
        batch_variance=pooled_variance + (UNEVEN if replicas > 1 else 0.0),
        token_step_s=token_step_s,
        relaxation_s=replicas * pooled_variance / load.rate_per_s,
        levels=_levels(load, replicas, chances, batches),
        waiting_ratio=waiting,
        waiting_s=freed_s + full_s * full / total / max(waiting, 1e-12),
    )


def _levels(
    load: Steps, replicas: int, chances: Sequence[float], batches: Sequence[float]
) -> tuple[Level, ...]:
    """The batches in LEVELS parts of equal chance, each by its mean."""
    levels, chance, idle, total = [], 0.0, 0.0, 0.0
    for i, (c, b) in enumerate(zip(chances, batches, strict=True)):
        chance += c
        total += c * b
        idle += c * max(0.0, 1 - b)
        last = i == len(batches) - 1
        if chance > 0 and (last or chance >= 1 / LEVELS):
            batch = total / chance
            seen = max(1.0, _seen(batch, replicas))
            decode_s = load.decode_step_s(seen)
            levels.append(
                Level(
                    chance=chance,
                    decode_s=decode_s,
                    step_s=load.step_s(seen, load.rate_per_s),
                    idle_ratio=min(1.0, idle / chance),
                )
            )
            chance, idle, total = 0.0, 0.0, 0.0
    return tuple(levels)

"""The time to the first token: waiting for a slot, for the step in progress, then the prompt."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llmdeploy.simulate.crowd import Crowd, Level
from llmdeploy.simulate.steps import Prompt, Steps

EVENNESS = 0.65
"""How far choosing the least busy of four evens out one replica's arrivals: their squared
variation is 1 - EVENNESS with many replicas.

Source: own simulation (tests/simulate/test_queue.py)."""

AVOIDED = 0.75
"""How far the balancer keeps requests from replicas that prompts hold up: those finish nothing
meanwhile and stay busier than the others. Source: as EVENNESS."""

FOUND_RATIO = 0.5
"""Of the variance of the step that an arrival finds, what its wait has: past its budget a step
serves prompts in order, and what came last does not hold up what came first.

Source: as EVENNESS."""

LOOKS, SHORTEST_S = 50, 1e-9
"""Bounds of the search: an engine model may answer 0 s. Source: own choice."""

TOLERANCE = 2e-3
"""Of a quantile. Source: own choice: far below the model's own error."""

Part = tuple[float, float, float, float]
"""A chance and a least time; past it either evenly over a third number of seconds (the fourth is
0), or lognormal by its logarithm's mean and its deviation times the root of 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """One way that a first token comes: with a chance, after a wait of that mean and variance."""

    chance: float
    wait_s: float
    wait_variance: float
    step_s: float
    """Decoding that goes on in each step that holds a piece of the prompt."""


def ttft_quantiles_s(
    load: Steps, seen: Crowd, *, shares: Sequence[float], replicas: int
) -> tuple[float, tuple[float, ...]]:
    """Mean of the time to the first token, and its quantiles."""
    branches = [branch for branch in _branches(load, seen, replicas) if branch.chance > 1e-5]
    total = sum(branch.chance for branch in branches)
    mean_s, parts = 0.0, []
    for branch in branches:
        for prompt in load.prompts:
            chance = branch.chance * prompt.share / total
            own_s = math.ceil(prompt.tokens / load.chunk_tokens) * branch.step_s
            mean_s += chance * (own_s + prompt.prefill_s + branch.wait_s)
            parts.append(_part(chance, own_s, prompt, branch))
    return mean_s, tuple(_quantile_s(parts, share, mean_s) for share in shares)


def _part(chance: float, steps_s: float, prompt: Prompt, branch: Branch) -> Part:
    """The class of prompts in that branch; prompts of a class lie evenly between its ends."""
    low_s, high_s = steps_s + prompt.least_s, steps_s + prompt.most_s
    if branch.wait_s <= 0:
        return chance, low_s, high_s - low_s, 0.0
    mean_s = branch.wait_s + steps_s + prompt.prefill_s - low_s
    variance = branch.wait_variance + (high_s - low_s) ** 2 / 12
    square = math.log(1 + variance / mean_s**2)
    return chance, low_s, math.log(mean_s) - square / 2, math.sqrt(2 * square)


def evenness(replicas: int) -> float:
    """How much evener than Poisson arrivals are at one of so many replicas."""
    return EVENNESS * (1 - 1 / min(replicas, 4))


def _branches(load: Steps, seen: Crowd, replicas: int) -> Iterator[Branch]:
    """Ways of a first token: at an idle replica; in a step without prompts, alone or with others
    that came in the same step; in a step with prompts; with all slots taken.

    A request waits for the rest of the step it finds, then its prompt goes with those that came
    in that step, as many as the budget holds. A step is taken to be as long as its prompts need;
    cut into steps of the budget they take as long.
    """
    even = evenness(replicas)
    for level in seen.levels:
        step = step_at(load, level, even)
        idle = level.idle_ratio * math.exp(-load.rate_per_s * load.prefill.mean_s)
        idle = 1 - (1 - idle) ** min(replicas, 4)
        free = level.chance * (1 - seen.waiting_ratio)
        yield Branch(chance=free * idle, wait_s=0.0, wait_variance=0.0, step_s=0.0)
        found = free * (1 - idle)
        mixed = (1 - step.pure_ratio) * (1 - AVOIDED * even)
        alone = math.exp(-load.rate_per_s * step.decode_s * (1 - even))
        others_s = step.prefill_s * load.rate_per_s * step.decode_s / max(1e-9, 1 - alone)
        yield Branch(
            chance=found * (1 - mixed) * alone,
            wait_s=step.decode_s / 2,
            wait_variance=step.decode_s**2 / 12,
            step_s=step.decode_s,
        )
        yield Branch(
            chance=found * (1 - mixed) * (1 - alone),
            wait_s=step.decode_s / 2 + others_s,
            wait_variance=step.decode_s**2 / 12 + load.prefill.square_mean,
            step_s=step.decode_s,
        )
        together = min(1.0, load.full_step_s / max(step.found_s, SHORTEST_S))
        grown = 0.5 + load.rate_per_s * step.prefill_s * together
        found_variance = FOUND_RATIO * (step.found_square - step.found_s**2)
        yield Branch(
            chance=found * mixed,
            wait_s=grown * step.found_s,
            wait_variance=step.found_square / 12
            + found_variance
            + load.rate_per_s * step.found_s * load.prefill.square_mean * (1 - even),
            step_s=step.decode_s,
        )
        queued_s = grown * step.found_s + seen.waiting_s
        yield Branch(
            chance=level.chance * seen.waiting_ratio,
            wait_s=queued_s,
            wait_variance=step.found_square + seen.waiting_s**2,
            step_s=load.decode_s[-1],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The steps of a replica at one level of its batch."""

    decode_s: float
    prefill_s: float
    """Of one prompt, its share of the pass's overhead included."""
    pure_ratio: float
    """Share of time in steps without prompts."""
    found_s: float
    """Mean length of the step with prompts that an arrival finds: long ones are found more."""
    found_square: float


def step_at(load: Steps, level: Level, even: float) -> Step:
    """Moments of s = D + prompts that came in the step before. Its cumulants c follow from the
    moments p of a prefill: c2 = rate s p2 / (1 - use^2),
    c3 = (rate s p3 + 3 rate p2 use c2) / (1 - use^3).
    """
    rate_per_s, mean_s = load.rate_per_s, max(level.step_s, 1e-9)
    prefill_s = (mean_s - level.decode_s) / (rate_per_s * mean_s)
    use = min(0.97, rate_per_s * prefill_s)
    square = max(prefill_s**2, load.prefill.square_mean) - even * load.prefill.mean_s**2
    second = rate_per_s * mean_s * square / (1 - use**2)
    third = rate_per_s * mean_s * load.prefill.cube_mean + 3 * rate_per_s * square * use * second
    third /= 1 - use**3
    moment2 = mean_s**2 + second
    moment3 = mean_s**3 + 3 * mean_s * second + third
    pure = min(0.999, math.exp(-rate_per_s * mean_s))
    decode_s = level.decode_s
    mixed_s = max(mean_s - pure * decode_s, 1e-9 * mean_s)  # each times 1 - pure
    return Step(
        decode_s=decode_s,
        prefill_s=prefill_s,
        pure_ratio=min(1.0, pure * decode_s / mean_s),
        found_s=max(0.0, moment2 - pure * decode_s**2) / mixed_s,
        found_square=max(0.0, moment3 - pure * decode_s**3) / mixed_s,
    )


def _quantile_s(parts: Sequence[Part], share: float, mean_s: float) -> float:
    """Time that this share of first tokens does not exceed."""
    low_s, high_s = 0.0, max(2 * mean_s, SHORTEST_S)
    for _ in range(LOOKS):
        if _later(parts, high_s) <= 1 - share:
            break
        low_s, high_s = high_s, 2 * high_s
    for _ in range(LOOKS):
        middle_s = (low_s + high_s) / 2
        if _later(parts, middle_s) > 1 - share:
            low_s = middle_s
        else:
            high_s = middle_s
        if high_s - low_s <= TOLERANCE * high_s:
            break
    return (low_s + high_s) / 2


def _later(parts: Sequence[Part], time_s: float) -> float:
    """Share of first tokens that come later."""
    later, log, erfc = 0.0, math.log, math.erfc  # asked 2,000 times a peak
    for chance, low_s, centre, width in parts:
        left_s = time_s - low_s
        if left_s <= 0:
            later += chance
        elif width:
            later += chance * 0.5 * erfc((log(left_s) - centre) / width)
        elif left_s < centre:
            later += chance * (1 - left_s / centre)
    return later

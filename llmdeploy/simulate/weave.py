"""How one request's time per token varies: the batch around it, and prompts that come between."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from llmdeploy.simulate.crowd import Crowd
from llmdeploy.simulate.lengths import Lengths
from llmdeploy.simulate.steps import EDGES, Steps, middles
from llmdeploy.simulate.waiting import evenness, step_at

SENT_ON = 2.0
"""How much of what comes in a request's own long step the balancer sends to others, over the
evenness of arrivals; with four replicas nearly all. Source: own simulation, as EVENNESS."""

LOOKS = 16
"""Halvings of the bracket. Source: own choice."""


def tpot_s(load: Steps, seen: Crowd, lengths: Lengths, *, replicas: int) -> tuple[float, float]:
    """Mean over requests of the time between their output tokens, and its 95th percentile.

    A request of o tokens lives o x step. Prompts that arrive in that time hold it up; steps are
    alike for a while, so the variance of its mean step is rate x step x E[prefill^2] / o /
    (1 - prefill's share)^2. It starts behind the long step with its own prompt, whose arrivals
    hold up its first ones: that adds (own step - step) x (share + share^2 + ... o times). The
    batch it meets varies as the crowd does, less so the longer it stays. No step is longer than
    its budget of tokens allows.
    Source: own derivation; compared with the simulation in tests/simulate/test_queue.py.
    """
    batch, rate_per_s = max(1.0, seen.batch), load.rate_per_s
    even = evenness(replicas)
    held = _held(load, seen, even, replicas=replicas)
    step_s = seen.token_step_s * sum(one.chance * one.spared_ratio for one in held)
    used = sum(one.chance * one.share for one in held)
    slope = load.step_s(batch + 1, rate_per_s) - load.step_s(batch, rate_per_s)
    # without the rare longest prompts: they move no 95th percentile
    square = sum(p.share * p.prefill_s**2 for p in load.prompts)
    square -= even * load.prefill.mean_s**2
    most_s = max(step_s, load.full_step_s)
    mean_s, classes = 0.0, []
    edges = itertools.pairwise(EDGES)
    for (begin, end), middle_tokens in zip(edges, middles(lengths), strict=True):
        tokens = max(1.0, middle_tokens - 1)
        behind_s = sum(
            one.chance * one.more_s * one.share / (1 - one.share) * (1 - one.share**tokens)
            for one in held
        )
        woven = rate_per_s * step_s * square / tokens / (1 - used) ** 2
        stays = tokens * step_s / max(seen.relaxation_s, 1e-9)
        kept = 2 / stays * (1 - (1 - math.exp(-stays)) / stays) if stays > 1e-6 else 1.0
        crowded = seen.batch_variance * slope**2 * kept
        own_s = min(most_s, step_s + behind_s / tokens)
        spread = math.log(1 + (woven + crowded) / own_s**2)
        mean_s += (end - begin) * own_s
        width = max(1e-9, math.sqrt(2 * spread))
        classes.append((end - begin, math.log(own_s) - spread / 2, width))
    return mean_s, max(mean_s, min(most_s, _quantile_s(classes, mean_s)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """How prompts hold up decoding at one level of the batch."""

    chance: float
    """Of a token to be of this level."""
    share: float
    """Of time that prompts take."""
    more_s: float
    """By how much the step with a request's own prompt is longer than the mean one."""
    spared_ratio: float
    """Mean step over the one without a balancer that sends prompts to idle replicas."""


def _held(load: Steps, seen: Crowd, even: float, *, replicas: int) -> list[_Held]:
    """By level of the batch. A step with a prompt holds it and those that came in the step that
    it found. Where one of the four that the balancer looks at is idle, prompts go there: a busy
    replica gets the share (1 - idle)^3 of what it would get.
    """
    found, looked_at = [], min(replicas, 4)
    tokens = sum(level.chance * (1 - level.idle_ratio) for level in seen.levels)
    for level in seen.levels:
        step = step_at(load, level, even)
        whole = min(0.95, load.rate_per_s * step.prefill_s)
        idle = level.idle_ratio * math.exp(-load.rate_per_s * load.prefill.mean_s)
        share = whole * (1 - idle) ** (looked_at - 1)
        # steps past the budget are cut: the mean of an exponential that ends there
        cut_s = step.found_s * (1 - math.exp(-load.full_step_s / max(step.found_s, 1e-9)))
        found_s = step.pure_ratio * step.decode_s + (1 - step.pure_ratio) * cut_s
        own_s = step.decode_s + load.prefill.mean_s + share * found_s * (1 - level.idle_ratio)
        found.append(
            _Held(
                chance=level.chance * (1 - level.idle_ratio) / max(tokens, 1e-12),
                share=min(0.9, share),
                more_s=max(0.0, 1 - SENT_ON * even)
                * max(0.0, min(own_s, load.full_step_s) - level.step_s),
                spared_ratio=(1 - whole) / (1 - share),
            )
        )
    return found


def _quantile_s(classes: Sequence[tuple[float, float, float]], mean_s: float) -> float:
    low_s, high_s = 0.0, 20 * mean_s
    for _ in range(LOOKS):
        middle_s, later = (low_s + high_s) / 2, 0.0
        at = math.log(middle_s)
        for share, centre, width in classes:
            later += share * 0.5 * math.erfc((at - centre) / width)
        low_s, high_s = (middle_s, high_s) if later > 0.05 else (low_s, middle_s)
    return high_s

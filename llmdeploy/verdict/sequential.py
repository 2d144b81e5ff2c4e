"""Tests that stay valid however often one looks: e-values of "worse than allowed".

An e-value is a non-negative number whose mean is at most 1 while the release is as good as
allowed. A product of such numbers from fresh data passes 1/a with probability at most a, at any
time and over all looks (Ville 1939), so looking after each request costs nothing.

Source: Ramdas, Grünwald, Vovk, Shafer, "Game-theoretic statistics and safe anytime-valid
inference" (Statistical Science 2023); simulated in tests/verdict/test_sequential.py.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

ODDS_FACTORS = (2.0, 8.0, 32.0, 128.0)
"""How much worse than allowed the odds may be: four bets, an equal stake on each.

Source: own choice; at 0.1 % allowed they stand for 0.2, 0.8, 3 and 11 %, so that three failures
in 60 requests pass a limit of 667 (tests/verdict/test_sequential.py prints the requests needed)."""

HAZARD_BETS = (0.5, 0.2)
"""Hazard ratios new to old that are bet on, each from the fast end and from the slow end.

Source: own simulation: of six sets tried under log-normal latency with sigma 0.2 and 0.6 and twice
the time, this needs the fewest requests (tests/verdict/test_sequential.py prints them)."""

NEW_PER_BLOCK = 4
"""Requests of the rarer release that a block holds on average.

Source: own simulation: 2 waste ranks, 8 delay the first looks at a share of 5 %."""

EPISODE_S = 5.0
"""Length of an episode: what passes within it counts as one event.

Source: own simulation of two engines under 32 clients that ask again at once
(tests/bench/closed_loop.py): queues of equal releases differ for a few seconds."""

EPISODE_MOST = 5.0
"""The most that one episode multiplies the evidence by: 25 s at least to pass a limit of 2000.

Source: as EPISODE_S: without it 1 of 40 equal releases was rolled back, with evidence of 10^6;
live on a shared 2-core host an equal release gathered 760 in 25 s at 8.0, then lost it again."""

LOG_CEILING = 600.0
"""Largest logarithm of an e-value that is told; e^600 still fits a float."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """One request in the order of completion: its latency (s) or tokens, and whose it is."""

    new: bool
    value: float
    ended_s: float
    """When it ended, seconds since 1970."""
    load: float | None = None
    """Requests its release had in flight meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Consecutive completions: their labels (whether new) by rising value."""

    order: tuple[bool, ...]
    ended_s: float
    """When its last request ended."""


def e_value(log_e: float) -> float:
    """The e-value of its logarithm, kept inside the floats."""
    return math.exp(min(log_e, LOG_CEILING))


def log_e_excess(events: int, trials: int, *, allowed_ratio: float) -> float:
    """Log evidence that events are more frequent than `allowed_ratio`.

    The likelihood ratio of each bet's ratio to the allowed one, averaged over the bets. Each
    is a non-negative martingale at the allowed ratio and shrinks below it, so the average is
    valid for every ratio up to the allowed one.

    Source: Robbins, "Statistical methods related to the law of the iterated logarithm" (1970),
    mixture likelihood ratio; composite null by monotone likelihood ratio.
    """
    clean = trials - events
    odds = allowed_ratio / (1 - allowed_ratio)
    bets = []
    for factor in ODDS_FACTORS:
        ratio = factor * odds / (1 + factor * odds)
        bets.append(
            events * math.log(ratio / allowed_ratio)
            + clean * math.log((1 - ratio) / (1 - allowed_ratio))
        )
    return _log_mean(bets)


def log_e_origin(failures: Sequence[tuple[bool, float]]) -> float:
    """Log evidence that failures fall on the new release more often than its traffic does.

    Each failure is (whether the new release's, the new release's share of the traffic it came
    from). The gateway picks at random, so that with equal failure ratios a failure is the new
    release's with exactly the probability of its share, whatever the common ratio does over time.

    Source: own derivation: a Bernoulli likelihood ratio on the origin of failures, odds as above.
    """
    bets = []
    for factor in ODDS_FACTORS:
        log_bet = 0.0
        for new, share in failures:
            odds = factor * share / (1 - share)
            bet = odds / (1 + odds)
            log_bet += math.log(bet / share) if new else math.log((1 - bet) / (1 - share))
        bets.append(log_bet)
    return _log_mean(bets)


def block_requests(share: float) -> int:
    """How many consecutive requests, old and new together, are ranked against each other."""
    return max(2 * NEW_PER_BLOCK, round(NEW_PER_BLOCK / min(share, 1 - share)))


def blocks_of(ranked: Sequence[Ranked], *, share: float, allowed_ratio: float) -> tuple[Block, ...]:
    """Blocks of consecutive completions; new values are divided by 1 + allowed_ratio first.

    An unfinished block is left out: it counts once it is full, so that a block never changes
    between two looks.
    """
    size = block_requests(share)
    chunks = [ranked[end - size : end] for end in range(size, len(ranked) + 1, size)]
    return tuple(
        Block(order=_order(chunk, allowed_ratio), ended_s=chunk[-1].ended_s) for chunk in chunks
    )


def log_e_slower(blocks: Iterable[Block]) -> float:
    """Log evidence that the new release's values are above the old's by more than was allowed.

    The e-value of a block is the probability of the order seen, if the new release's hazard
    were h times the old's (Cox's partial likelihood), over its probability 1/n! under equal
    releases; products over blocks, averaged over the hazards bet on. What one episode adds is
    cut at EPISODE_MOST, what it takes away is not.

    Exact under equal releases: the gateway labels requests at random, so given times and values
    every placing of the labels inside a block is equally likely; a slow hour hits a whole
    block, so drift does no harm. A new value that is smaller only lowers the e-value, and so does
    the cut: the test is valid for every faster release, too. What it does not know is a state
    of one release alone that passes (a queue, a busy neighbour): that is what episodes are for.
    Under unequal load per replica it is conservative below half of the traffic, where the new
    release, less loaded, looks faster than it is; above half it would be unfair and must not
    be used.

    Source: Cox, "Regression models and life-tables" (1972); ter Schure, Pérez-Ortiz, Ly,
    Grünwald, "The safe logrank test" (arXiv 2011.06931). Blocks and episodes: own.
    """
    totals = [0.0] * (2 * len(HAZARD_BETS))
    for episode in _episodes(blocks):
        added = [0.0] * len(totals)
        for order in episode:
            news = sum(order)
            if news in (0, len(order)):
                continue
            for number, hazard in enumerate(HAZARD_BETS):
                added[2 * number] += _log_partial(order, news, hazard)
                added[2 * number + 1] += _log_partial(order[::-1], news, 1 / hazard)
        most = math.log(EPISODE_MOST)
        totals = [total + min(most, one) for total, one in zip(totals, added, strict=True)]
    return _log_mean(totals)


def _episodes(blocks: Iterable[Block]) -> Iterable[list[tuple[bool, ...]]]:
    by_number: dict[int, list[tuple[bool, ...]]] = {}
    for block in blocks:
        by_number.setdefault(int(block.ended_s // EPISODE_S), []).append(block.order)
    return by_number.values()


def upper_ratio(events: int, trials: int) -> float:
    """The largest share that `events` of `trials` are compatible with (one side, 95 %).

    Source: Wilson's score interval (1927) with z = 1.645.
    """
    z = 1.645
    center = events + z * z / 2
    spread = z * math.sqrt(events * (trials - events) / trials + z * z / 4)
    return min(1.0, (center + spread) / (trials + z * z))


def _order(block: Sequence[Ranked], allowed_ratio: float) -> tuple[bool, ...]:
    """Labels by rising value; ties stay in order of completion, which knows no label."""
    scale = 1 + allowed_ratio
    ranked = sorted((r.value / scale if r.new else r.value, i) for i, r in enumerate(block))
    return tuple(block[i].new for _, i in ranked)


def _log_partial(order: Sequence[bool], news: int, hazard: float) -> float:
    left = len(order)
    weight = left - news + hazard * news
    ratio = 1.0
    for new in order[:-1]:  # the last one has no choice left
        step = hazard if new else 1.0
        ratio *= step * left / weight
        left -= 1
        weight -= step
    return math.log(ratio)


def _log_mean(logs: Sequence[float]) -> float:
    top = max(logs)
    return top + math.log(sum(math.exp(value - top) for value in logs) / len(logs))

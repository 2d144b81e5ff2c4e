"""Whether answers are sound text, and whether two releases give the same answer. Pure."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from llmdeploy.verdict.target import ScoredToken

PRINTABLE_RATIO = 0.9
"""Least share of printable characters. Source: own choice; the real model's answers have 1.0."""

REPEATED_RATIO = 0.6
"""Most words that one and the same word may be.

Source: own choice; the real model's answers stay below 0.2, a stuck decoder reaches 1."""

ENTROPY_BITS = (1.5, 5.5)
"""Range of the entropy of characters, bits each, in answers of 40 characters and more.

Source: English text has about 4.1 to 4.5 (Shannon 1951, letters and spaces); a repeated
character has 0, random tokens of all scripts more than 5.5."""

ENTROPY_CHARACTERS = 40
"""Shorter texts have no stable entropy. Source: own choice."""

NEAR_TIE = 0.35
"""Two best tokens nearer than this in log-probability may swap with the batch they run in.

Source: own derivation, not measured: bfloat16 keeps 8 bits, so logits of 16 to 32 step by 0.125,
and two of them can move towards each other by one step and its rounding each."""

SAME_DISTANCE = 0.15
"""Mean distance of log-probabilities up to which two runs of the same weights are the same.

Source: as NEAR_TIE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How near two answers to one prompt are."""

    equal_tokens: int
    """Tokens that agree before the first that does not."""
    distance: float | None
    """Mean |difference| of their log-probabilities; None without a common token."""
    gap: float | None
    """Log-probability between the two candidates where the answers part; None if they do not."""

    @property
    def same(self) -> bool:
        """Whether the same weights can have given both: equal, or parted at a near tie."""
        near = self.distance is None or self.distance <= SAME_DISTANCE
        return near and (self.gap is None or self.gap <= NEAR_TIE)


def agreement(one: Sequence[ScoredToken], other: Sequence[ScoredToken]) -> Agreement:
    """The common beginning of two greedy answers, and how decided they were where they part."""
    equal = 0
    for a, b in zip(one, other, strict=False):
        if a.text != b.text:
            break
        equal += 1
    distances = [
        abs(a.logprob - b.logprob) for a, b in zip(one[:equal], other[:equal], strict=True)
    ]
    parted = equal < min(len(one), len(other))
    return Agreement(
        equal_tokens=equal,
        distance=sum(distances) / equal if equal else None,
        gap=min(_gap(one[equal]), _gap(other[equal])) if parted else None,
    )


def _gap(token: ScoredToken) -> float:
    return math.inf if token.runner_up is None else abs(token.logprob - token.runner_up)


def soundness(text: str) -> str | None:
    """What is wrong with an answer as text, in words with both values; None if it is sound."""
    if not text.strip():
        return "empty answer, needed text"
    printable = sum(c.isprintable() or c in "\n\t" for c in text) / len(text)
    if printable < PRINTABLE_RATIO or text.count("\ufffd") > len(text) * (1 - PRINTABLE_RATIO):
        return f"{printable:.0%} printable characters, needed {PRINTABLE_RATIO:.0%}"
    words = text.split()
    repeated = Counter(words).most_common(1)[0][1] / len(words)
    if len(words) >= 8 and repeated > REPEATED_RATIO:
        return f"one word is {repeated:.0%} of the answer, at most {REPEATED_RATIO:.0%}"
    bits = entropy_bits(text)
    low, high = ENTROPY_BITS
    if len(text) >= ENTROPY_CHARACTERS and not low <= bits <= high:
        return f"{bits:.1f} bits of entropy a character, needed {low:g} to {high:g}"
    return None


def entropy_bits(text: str) -> float:
    """Shannon entropy of the characters, bits each; 0 for an empty text."""
    counts = Counter(text).values()
    return -sum(n / len(text) * math.log2(n / len(text)) for n in counts)

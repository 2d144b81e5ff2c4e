"""Sums of independent uncertain terms, and 90 % intervals of what is made of them."""

import math
from dataclasses import dataclass

from llmdeploy.estimate.answer import Estimated, Method, Origin

NORMAL_90 = 1.645


@dataclass(frozen=True, slots=True)
class Term:
    """Bytes and their standard deviation."""

    value_bytes: float
    deviation_bytes: float = 0.0

    def __add__(self, other: "Term") -> "Term":
        return Term(
            self.value_bytes + other.value_bytes,
            math.hypot(self.deviation_bytes, other.deviation_bytes),
        )

    def __sub__(self, other: "Term") -> "Term":
        return Term(
            self.value_bytes - other.value_bytes,
            math.hypot(self.deviation_bytes, other.deviation_bytes),
        )

    def scaled(self, ratio: float) -> "Term":
        return Term(self.value_bytes * ratio, self.deviation_bytes * abs(ratio))

    def probability_above(self, limit_bytes: float) -> float:
        """That the true value is at least the limit; normal."""
        if self.deviation_bytes == 0:
            return 1.0 if self.value_bytes >= limit_bytes else 0.0
        return 0.5 * (
            1 + math.erf((self.value_bytes - limit_bytes) / (self.deviation_bytes * math.sqrt(2)))
        )


def estimated(term: Term, *, method: Method, origin: Origin = "derived") -> Estimated:
    """A term as an answer: value and 90 % interval, nothing below zero."""
    reach = NORMAL_90 * term.deviation_bytes
    value = max(0.0, term.value_bytes)
    return Estimated(
        value=value,
        low=min(value, max(0.0, term.value_bytes - reach)),
        high=max(value, term.value_bytes + reach),
        origin=origin,
        method=method,
    )

"""How fast one replica is: what the simulation and the queue ask of an engine model."""

from typing import Protocol


class Pace(Protocol):
    """Times of one replica's steps. Batches and tokens may be fractions: means are asked too."""

    def decode_step_s(self, batch: float, context_tokens: float) -> float:
        """One step that adds a token to each of `batch` requests of that mean context."""
        ...

    def prefill_s(self, tokens: float, context_tokens: float = 0) -> float:
        """One forward pass over `tokens` prompt tokens behind `context_tokens` cached ones."""
        ...

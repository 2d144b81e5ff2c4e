"""One request of a workload, and what became of it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """When it comes and how long it is."""

    arrival_s: float
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A request that was answered whole."""

    arrival_s: float
    first_s: float
    """When its first output token was there."""
    end_s: float
    input_tokens: int
    output_tokens: int

    @property
    def ttft_s(self) -> float:
        return self.first_s - self.arrival_s

    @property
    def e2e_s(self) -> float:
        return self.end_s - self.arrival_s

    @property
    def tpot_s(self) -> float | None:
        """Mean time between its output tokens; None where there is one."""
        if self.output_tokens < 2:
            return None
        return (self.end_s - self.first_s) / (self.output_tokens - 1)

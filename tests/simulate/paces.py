"""A pace of one's own for tests: an engine whose steps are linear in batch and context."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearPace:
    """Weights once a step, KV by token, a pass's overhead."""

    weights_s: float = 0.010
    request_s: float = 0.00004
    context_s_per_token: float = 2e-8
    prefill_s_per_token: float = 0.00005
    pass_overhead_s: float = 0.002

    def decode_step_s(self, batch: float, context_tokens: float) -> float:
        return self.weights_s + batch * (self.request_s + context_tokens * self.context_s_per_token)

    def prefill_s(self, tokens: float, context_tokens: float = 0) -> float:
        return self.pass_overhead_s + tokens * (self.prefill_s_per_token + context_tokens * 1e-10)

"""How fast a replica of the embedded engine is on a declared device: its own measured ratios."""

from dataclasses import dataclass

from llmdeploy.errors import InputError
from llmdeploy.estimate.answer import Method
from llmdeploy.estimate.case import Case
from llmdeploy.estimate.speed.processors import (
    COPY_RATIO,
    DECODE_RATIO,
    KV_PASSES,
    PREFILL_RATIO,
    READ_RATIO,
    REQUEST_S,
    STEP_OVERHEAD_S,
)
from llmdeploy.model import active_parameters, weights_bytes
from llmdeploy.plan.speed import RANKS_RATIO

SPREAD_RATIO = 1.0
"""Half of the 90 % interval over the value. Assumed: the ratios are of two processors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedPace:
    """One replica: overhead, weights read, KV gathered, products."""

    read_s: float
    kv_s_per_token: float
    decode_s_per_token: float
    prefill_s_per_token: float
    method: Method = "roofline"
    spread_ratio: float = SPREAD_RATIO

    def decode_step_s(self, batch: float, context_tokens: float) -> float:
        """Seconds of a step that adds a token to each of `batch` requests of that context."""
        each_s = REQUEST_S + self.decode_s_per_token + context_tokens * self.kv_s_per_token
        return STEP_OVERHEAD_S + self.read_s + batch * each_s

    def prefill_s(self, tokens: float, context_tokens: float = 0) -> float:
        """Seconds of one pass over `tokens` prompt tokens behind `context_tokens`."""
        attended_s = tokens * context_tokens * self.kv_s_per_token / max(1.0, tokens)
        return STEP_OVERHEAD_S + tokens * self.prefill_s_per_token + attended_s


def embedded_pace(case: Case) -> EmbeddedPace:
    """The pace on the case's device, by the roofline of plan/speed.py.

    Source: the embedded engine's ratios of a core's rates (estimate/speed/processors.py).
    """
    device, shape = case.device, case.shape
    if device is None or shape.parameters is None:
        raise InputError(
            "the embedded engine's pace: found no device or no counted weights, needed both",
            fix="name a device of the catalog and a model whose config.json is known",
        )
    ranks = case.tensor_parallel
    shared = ranks * (RANKS_RATIO if ranks > 1 else 1.0)
    read_bytes_per_s = device.memory_bytes_per_s * READ_RATIO * ranks
    cpu = device.vendor == "cpu"
    flops_per_s = device.bf16_flops_per_s * shared * (COPY_RATIO if cpu else 1.0)
    active = active_parameters(shape, 1.0)
    flops = 2.0 * (active.total - active.embedding)
    kv_bytes = 4.0 * shape.layers * shape.kv_heads * shape.head_dim
    weights = weights_bytes(shape, case.weight_format, dtype=case.dtype)
    return EmbeddedPace(
        read_s=weights / read_bytes_per_s,
        kv_s_per_token=KV_PASSES * kv_bytes / read_bytes_per_s,
        decode_s_per_token=flops / (flops_per_s * DECODE_RATIO),
        prefill_s_per_token=flops / (flops_per_s * PREFILL_RATIO),
    )

"""The admission limits of an estimate's case, as its engine at that version has them."""

from dataclasses import replace

from llmdeploy.errors import Refused
from llmdeploy.estimate.answer import MemoryEstimate
from llmdeploy.estimate.case import Case
from llmdeploy.simulate.limits import Limits

SEQUENCES, STEP_TOKENS = 256, 2048
"""Most requests and most tokens of a step where the case says nothing.
Source: vLLM 0.11 defaults of an online server."""

SHORTEST_TOKENS = 16
"""Engines refuse shorter limits. Source: own choice."""


def mean_case(case: Case, mean_tokens: float) -> Case:
    """The case with requests of mean length as its longest: its concurrency at that length counts
    windows and states as the engine does."""
    most = case.max_model_len or case.shape.max_positions
    return replace(case, max_model_len=min(most, max(SHORTEST_TOKENS, round(mean_tokens))))


def limits(
    case: Case, at_mean: MemoryEstimate, *, mean_tokens: float, max_queue: int | None
) -> Limits:
    """The limits of one replica, from the memory that `mean_case` takes; Refused where it does
    not fit."""
    if at_mean.fits is False or at_mean.max_concurrency is None:
        raise Refused(
            f"the launch does not fit: {at_mean.refusal or 'the memory of the device is unknown'}",
            fix="see what would with `llmdeploy estimate` and the same options",
        )
    together = at_mean.max_concurrency.value * case.data_parallel
    return Limits(
        kv_cache_tokens=max(1, int(together * mean_tokens)),
        max_num_seqs=(case.max_num_seqs or SEQUENCES) * case.data_parallel,
        max_num_batched_tokens=(case.max_num_batched_tokens or STEP_TOKENS) * case.data_parallel,
        max_queue=max_queue,
    )

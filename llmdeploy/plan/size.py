"""What one replica of a proposal holds and does: KV tokens, requests at once, tokens a second."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from llmdeploy.estimate.answer import MemoryEstimate, Method
from llmdeploy.estimate.case import Case
from llmdeploy.model import ModelShape
from llmdeploy.plan.proposal import Proposal, batched_tokens
from llmdeploy.plan.rules import Broken
from llmdeploy.plan.speed import KNEE
from llmdeploy.service import Service
from llmdeploy.units import show_bytes

MOST_SEQUENCES = 1024
"""Requests beyond which engines' schedulers are not run. Source: vLLM 0.33 `max_num_seqs` of its
largest default."""
FIRST_SEQUENCES, FEWEST_SEQUENCES = 256, 16
"""What memory is estimated with before the batch is known, and where that leaves no room.
Source: vLLM 0.33 default; own choice: fewer save nothing."""
ROUNDS, CLOSE_RATIO = 4, 0.01
"""Of the fixed point between the batch and the memory that the engine takes for it, and how near is
near enough. Source: own choice: the second round changes the batch by less than 3 %."""


class EnginePace(Protocol):
    """How fast one replica is, and how sure that is."""

    @property
    def method(self) -> Method: ...

    @property
    def spread_ratio(self) -> float:
        """Half the width of the 90 % interval over the value."""
        ...

    def decode_step_s(self, batch: float, context_tokens: float) -> float: ...

    def prefill_s(self, tokens: float, context_tokens: float = 0) -> float: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimators:
    """The models of memory and speed that a search asks."""

    memory: Callable[[Case], MemoryEstimate]
    pace: Callable[[Case], EnginePace]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """One replica, with its limits and its speed when saturated."""

    proposal: Proposal
    case: Case
    memory: MemoryEstimate
    pace: EnginePace
    kv_tokens: int
    """Tokens of requests of mean length that its KV cache holds, all data-parallel parts."""
    requests_in_kv_cache: int
    """Requests of mean length in the KV cache at once."""
    batch: int
    """Most requests decoded together: what memory and the promised time per token allow."""
    tpot_s: float
    """Of each of `batch` requests that never stop coming."""

    @property
    def printed_tokens(self) -> int:
        """KV tokens of a replica as its engine prints them, of all attention copies together; the
        embedded engine gets no more than its requests can fill."""
        tokens = self.memory.kv_cache_tokens
        if tokens is None:
            return self.kv_tokens
        printed = int(tokens.value) * self.proposal.data_parallel
        if self.proposal.engine.name != "embedded" or self.case.max_model_len is None:
            return printed
        return min(printed, self.batch * self.case.max_model_len)

    @property
    def kv_cache_bytes(self) -> int:
        """Of a device, for `printed_tokens`."""
        held, tokens = self.memory.kv_cache_bytes, self.memory.kv_cache_tokens
        if held is None or tokens is None or tokens.value <= 0:
            return round(held.value) if held is not None else 0
        share = self.printed_tokens / (int(tokens.value) * self.proposal.data_parallel or 1)
        return round(held.value * min(1.0, share))

    @property
    def tokens_per_s(self) -> float:
        """Output tokens per second when saturated."""
        return self.batch / self.tpot_s


def size(
    proposal: Proposal, service: Service, shape: ModelShape, *, using: Estimators
) -> Sized | Broken:
    """The replica, or the rule of memory or time that it breaks."""

    def held(sequences: int) -> _Held | Broken:
        return _held(proposal, service, shape, sequences=sequences, using=using)

    asked = service.engine.max_num_seqs
    found = held(asked or FIRST_SEQUENCES)
    if isinstance(found, Broken) and asked is None:
        found = held(FEWEST_SEQUENCES)
    if isinstance(found, Broken):
        return found
    if asked is None:
        found = _settled(found, held)
    load = service.workload
    return Sized(
        proposal=proposal,
        case=found.case,
        memory=found.memory,
        pace=found.pace,
        kv_tokens=int(found.held_requests * (load.input_tokens.mean + load.output_tokens.mean)),
        requests_in_kv_cache=found.held_requests,
        batch=found.sequences,
        tpot_s=tpot_s(found.pace, service, found.sequences),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """A replica whose engine is started for that many sequences."""

    sequences: int
    case: Case
    memory: MemoryEstimate
    pace: EnginePace
    held_requests: int
    """Requests of mean length in the KV cache."""
    within: int
    """Of them, those that can be decoded together within the promised time per token."""


def _settled(found: _Held, held: Callable[[int], _Held | Broken]) -> _Held:
    """Started for as many sequences as it decodes together: the more, the less is left for their
    cache. Ends at a number that its own memory bears."""
    for _ in range(ROUNDS):
        if found.sequences == found.within:
            break
        settled = found.sequences < found.within <= found.sequences * (1 + CLOSE_RATIO)
        again = held(found.within)
        if settled or isinstance(again, Broken):
            break
        found = again
    if found.sequences <= found.within:
        return found
    last = held(found.within)  # fewer sequences leave more cache: this many it bears
    return replace(found, sequences=found.within) if isinstance(last, Broken) else last


def _held(
    proposal: Proposal,
    service: Service,
    shape: ModelShape,
    *,
    sequences: int,
    using: Estimators,
) -> _Held | Broken:
    each = -(-sequences // proposal.data_parallel)  # engines count for each attention copy
    case = proposal.case(service, shape, max_num_seqs=each)
    memory = using.memory(case)
    if memory.fits is False:
        return _does_not_fit(memory, proposal)
    asked, by_memory = service.engine.max_num_seqs, requests_in_kv(case, service, using=using)
    if by_memory < 1:
        return Broken(rule="kv-room", words="no request of mean length fits its KV cache")
    if asked is not None and asked > by_memory:
        words = f"engine.max_num_seqs {asked}: room for {by_memory} requests of mean length"
        return Broken(rule="kv-room", words=words, times_short=asked / by_memory)
    pace = using.pace(case)
    within = batch_within(pace, service, most=asked or min(by_memory, _most(proposal)))
    if within < 1:
        alone_s, promised_s = tpot_s(pace, service, 1), service.objectives.tpot_p95_s
        words = f"one request alone takes {alone_s:.3g} s a token, promised are {promised_s:g} s"
        return Broken(rule="tpot", words=words, times_short=alone_s / promised_s)
    return _Held(
        sequences=sequences,
        case=case,
        memory=memory,
        pace=pace,
        held_requests=by_memory,
        within=within,
    )


def requests_in_kv(case: Case, service: Service, *, using: Estimators) -> int:
    """Requests of mean length that the KV cache holds at once, over all data-parallel parts.

    The engine's own concurrency at that length: only it counts windows and states right.
    """
    load = service.workload
    mean = int(load.input_tokens.mean + load.output_tokens.mean)
    shorter = _with_length(case, max(16, mean))
    found = using.memory(shorter).max_concurrency
    return int(found.value * case.data_parallel) if found is not None else 0


def tpot_s(pace: EnginePace, service: Service, batch: float) -> float:
    """Seconds per output token of each of `batch` requests that never stop coming.

    T_decode(batch, in + out/2) + batch / out x prefill time of a prompt.
    Source: the closed-loop fit of dense models' public measurements, 5 % mean error.
    """
    load = service.workload
    prompt, answer = load.input_tokens.mean, load.output_tokens.mean
    decode_s = pace.decode_step_s(batch, prompt + answer / 2)
    return decode_s + batch / answer * _prompt_s(pace, prompt, batched_tokens(service))


def batch_within(pace: EnginePace, service: Service, *, most: int) -> int:
    """The largest batch up to `most` whose time per token keeps the objective, or 0."""
    limit_s = service.objectives.tpot_p95_s
    if tpot_s(pace, service, most) <= limit_s:
        return most
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        within = tpot_s(pace, service, middle) <= limit_s
        low, high = (middle, high) if within else (low, middle)
    return low


def _prompt_s(pace: EnginePace, prompt_tokens: float, chunk_tokens: int) -> float:
    """Of one prompt, in the steps' chunks."""
    whole, done, spent_s = prompt_tokens, 0.0, 0.0
    if whole <= chunk_tokens:
        return pace.prefill_s(whole)
    chunks = min(8, -(-int(whole) // chunk_tokens))  # a mean over fewer points is as good
    each = whole / chunks
    for _ in range(chunks):
        spent_s += pace.prefill_s(min(each, chunk_tokens), done) * max(1.0, each / chunk_tokens)
        done += each
    return spent_s


def _most(proposal: Proposal) -> int:
    if proposal.pool.device.vendor == "cpu":
        return KNEE["cpu"] * proposal.data_parallel
    if proposal.engine.name == "embedded":
        return KNEE["cuda"]
    return MOST_SEQUENCES * proposal.data_parallel


def _does_not_fit(memory: MemoryEstimate, proposal: Proposal) -> Broken:
    weights, usable = memory.weights_bytes.value, proposal.pool.usable_bytes
    if weights > usable:
        words = f"weights take {show_bytes(weights)} of each device's {show_bytes(usable)}"
        return Broken(rule="weights-fit", words=words, times_short=weights / usable)
    words = memory.refusal or "the engine would refuse to start"
    return Broken(rule="memory-fits", words=words, times_short=max(1.0, weights / usable))


def _with_length(case: Case, max_model_len: int) -> Case:
    return replace(case, max_model_len=min(max_model_len, case.max_model_len or max_model_len))

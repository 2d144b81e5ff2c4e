"""An engine's account of one device's memory, and the answer that is read off it."""

from dataclasses import dataclass
from typing import Protocol

from llmdeploy.estimate.answer import Estimated, MemoryEstimate, Method
from llmdeploy.estimate.memory import words
from llmdeploy.estimate.memory.pool import FixedCells
from llmdeploy.estimate.memory.spread import Term, estimated

SURE = 0.75
"""Probability from which a launch is said to fit, and below its complement not to."""


class Cache(Protocol):
    """A KV cache before its size is known."""

    def capacity_tokens(self, available_bytes: float, length_tokens: int) -> int:
        """Tokens in so many bytes, as the engine prints them."""

    def bytes_per_token(self, length_tokens: int) -> float:
        """Bytes of the cache over the tokens printed for it."""

    def needed_bytes(self, length_tokens: int) -> float:
        """Bytes of one request of that length."""

    def taken_bytes(self, available_bytes: float, length_tokens: int) -> float:
        """What the engine prints as the cache's size, of so many bytes."""

    def longest_tokens(self, available_bytes: float, limit_tokens: int) -> int:
        """The longest request, up to the limit, that so many bytes hold."""

    def concurrency(self, available_bytes: float, length_tokens: int) -> float:
        """Requests of that length at once, as the engine prints them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One device's memory by its uses. Terms are bytes."""

    engine: str
    share_name: str
    """The option that sets the share."""
    share_ratio: float
    total: Term | None
    weights: Term
    activation: Term
    graphs: Term
    other: Term
    available: Term | None
    """For the KV cache; may be negative. None where the total is not known."""
    start_free: Term | None = None
    """Free when the engine starts, where it refuses to start with less than its share."""
    left: Term | None
    """Outside the share, for graphs that are captured after the cache is taken."""
    cache: Cache | None
    """None where the model keeps nothing."""
    cell_ratio: tuple[float, float] = (1.0, 1.0)
    """Bounds of the bytes per token over their value."""
    length_tokens: int
    length_given: bool = True
    """Else the model's longest: what the user asked for is not known."""
    refuses_long: bool = True
    """Refuses to start where max_model_len exceeds the cache; else it truncates or queues."""
    spills: bool = False
    """Layers that do not fit may stay in the host's memory: the engine starts all the same."""
    method: Method = "calibrated"


def answer(account: Account) -> MemoryEstimate:
    """The account as an estimate."""
    cache_bytes, tokens, concurrency = _cache_answers(account)
    fits, refusal = _fits(account)
    return MemoryEstimate(
        weights_bytes=estimated(account.weights, method="counted"),
        kv_bytes_per_token=_per_token(account),
        activation_bytes=estimated(account.activation, method=account.method),
        graph_bytes=estimated(account.graphs, method=account.method),
        other_bytes=estimated(account.other, method=account.method),
        kv_cache_bytes=cache_bytes,
        kv_cache_tokens=tokens,
        max_concurrency=concurrency,
        fits=fits,
        refusal=refusal,
    )


def _per_token(account: Account) -> Estimated:
    value = account.cache.bytes_per_token(account.length_tokens) if account.cache else 0.0
    low, high = account.cell_ratio
    return Estimated(
        value=value, low=value * low, high=value * high, origin="derived", method="counted"
    )


def _cache_answers(
    account: Account,
) -> tuple[Estimated | None, Estimated | None, Estimated | None]:
    """Bytes, tokens and concurrency of the cache; tokens at each bound of the bytes."""
    if account.available is None or account.cache is None:
        return None, None, None
    size = estimated(account.available, method=account.method)
    cache, length = account.cache, account.length_tokens
    low, high = account.cell_ratio

    def answered(of: float, of_low: float, of_high: float) -> Estimated:
        return Estimated(
            value=of, low=min(of, of_low), high=max(of, of_high), origin="derived",
            method=account.method,
        )  # fmt: skip

    return (
        answered(
            cache.taken_bytes(size.value, length),
            cache.taken_bytes(size.low, length) * (low if isinstance(cache, FixedCells) else 1.0),
            cache.taken_bytes(size.high, length),
        ),
        answered(
            cache.capacity_tokens(size.value, length),
            cache.capacity_tokens(size.low / high, length),
            cache.capacity_tokens(size.high / low, length),
        ),
        answered(
            cache.concurrency(size.value, length),
            cache.concurrency(size.low / high, length),
            cache.concurrency(size.high / low, length),
        ),
    )


def _fits(account: Account) -> tuple[bool | None, str | None]:
    """Whether the engine starts, and what it would say where it does not or may not."""
    if account.total is None or account.available is None:
        return None, None
    total, engine = account.total, account.engine
    free = total - account.other
    if free.probability_above(account.weights.value_bytes) < 1 - SURE:
        return (None if account.spills else False), words.weights_do_not_fit(
            engine,
            weights_bytes=account.weights.value_bytes,
            total_bytes=total.value_bytes,
        )
    if account.start_free is not None:
        asked = total.scaled(account.share_ratio).value_bytes
        if account.start_free.probability_above(asked) < 1 - SURE:
            return False, words.free_below_share(
                engine,
                free_bytes=account.start_free.value_bytes,
                asked_bytes=asked,
                knob=account.share_name,
            )
    sure, refusal, open_ = _holds_one(account, account.available)
    if sure < 1 - SURE:
        return (None if open_ else False), refusal
    if sure < SURE:
        return None, refusal
    return _runs(account)


def _holds_one(account: Account, available: Term) -> tuple[float, str, bool]:
    """Probability that the cache holds what the engine insists on, what it says otherwise, and
    whether the length it insists on is only a default that the user may not have left."""
    needs_length = account.cache is not None and account.refuses_long
    if account.cache is None or not needs_length or available.value_bytes <= 0:
        refusal = words.no_cache_memory(
            account.engine, available_bytes=available.value_bytes, knob=account.share_name
        )
        return available.probability_above(1.0), refusal, False
    needed = account.cache.needed_bytes(account.length_tokens)
    refusal = words.too_long(
        account.engine,
        length_tokens=account.length_tokens,
        needed_bytes=needed,
        available_bytes=available.value_bytes,
        longest=account.cache.longest_tokens(available.value_bytes, account.length_tokens),
    )
    return available.probability_above(needed), refusal, not account.length_given


def _runs(account: Account) -> tuple[bool | None, str | None]:
    """Graphs captured outside the share may still run out of memory."""
    if account.left is None:
        return True, None
    spare = account.left - account.graphs
    sure = spare.probability_above(0.0)
    if sure >= SURE:
        return True, None
    refusal = words.graphs_overrun(
        account.engine,
        rest_bytes=account.left.value_bytes,
        graph_bytes=account.graphs.value_bytes,
    )
    return (False if sure < 0.02 else None), refusal

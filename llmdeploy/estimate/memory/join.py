"""One estimate of two launches that a case may mean."""

from dataclasses import replace

from llmdeploy.estimate.answer import Estimated, MemoryEstimate


def joined(taken: MemoryEstimate, other: MemoryEstimate) -> MemoryEstimate:
    """The first's figures, or the other's where only that one starts, with intervals that reach
    over both; `fits` only where both agree, else the refusal of the one that does not."""
    agreed = taken.fits == other.fits
    if other.fits and not taken.fits:
        taken, other = other, taken
    return replace(
        taken,
        weights_bytes=_over(taken.weights_bytes, other.weights_bytes),
        kv_bytes_per_token=_over(taken.kv_bytes_per_token, other.kv_bytes_per_token),
        activation_bytes=_over(taken.activation_bytes, other.activation_bytes),
        graph_bytes=_over(taken.graph_bytes, other.graph_bytes),
        other_bytes=_over(taken.other_bytes, other.other_bytes),
        kv_cache_bytes=_over_known(taken.kv_cache_bytes, other.kv_cache_bytes),
        kv_cache_tokens=_over_known(taken.kv_cache_tokens, other.kv_cache_tokens),
        max_concurrency=_over_known(taken.max_concurrency, other.max_concurrency),
        fits=taken.fits if agreed else None,
        refusal=taken.refusal if agreed else taken.refusal or other.refusal,
    )


def _over_known(one: Estimated | None, other: Estimated | None) -> Estimated | None:
    return _over(one, other) if one is not None and other is not None else one


def _over(one: Estimated, other: Estimated) -> Estimated:
    return replace(one, low=min(one.low, other.low), high=max(one.high, other.high))

"""What one replica admits: KV tokens, sequences, tokens of a step, queue."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Admission limits of one replica, as its engine is started with."""

    kv_cache_tokens: int
    """Over all its data-parallel workers."""
    max_num_seqs: int
    """Most requests in decoding and prefill together."""
    max_num_batched_tokens: int
    """Most tokens of one step: decoding first, prompt chunks in what is left."""
    max_queue: int | None = None
    """Requests that wait at a replica before it rejects more; None: no end."""

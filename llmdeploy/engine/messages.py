"""What the API process and its workers tell each other, pickled over one pipe a worker."""

from dataclasses import dataclass, field
from typing import Literal

FinishReason = Literal["stop", "length", "cancelled", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How one request's tokens are chosen."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None
    seed: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    top_logprobs: int | None = None
    """Alternatives to report per token; None reports no log-probabilities at all."""
    ignore_eos: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Generate:
    """To a worker: continue this prompt."""

    id: str
    prompt: tuple[int, ...]
    max_tokens: int
    sampling: Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """To a worker: the client is gone or has enough; free the request's KV blocks."""

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shutdown:
    """To a worker: end the process now; the API process has drained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """From a worker: a start-up phase is done."""

    phase: Literal["comm_ready", "loaded", "kv_ready"]
    kv_cache_tokens: int = 0
    weights_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """One output token; log-probabilities only where asked."""

    id: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """From a worker: new tokens of one request; `finish` ends it.

    The end-of-sequence token that ends a request with "stop" is not among the tokens.
    """

    id: str
    tokens: tuple[Token, ...] = ()
    finish: FinishReason | None = None
    error: str | None = None
    queued_s: float | None = None
    """On a request's first output: how long it waited in the worker for its first step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """From a worker: everything one step brought, in one message (one wake-up of the reader)."""

    outputs: tuple[Output, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """From a worker, at most every 0.2 s and at each state change: counters since its start."""

    steps: int = 0
    generated_tokens: int = 0
    prompt_tokens: int = 0
    running: int = 0
    waiting: int = 0
    kv_used_tokens: int = 0
    restarts: int = 0
    """How often the batching loop was built anew after a fatal error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """From a worker: it cannot start or go on; the process ends after this."""

    reason: str
    fix: str = field(default="see the traceback in the engine's log")


ToWorker = Generate | Cancel | Shutdown
FromWorker = Reached | Output | Outputs | Heartbeat | Failed

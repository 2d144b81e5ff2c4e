"""The answer to one case, and the object that `--json` and `--batch` write of it."""

import math
from dataclasses import dataclass
from typing import Any

from llmdeploy.errors import LlmDeployError
from llmdeploy.estimate.answer import Estimated, MemoryEstimate, SpeedEstimate
from llmdeploy.estimate.case import Case

MEMORY_KEYS = (
    "weights_bytes", "kv_bytes_per_token", "activation_bytes", "graph_bytes", "other_bytes",
    "kv_cache_bytes", "kv_cache_tokens", "max_concurrency",
)  # fmt: skip
SPEED_KEYS = ("ttft_s", "tpot_s", "output_tokens_per_s", "utilisation_ratio")
DIGITS = 6
"""Of a number that is not whole; what is predicted is never known better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unanswered:
    """A key of the result that has no number, and why."""

    key: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What is known of one launch."""

    case: Case
    model_source: str
    memory: MemoryEstimate
    speed: SpeedEstimate | None
    assumptions: tuple[str, ...]
    """What was taken for what the case does not say."""
    unanswered: tuple[Unanswered, ...]


def number_of(result: Result, key: str) -> Estimated | None:
    """The number under a key of the result; None where it is unanswered."""
    part = result.memory if key in MEMORY_KEYS else result.speed
    return None if part is None else getattr(part, key)


def result_tree(result: Result) -> dict[str, Any]:
    """The result's keys: each number with value, low, high, origin and method."""
    tree: dict[str, Any] = {key: _number(number_of(result, key), key) for key in MEMORY_KEYS}
    tree["fits"] = result.memory.fits
    tree["refusal"] = result.memory.refusal
    tree |= {key: _number(number_of(result, key), key) for key in SPEED_KEYS}
    tree["assumptions"] = list(result.assumptions)
    tree["unanswered"] = {missing.key: missing.why for missing in result.unanswered}
    return tree


def error_tree(error: LlmDeployError, *, place: str) -> dict[str, Any]:
    """What is written for a case without an answer."""
    what = str(error).removeprefix(f"{place}: ")
    return {"error": {"place": place, "what": what, "fix": error.fix}}


def _number(number: Estimated | None, key: str) -> dict[str, Any] | None:
    if number is None:
        return None
    whole = key.endswith(("_bytes", "_tokens"))
    return {
        "value": _written(number.value, whole),
        "low": _written(number.low, whole),
        "high": _written(number.high, whole),
        "origin": number.origin,
        "method": number.method,
    }


def _written(value: float, whole: bool) -> float | None:
    """Whole bytes and tokens; else DIGITS digits, without a trailing .0; None without a bound."""
    if not math.isfinite(value):
        return None
    if whole or float(value).is_integer():
        return round(value)
    return float(f"{value:.{DIGITS}g}")

"""How far an engine's start has come, by what it logs: evidence, never the gate.

The wordings change every few releases; a later phase's line stands for the earlier ones. Ready is
what a real completion proves, not a line.
"""

import re
from dataclasses import dataclass

PHASES = ("comm_ready", "loaded", "kv_ready", "ready")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a log tells of a start."""

    phase: str | None
    """The furthest of PHASES that a line tells of; None before any."""
    kv_cache_tokens: int | None
    load_s: float | None
    """What reading the weights took, as the engine says."""


LINES: dict[str, dict[str, str]] = {
    "vllm": {
        "comm_ready": r"is assigned as DP rank|vLLM is using nccl==|Starting to load model",
        "loaded": r"Loading weights took|Model loading took",
        "kv_ready": r"KV cache size: [\d,]+ tokens|# (?:GPU|CPU) blocks: \d+",
        "ready": r"Starting vLLM (?:API )?server|Application startup complete",
    },
    "sglang": {
        "comm_ready": r"Init (?:parallel|torch distributed) ends|Load weight begin",
        "loaded": r"Load weight end",
        "kv_ready": r"Memory pool end|KV Cache is allocated",
        "ready": r"The server is fired up",
    },
}
"""Source: vLLM 0.32 (CPU build) and 0.33, SGLang 0.5.23, their own log calls."""
KV_TOKENS = {
    "vllm": r"KV cache size: ([\d,]+) tokens",
    "sglang": r"(?:max_total_num_tokens=|#tokens: )(\d+)",
}
LOAD_S = {
    "vllm": r"Loading weights took ([\d.]+) seconds",
    "sglang": r"Load weight end.*elapsed=([\d.]+)",
}


def progress(engine: str, log: str) -> Progress:
    """How far the start of that engine has come by its log."""
    reached = [phase for phase in PHASES if re.search(LINES[engine][phase], log)]
    tokens, took = re.search(KV_TOKENS[engine], log), re.search(LOAD_S[engine], log)
    return Progress(
        phase=reached[-1] if reached else None,
        kv_cache_tokens=int(tokens[1].replace(",", "")) if tokens else None,
        load_s=float(took[1]) if took else None,
    )


def at_least(told: Progress, phase: str) -> bool:
    """Whether the start has come to that phase."""
    return told.phase is not None and PHASES.index(told.phase) >= PHASES.index(phase)

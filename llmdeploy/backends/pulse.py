"""What of an engine's metrics tells that it works on requests, and that it gets on with them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PulseNames:
    """Names of series at /metrics."""

    running: tuple[str, ...]
    moving: tuple[str, ...]
    """Counters that grow while the engine works."""


PULSES = {
    "vllm": PulseNames(
        running=("vllm:num_requests_running",),
        moving=(
            "vllm:generation_tokens_total",
            "vllm:prompt_tokens_total",
            "vllm:iteration_tokens_total_count",
        ),
    ),
    "sglang": PulseNames(
        running=("sglang:num_running_reqs",),
        moving=("sglang:generation_tokens_total", "sglang:prompt_tokens_total"),
    ),
}
"""Source: vLLM 0.33 and SGLang 0.5.23, their /metrics."""
LOOK_S = 10.0
LOOKS = 3
"""Three looks of ten seconds: less took long prompts for a standstill.
Source: gonka issue 1421, which settled there."""
SLOW_LOOKS = 12
"""On processors a step may take seconds, a long prompt a minute.

Source: own choice: two minutes."""

"""What an estimate answers: numbers with a 90 % interval, an origin and a method."""

from dataclasses import dataclass
from typing import Literal

Origin = Literal["measured", "engine-reported", "table", "derived", "assumed"]
Method = Literal["counted", "calibrated", "interpolated", "roofline"]
"""`counted`: follows from the config; `calibrated`: coefficients fitted on this engine and device
family; `interpolated`: on a related one; `roofline`: data sheet and general efficiencies only."""


LoadKind = Literal["concurrency", "request rate", "saturation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimated:
    """A number; between `low` and `high` with 90 % probability."""

    value: float
    low: float
    high: float
    origin: Origin
    method: Method


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """Bytes are per device, of the fullest rank; tokens as that engine version prints them."""

    weights_bytes: Estimated
    kv_bytes_per_token: Estimated
    """Per device."""
    activation_bytes: Estimated
    graph_bytes: Estimated
    other_bytes: Estimated
    """Contexts, communication buffers, fragmentation: not torch."""
    kv_cache_bytes: Estimated | None
    """None where the device's memory is unknown."""
    kv_cache_tokens: Estimated | None
    max_concurrency: Estimated | None
    """Requests of max_model_len at once, as printed."""
    fits: bool | None
    """None: too close to say, or memory unknown."""
    refusal: str | None
    """What the engine would say and why, where it does not fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedEstimate:
    """At the asked load; the saturated server where none was given."""

    ttft_s: Estimated
    tpot_s: Estimated
    output_tokens_per_s: Estimated
    """All devices together."""
    utilisation_ratio: Estimated
    concurrency: float
    """Requests decoded together that these figures hold for."""
    load: LoadKind
    """What holds the load: where a case gives both, the smaller one."""

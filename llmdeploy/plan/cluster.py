"""What a cluster's plan says beyond a plan for one host: parts, expectations, costs, rejections."""

from typing import Literal

from llmdeploy.backends.spec import ServeSpec
from llmdeploy.document import Document

Quality = Literal["as published", "8 bits", "4 bits"]


class Member(Document):
    """One host's part in a replica."""

    host: str
    position: int
    """0 is the head, which serves HTTP."""
    address: str
    """Where the others reach it; `{HOST}` stands for an address that the inventory lacks."""
    device_ids: tuple[int, ...]


class Expected(Document):
    """A prediction beside what the service promises."""

    name: str
    promised: float
    predicted: float
    low: float
    high: float
    """Ends of the 90 % interval."""
    unit: str
    method: str
    """`calibrated`, `interpolated`, `roofline`."""
    kept: bool
    """Whether the prediction itself keeps the promise."""
    sure: bool
    """Whether the whole interval does."""


class PlannedPart(Document):
    """Equal replicas on equal devices."""

    layout: str
    """In short, such as `rtx4090 bf16 tp2`."""
    device: str
    weights: str
    """`bf16`, or a weight format."""
    kv_cache_dtype: str
    tensor_parallel: int
    pipeline_parallel: int
    data_parallel: int
    expert_parallel: bool
    hosts_per_replica: int
    devices_per_replica: int
    replicas: int
    """That carry the peak."""
    spares: int
    max_num_seqs: int
    kv_cache_tokens: int
    """Per replica, as the engine prints them, of all attention copies together."""
    requests_in_kv: int
    """Of mean length, per replica."""
    output_tokens_per_s: float
    """Per replica, saturated."""
    requests_per_s: float
    """Of the peak, all replicas of the part."""
    weights_bytes: int
    """Per device, as all below."""
    activation_bytes: int
    graph_bytes: int
    other_bytes: int
    kv_cache_bytes: int
    usable_bytes: int
    """Of one device, as the engine sees it."""
    host_memory_bytes: int | None = None
    """Of a host's own memory, for the ranks of one replica there."""


class Choice(Document):
    """A layout that carries the service: one of the set that nothing else beats."""

    layout: str
    devices: int
    spares: int
    price_per_hour: float | None = None
    power_w: float | None = None
    ttft_p95_s: float
    tpot_p95_s: float
    quality: Quality
    chosen: bool


class RejectedLayout(Document):
    """A layout that was looked at, and the rule that rejects it."""

    layout: str
    rule: str
    words: str


class Coresidency(Document):
    """Whether the next release can run beside this one while traffic moves over."""

    kind: Literal["side by side", "rolling", "not possible"]
    words: str


class Cost(Document):
    """What the devices cost and draw."""

    price_per_hour: float | None = None
    currency: str | None = None
    price_per_million_output_tokens: float | None = None
    """At the day's mean load."""
    power_w: float | None = None
    """At the devices' limits, spares included."""
    energy_per_day_kwh: float | None = None
    """At those limits all day: an upper bound."""


class Alternative(Document):
    """The same layout on another engine."""

    engine: Literal["embedded", "vllm", "sglang"]
    fits: bool
    words: str
    serves: tuple[ServeSpec, ...]
    """One a part; empty where it does not fit."""


class Cluster(Document):
    """What was decided for the cluster."""

    parts: tuple[PlannedPart, ...]
    expected: tuple[Expected, ...]
    cost: Cost
    coresidency: Coresidency
    choices: tuple[Choice, ...]
    """Cheapest first."""
    alternatives: tuple[Alternative, ...]
    looked_at: int
    rejected: tuple[RejectedLayout, ...]

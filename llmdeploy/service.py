"""What the user wants: model, workload, objectives, engine, gateway, release (service.yaml)."""

import ipaddress
import json
from collections.abc import Sequence
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from llmdeploy.document import HumanDocument
from llmdeploy.units import Bytes, RatePerS, Ratio, Seconds

SLOWEST_RATE_PER_S, FASTEST_RATE_PER_S = 1 / 3600, 1e6
"""Of a key's requests: one an hour, and what Envoy's buckets of 32 bits surely hold."""
DAY_S = 86400.0


class ModelSource(HumanDocument):
    """Which model of the store is served, and how its weights are held."""

    id: str
    """Id in the model store (`llmdeploy models list`)."""
    dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    """`auto` keeps what the checkpoint is stored in; float32 where 16-bit products are slower."""
    quantization: Literal["auto", "none", "int8", "nf4", "fp8", "awq", "gptq"] = "auto"
    """`auto`: the checkpoint's own format, or what a cluster needs to carry it; `none` keeps the
    dtype; int8 and nf4 are bitsandbytes'; fp8 is converted while loading; awq and gptq need a
    checkpoint in that format. The embedded engine takes auto (as none), none, int8 and nf4."""


class Bucket(HumanDocument):
    """Requests of about the same length."""

    tokens: float = Field(gt=0)
    requests: float = Field(gt=0)
    """How many; only their relation to the other buckets' counts."""


class Lengths(HumanDocument):
    """A distribution of token counts: mean and 95th percentile, or a histogram, which wins."""

    mean: float = Field(gt=0)
    p95: float = Field(gt=0)
    p50: float | None = Field(default=None, gt=0)
    histogram: tuple[Bucket, ...] | None = Field(default=None, min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _counted(cls, given: Any) -> Any:
        """Fills mean, p50 and p95 in from the histogram."""
        buckets = given.get("histogram") if isinstance(given, dict) else None
        if buckets is None:
            return given
        if not (isinstance(buckets, list | tuple) and buckets and all(map(_is_bucket, buckets))):
            raise ValueError(
                f"found histogram {json.dumps(buckets, default=str)}, needed buckets like"
                " {tokens: 100, requests: 90} with numbers above 0"
            )
        held = tuple(map(_bucket, buckets))
        pairs = [(bucket.tokens, bucket.requests) for bucket in held]
        return {**given, **summary(pairs), "histogram": held}

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.histogram is not None:  # a few long requests may lift its mean over its p95
            return self
        if self.p95 < self.mean:
            raise ValueError(f"found p95 {self.p95:g} below mean {self.mean:g}, needed p95 >= mean")
        if self.p50 is not None and self.p50 > self.p95:
            raise ValueError(f"found p50 {self.p50:g} above p95 {self.p95:g}, needed p50 <= p95")
        return self


def _bucket(given: Any) -> Bucket:
    if isinstance(given, Bucket):
        return given
    return Bucket(tokens=float(given["tokens"]), requests=float(given["requests"]))


def _is_bucket(bucket: Any) -> bool:
    if isinstance(bucket, Bucket):
        return True
    return (
        isinstance(bucket, dict)
        and set(bucket) == {"tokens", "requests"}
        and all(isinstance(value, int | float) and value > 0 for value in bucket.values())
    )


def summary(pairs: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Mean, p50 and p95 of (tokens, requests) pairs, as keys of `Lengths`."""
    total = sum(count for _, count in pairs)
    mean = sum(tokens * count for tokens, count in pairs) / total
    p50, p95 = (_quantile(pairs, share_ratio=ratio) for ratio in (0.5, 0.95))
    return {"mean": round(mean, 3), "p50": p50, "p95": p95}


def _quantile(pairs: Sequence[tuple[float, float]], *, share_ratio: float) -> float:
    """The shortest length that at least that share of the requests does not exceed."""
    wanted, seen = share_ratio * sum(count for _, count in pairs), 0.0
    for tokens, count in sorted(pairs):
        seen += count
        if seen >= wanted * (1 - 1e-12):
            return tokens
    raise AssertionError("a histogram has at least one bucket")


class Workload(HumanDocument):
    """The traffic the service must carry."""

    requests_per_day: int = Field(default=100_000, ge=1, le=10**12)
    peak_factor: float = Field(default=3.0, ge=1, le=1000)
    """Requests per second at the peak over the day's mean."""
    input_tokens: Lengths = Lengths(mean=128, p95=512)
    output_tokens: Lengths = Lengths(mean=64, p95=256)
    requests_csv: str | None = None
    """CSV of past requests (`arrival_s,input_tokens,output_tokens`): its lengths win
    over those above."""


class Objectives(HumanDocument):
    """What the service promises to its clients; a release that breaks these is rolled back."""

    ttft_p95_s: Seconds = Field(default=2.0, gt=0)
    tpot_p95_s: Seconds = Field(default=0.2, gt=0)
    error_ratio: Ratio = 0.001
    """Failed and broken requests over all; out-of-memory failures count here."""
    utilisation_ratio: Ratio = Field(default=0.85, gt=0)
    """Busy share of the accelerators at the peak that the plan aims for."""


class Drill(HumanDocument):
    """A deliberate fault in a release, to prove that it is caught: never in a service for users."""

    slowdown: float = Field(default=1.0, ge=1, le=100)
    """Time per output token is multiplied by this."""
    error_ratio: Ratio = 0.0
    """Share of requests answered 500."""
    garbage_ratio: Ratio = 0.0
    """Share of output tokens replaced by random ones."""
    after_requests: int = Field(default=0, ge=0)
    """Requests served well before the fault begins, so that acceptance can pass."""


class Engine(HumanDocument):
    """How the engine runs; what is left out the plan decides."""

    kind: Literal["auto", "embedded", "vllm", "sglang"] = "auto"
    """`auto`: embedded on this machine, vllm for a cluster (`plan --inventory`)."""
    version: str | None = None
    """Of vllm or sglang; the newest one whose flags are known where left out."""
    max_model_len: int = Field(default=2048, ge=16)
    """Longest prompt plus output of one request, in tokens."""
    max_num_seqs: int | None = Field(default=None, ge=1, le=1024)
    """Most requests decoded together; the plan's max batch where left out."""
    max_num_batched_tokens: int = Field(default=512, ge=16)
    """Most tokens of one step, prompt chunks and decoding together; where a cluster's service
    leaves it out, the plan takes 2048."""
    batch_window_s: Seconds = Field(default=0.0, le=60)
    """How long an idle engine waits for more requests before its first step."""
    tensor_parallel: int | None = Field(default=None, ge=1)
    pipeline_parallel: int | None = Field(default=None, ge=1)
    """Stages of layers, vllm and sglang."""
    kv_cache_dtype: Literal["auto", "fp8"] = "auto"
    """`auto` keeps the dtype; vllm and sglang."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    memory_ratio: Ratio = Field(default=0.8, gt=0)
    """Share of the device's memory the engine may plan with; 20 % stay free."""
    request_timeout_s: Seconds = Field(default=120.0, gt=0, le=DAY_S)
    drain_timeout_s: Seconds = Field(default=30.0, le=DAY_S)
    log_level: Literal["debug", "info", "warning"] = "info"
    drill: Drill | None = None


class Gateway(HumanDocument):
    """Where clients connect and what they may do."""

    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=1, le=65535)
    allow: tuple[str, ...] = ("127.0.0.0/8", "::1/128")
    """Client networks (CIDR) that may connect."""
    key_rate_per_s: RatePerS = Field(
        default=50.0, ge=0.999 * SLOWEST_RATE_PER_S, le=FASTEST_RATE_PER_S
    )  # a plan writes 12 digits of it
    """Requests of one key before 429; a key can have its own (`keys add --rate`)."""
    max_queue: int = Field(default=64, ge=0, le=10**6)
    """Requests that wait at the gateway beyond what the engines decode together; then 429."""
    body_limit_bytes: Bytes = Field(default=4 * 2**20, ge=1024, le=2**30)
    tls_certificate: str | None = None
    tls_key: str | None = None

    @field_validator("host")
    @classmethod
    def _an_address(cls, host: str) -> str:
        try:
            ipaddress.ip_address(host)
        except ValueError as error:
            needed = "an IP address to listen on, such as 127.0.0.1 or 0.0.0.0"
            raise ValueError(f"found {host!r}, needed {needed}") from error
        return host


class GoldenPrompt(HumanDocument):
    """A prompt with a known good answer, asked at temperature 0."""

    prompt: str
    expect: str
    """Text that the answer must contain."""


class ReleasePolicy(HumanDocument):
    """How a new release gets its traffic."""

    steps: tuple[Ratio, ...] = (0.05, 0.25, 0.5, 1.0)
    """Shares of traffic, one after the other."""
    min_requests: int = Field(default=20, ge=1)
    """Requests of the new release that each step must see before it can pass."""
    step_timeout_s: Seconds = Field(default=600.0, gt=0, le=7 * DAY_S)
    """How long `verify` waits at one step for its requests before it holds."""
    synthetic: bool = True
    """Whether `verify` tops up missing requests with its own; they are counted apart."""
    slower_ratio: Ratio = 0.25
    """How much slower than the old release TTFT and TPOT may be."""
    false_alarm_ratio: Ratio = 0.01
    """Chance that a release as good as the old one is rolled back, over all looks and metrics."""
    side_by_side: bool = True
    """Whether each release gets half of the device, so that old and new never slow each other."""
    golden: tuple[GoldenPrompt, ...] = (GoldenPrompt(prompt="What is 2+2?", expect="4"),)

    @model_validator(mode="after")
    def _rising(self) -> Self:
        if not self.steps or list(self.steps) != sorted(set(self.steps)) or self.steps[-1] != 1:
            shown = ", ".join(f"{step:.0%}" for step in self.steps) or "none"
            raise ValueError(f"found steps {shown}, needed rising shares that end at 100%")
        return self


class Service(HumanDocument):
    """One LLM service. Only `model` and `cluster` are required."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    name: str = Field(default="chat", pattern=r"^[a-z][a-z0-9-]{0,30}$")
    cluster: str
    """Path of cluster.yaml, relative to this file."""
    model: ModelSource
    workload: Workload = Workload()
    objectives: Objectives = Objectives()
    engine: Engine = Engine()
    gateway: Gateway = Gateway()
    release: ReleasePolicy = ReleasePolicy()

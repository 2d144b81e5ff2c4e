"""One engine's state in one vocabulary: read from its Prometheus text, whatever engine it is."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llmdeploy.errors import Unreachable

_LINE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)(?: \d+)?")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """What one engine calls the values of an EngineSample; None where it has no such value."""

    running: str
    waiting: str
    kv_used_ratio: str
    kv_cache_tokens: str | None
    resident_bytes: str | None
    generated_tokens: str
    prompt_tokens: str
    steps: str | None
    requests: str
    rejections: str | None
    restarts: str | None
    ttft: str
    inter_token: str
    queue: str


VOCABULARIES: Mapping[str, Vocabulary] = {
    "embedded": Vocabulary(
        running="llmdeploy_engine_running",
        waiting="llmdeploy_engine_waiting",
        kv_used_ratio="llmdeploy_engine_kv_used_ratio",
        kv_cache_tokens="llmdeploy_engine_kv_cache_tokens",
        resident_bytes="llmdeploy_engine_resident_bytes",
        generated_tokens="llmdeploy_engine_generated_tokens_total",
        prompt_tokens="llmdeploy_engine_prompt_tokens_total",
        steps="llmdeploy_engine_steps_total",
        requests="llmdeploy_engine_requests_total",
        rejections="llmdeploy_engine_rejections_total",
        restarts="llmdeploy_engine_restarts_total",
        ttft="llmdeploy_engine_ttft_seconds",
        inter_token="llmdeploy_engine_inter_token_seconds",
        queue="llmdeploy_engine_queue_seconds",
    ),
    "vllm": Vocabulary(
        running="vllm:num_requests_running",
        waiting="vllm:num_requests_waiting",
        kv_used_ratio="vllm:kv_cache_usage_perc",
        kv_cache_tokens=None,
        resident_bytes="process_resident_memory_bytes",
        generated_tokens="vllm:generation_tokens_total",
        prompt_tokens="vllm:prompt_tokens_total",
        steps="vllm:iteration_tokens_total_count",
        requests="vllm:request_success_total",
        rejections=None,
        restarts=None,
        ttft="vllm:time_to_first_token_seconds",
        inter_token="vllm:inter_token_latency_seconds",
        queue="vllm:request_queue_time_seconds",
    ),
}
"""One row for each engine; another engine is another row, nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Observations up to `up_to_s`, the smaller buckets' included."""

    up_to_s: float
    count: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyHistogram:
    """Cumulative counts since the engine started."""

    buckets: tuple[Bucket, ...]
    count: float
    sum_s: float

    def quantile_s(self, share: float) -> float | None:
        """The latency below which `share` of the observations lie, linear inside a bucket.

        None without observations, or where they lie above the last finite bucket.
        """
        low_s, below = 0.0, 0.0
        for bucket in self.buckets:
            if self.count and bucket.count >= share * self.count:
                if bucket.up_to_s == float("inf"):
                    return None
                inside = bucket.count - below
                part = (share * self.count - below) / inside if inside else 1.0
                return low_s + part * (bucket.up_to_s - low_s)
            low_s, below = bucket.up_to_s, bucket.count
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSample:
    """One engine endpoint at one moment; counters since its start. None: it does not tell."""

    running: int
    waiting: int
    kv_used_ratio: float
    kv_cache_tokens: int | None
    resident_bytes: int | None
    generated_tokens: int
    prompt_tokens: int
    steps: int | None
    requests: int
    rejections: int | None
    restarts: int | None
    ttft: LatencyHistogram
    inter_token: LatencyHistogram
    queue: LatencyHistogram


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line of the text: a name, its labels, a value."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


def parse_prometheus(text: str) -> tuple[Series, ...]:
    """Every series of the text; lines that are none (comments, torn ones) are left out."""
    found = []
    for line in text.splitlines():
        match = _LINE.fullmatch(line.strip())
        if line.startswith("#") or not match:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        labels = tuple(_LABEL.findall(match[2] or ""))
        found.append(Series(name=match[1], labels=labels, value=value))
    return tuple(found)


def engine_sample(text: str, *, engine: str | None = None) -> EngineSample:
    """The engine's state; Unreachable naming the first value that the text lacks.

    Which engine it is the text tells by its names, where `engine` does not.
    """
    series = parse_prometheus(text)
    words = VOCABULARIES[engine or _engine_of(series)]
    return EngineSample(
        running=int(_total(series, words.running)),
        waiting=int(_total(series, words.waiting)),
        kv_used_ratio=_total(series, words.kv_used_ratio),
        kv_cache_tokens=_maybe(series, words.kv_cache_tokens),
        resident_bytes=_maybe(series, words.resident_bytes),
        generated_tokens=int(_total(series, words.generated_tokens)),
        prompt_tokens=int(_total(series, words.prompt_tokens)),
        steps=_maybe(series, words.steps),
        requests=_count(series, words.requests),
        rejections=None if words.rejections is None else _count(series, words.rejections),
        restarts=_maybe(series, words.restarts),
        ttft=_histogram(series, words.ttft),
        inter_token=_histogram(series, words.inter_token),
        queue=_histogram(series, words.queue),
    )


def _engine_of(series: Sequence[Series]) -> str:
    names = {one.name for one in series}
    known = (name for name, words in VOCABULARIES.items() if words.running in names)
    return next(known, "embedded")


def _total(series: Sequence[Series], name: str) -> float:
    values = [s.value for s in series if s.name == name]
    if not values:
        raise Unreachable(
            f"/metrics: {name} is missing among {len(series)} series",
            fix="check that the port belongs to the engine of this release and is ready",
        )
    return sum(values)


def _maybe(series: Sequence[Series], name: str | None) -> int | None:
    return None if name is None else int(_total(series, name))


def _count(series: Sequence[Series], name: str) -> int:
    """A labelled counter's sum; it has no series at all before its first event."""
    return int(sum(s.value for s in series if s.name == name))


def _histogram(series: Sequence[Series], name: str) -> LatencyHistogram:
    counts: dict[float, float] = {}
    for one in series:
        if one.name == f"{name}_bucket":
            edge_s = float(dict(one.labels).get("le", "+Inf"))
            counts[edge_s] = counts.get(edge_s, 0.0) + one.value
    return LatencyHistogram(
        buckets=tuple(Bucket(up_to_s=edge_s, count=counts[edge_s]) for edge_s in sorted(counts)),
        count=_total(series, f"{name}_count"),
        sum_s=_total(series, f"{name}_sum"),
    )

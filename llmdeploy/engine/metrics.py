"""What the engine did, in Prometheus' text format."""

import bisect
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

PREFIX = "llmdeploy_engine_"

_LATENCY_BUCKETS_S = (
    0.005, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8,
    1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0, 30.0, 60.0, 120.0,
)  # fmt: skip


class Histogram:
    """Counts of durations in fixed buckets."""

    def __init__(self, edges_s: tuple[float, ...] = _LATENCY_BUCKETS_S) -> None:
        self._edges_s = edges_s
        self._counts = [0] * (len(edges_s) + 1)
        self._sum_s = 0.0

    def observe(self, duration_s: float, times: int = 1) -> None:
        """Counts `times` events of this duration."""
        self._counts[bisect.bisect_left(self._edges_s, duration_s)] += times
        self._sum_s += duration_s * times

    def lines(self, name: str) -> Iterator[str]:
        """Cumulative buckets, sum and count."""
        total = 0
        for edge, count in zip((*self._edges_s, "+Inf"), self._counts, strict=True):
            total += count
            yield f'{name}_bucket{{le="{edge}"}} {total}'
        yield f"{name}_sum {self._sum_s:.6f}"
        yield f"{name}_count {total}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """Values of this moment."""

    running: int
    waiting: int
    kv_used_ratio: float
    kv_cache_tokens: int
    resident_bytes: int
    steps: int
    restarts: int


class Metrics:
    """Everything counted since the process started."""

    def __init__(self) -> None:
        self.ttft = Histogram()
        self.inter_token = Histogram()
        self.queue = Histogram()
        self.e2e = Histogram()
        self.prompt_tokens = 0
        self.generated_tokens = 0
        self.requests: Counter[tuple[int, str]] = Counter()
        """By HTTP status and finish reason; 499 means the client went away."""
        self.rejections: Counter[str] = Counter()

    def render(self, gauges: Gauges) -> str:
        """The whole page."""
        blocks = [
            *self._histograms(),
            *_gauges(gauges),
            _block("prompt_tokens_total", "counter", "Prompt tokens taken.", self.prompt_tokens),
            _block(
                "generated_tokens_total", "counter", "Tokens generated.", self.generated_tokens
            ),
            _block("steps_total", "counter", "Forward steps of all workers.", gauges.steps),
            _block(
                "restarts_total", "counter", "Batching loops built anew after a fatal error.",
                gauges.restarts,
            ),
            _labelled(
                "requests_total", "Requests ended, by HTTP status and finish reason.",
                {f'code="{c}",finish="{f}"': n for (c, f), n in self.requests.items()},
            ),
            _labelled(
                "rejections_total", "Requests not taken, by reason.",
                {f'reason="{reason}"': n for reason, n in self.rejections.items()},
            ),
        ]  # fmt: skip
        return "".join(blocks)

    def _histograms(self) -> Iterator[str]:
        shown = {
            "ttft_seconds": (self.ttft, "Arrival to first output token."),
            "inter_token_seconds": (self.inter_token, "Between output tokens of one answer."),
            "queue_seconds": (self.queue, "Arrival to the first step with the request."),
            "e2e_seconds": (self.e2e, "Arrival to the end of the answer."),
        }
        for name, (histogram, text) in shown.items():
            yield _head(name, "histogram", text)
            yield "".join(f"{line}\n" for line in histogram.lines(PREFIX + name))


def _gauges(gauges: Gauges) -> Iterator[str]:
    yield _block("running", "gauge", "Answers being generated.", gauges.running)
    yield _block("waiting", "gauge", "Answers waiting for a place.", gauges.waiting)
    yield _block("kv_used_ratio", "gauge", "Share of KV tokens in use.", gauges.kv_used_ratio)
    yield _block("kv_cache_tokens", "gauge", "KV capacity in tokens.", gauges.kv_cache_tokens)
    yield _block(
        "resident_bytes", "gauge", "Resident memory of all processes.", gauges.resident_bytes
    )


def _head(name: str, kind: str, text: str) -> str:
    return f"# HELP {PREFIX}{name} {text}\n# TYPE {PREFIX}{name} {kind}\n"


def _block(name: str, kind: str, text: str, value: float) -> str:
    return f"{_head(name, kind, text)}{PREFIX}{name} {value:.17g}\n"


def _labelled(name: str, text: str, values: Mapping[str, int]) -> str:
    rows = (f"{PREFIX}{name}{{{labels}}} {n}\n" for labels, n in sorted(values.items()))
    return _head(name, "counter", text) + "".join(rows)

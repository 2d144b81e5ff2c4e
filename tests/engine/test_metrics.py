"""The metrics page in Prometheus' format."""

from llmdeploy.engine.metrics import Gauges, Histogram, Metrics

GAUGES = Gauges(
    running=2, waiting=1, kv_used_ratio=0.25, kv_cache_tokens=8192, resident_bytes=10**9,
    steps=7, restarts=0,
)  # fmt: skip


def samples(page):
    return dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))


def test_a_histogram_counts_into_cumulative_buckets():
    histogram = Histogram((0.1, 1.0))
    histogram.observe(0.1)
    histogram.observe(0.5, times=2)
    histogram.observe(9.0)
    assert list(histogram.lines("h")) == [
        'h_bucket{le="0.1"} 1',
        'h_bucket{le="1.0"} 3',
        'h_bucket{le="+Inf"} 4',
        "h_sum 10.100000",
        "h_count 4",
    ]


def test_every_gauge_counter_and_histogram_is_on_the_page():
    metrics = Metrics()
    metrics.ttft.observe(0.2)
    metrics.generated_tokens = 64
    metrics.requests[200, "stop"] = 3
    metrics.rejections["queue_full"] = 2
    found = samples(metrics.render(GAUGES))
    prefix = "llmdeploy_engine_"
    assert found[f"{prefix}running"] == "2"
    assert found[f"{prefix}waiting"] == "1"
    assert found[f"{prefix}kv_used_ratio"] == "0.25"
    assert found[f"{prefix}kv_cache_tokens"] == "8192"
    assert found[f"{prefix}resident_bytes"] == "1000000000"
    assert found[f"{prefix}steps_total"] == "7"
    assert found[f"{prefix}restarts_total"] == "0"
    assert found[f"{prefix}generated_tokens_total"] == "64"
    assert found[f"{prefix}prompt_tokens_total"] == "0"
    assert found[f'{prefix}requests_total{{code="200",finish="stop"}}'] == "3"
    assert found[f'{prefix}rejections_total{{reason="queue_full"}}'] == "2"
    assert found[f"{prefix}ttft_seconds_count"] == "1"
    for name in ("inter_token_seconds", "queue_seconds", "e2e_seconds"):
        assert found[f"{prefix}{name}_count"] == "0"


def test_every_metric_has_its_help_and_type():
    page = Metrics().render(GAUGES)
    names = [line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")]
    assert len(names) == len(set(names)) == page.count("# HELP") == 15


def test_large_counters_are_whole_numbers():
    metrics = Metrics()
    metrics.prompt_tokens = 123_456_789_012
    found = samples(metrics.render(GAUGES))
    assert found["llmdeploy_engine_prompt_tokens_total"] == "123456789012"

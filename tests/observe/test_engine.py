"""The engine's Prometheus text becomes one sample; another program's text is refused."""

import pytest

from llmdeploy.errors import Unreachable
from llmdeploy.observe.engine import engine_sample, parse_prometheus

PREFIX = "llmdeploy_engine_"


def histogram(name, counts):
    edges = ("0.1", "0.2", "+Inf")
    rows = [f'{PREFIX}{name}_bucket{{le="{e}"}} {c}' for e, c in zip(edges, counts, strict=True)]
    return [*rows, f"{PREFIX}{name}_sum 1.5", f"{PREFIX}{name}_count {counts[-1]}"]


TEXT = "\n".join(
    [
        f"# HELP {PREFIX}running Answers being generated.",
        f"# TYPE {PREFIX}running gauge",
        f"{PREFIX}running 3",
        f"{PREFIX}waiting 1",
        f"{PREFIX}kv_used_ratio 0.25",
        f"{PREFIX}kv_cache_tokens 4096",
        f"{PREFIX}resident_bytes 1.5e+09",
        f"{PREFIX}generated_tokens_total 640",
        f"{PREFIX}prompt_tokens_total 1280",
        f"{PREFIX}steps_total 700",
        f'{PREFIX}requests_total{{code="200",finish="stop"}} 8',
        f'{PREFIX}requests_total{{code="200",finish="length"}} 2',
        f"{PREFIX}restarts_total 0",
        *histogram("ttft_seconds", (5, 9, 10)),
        *histogram("inter_token_seconds", (0, 0, 0)),
        *histogram("queue_seconds", (10, 10, 10)),
        "",
    ]
)


def test_gauges_counters_and_labelled_counters_are_read():
    sample = engine_sample(TEXT)
    assert (sample.running, sample.waiting, sample.kv_cache_tokens) == (3, 1, 4096)
    assert (sample.requests, sample.rejections, sample.restarts) == (10, 0, 0)
    assert sample.resident_bytes == 1_500_000_000


def test_quantiles_are_linear_inside_their_bucket():
    sample = engine_sample(TEXT)
    # 7 of 10: 5 lie up to 0.1 s, so 2 of the 4 in the next bucket: 0.1 + 0.1 x 2/4
    assert sample.ttft.quantile_s(0.7) == pytest.approx(0.15)
    assert sample.queue.quantile_s(0.5) == pytest.approx(0.05)


def test_a_quantile_without_observations_or_beyond_the_buckets_is_none():
    sample = engine_sample(TEXT)
    assert sample.inter_token.quantile_s(0.5) is None
    assert sample.ttft.quantile_s(0.99) is None


def test_another_programs_metrics_are_refused_with_the_missing_name():
    with pytest.raises(Unreachable, match="llmdeploy_engine_running is missing among 1 series"):
        engine_sample("other:num_requests_running 1\n")


def test_labels_with_quotes_and_torn_lines_are_survived():
    found = parse_prometheus('a{path="x\\"y",b="2"} 4\na{path="half\nb 1 1700000000000\nc x\n')
    assert [(s.name, s.value) for s in found] == [("a", 4.0), ("b", 1.0)]
    assert found[0].labels == (("path", 'x\\"y'), ("b", "2"))


def test_vllms_metrics_are_known_by_their_names():
    text = "".join(
        f"vllm:{name} 2\n"
        for name in (
            "num_requests_running", "num_requests_waiting", "kv_cache_usage_perc",
            "generation_tokens_total", "prompt_tokens_total", "iteration_tokens_total_count",
            "time_to_first_token_seconds_count", "time_to_first_token_seconds_sum",
            "inter_token_latency_seconds_count", "inter_token_latency_seconds_sum",
            "request_queue_time_seconds_count", "request_queue_time_seconds_sum",
        )
    )  # fmt: skip
    sample = engine_sample(
        f'{text}process_resident_memory_bytes 7\nvllm:request_success_total{{a="b"}} 3\n'
    )
    assert (sample.running, sample.generated_tokens, sample.requests) == (2, 2, 3)
    assert sample.kv_cache_tokens is None

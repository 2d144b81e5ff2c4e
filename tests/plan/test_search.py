"""Which layouts a search finds on simple models of memory and speed, and which rule rejects."""

from dataclasses import replace

import pytest

from llmdeploy.plan.proposal import proposals, replicas_that_fit
from llmdeploy.plan.rank import best, dominated, pareto
from llmdeploy.plan.search import Found, search
from llmdeploy.plan.serving import wanted
from llmdeploy.plan.size import Estimators
from llmdeploy.service import Bucket, Lengths

from .stand_ins import (
    DEEPSEEK_671B,
    LLAMA_8B,
    LLAMA_70B,
    QWEN_14B,
    USING,
    VLLM,
    exactly,
    memory,
    pace,
    pool,
    service,
    shape,
)  # fmt: skip


def found(config: dict, *pools, **parts) -> Found:
    return search(service(**parts), shape(config), pools, engine=VLLM, using=USING)


def chosen(config: dict, *pools, **parts):
    return best(found(config, *pools, **parts).options)


def test_one_device_is_one_device():
    option = chosen(LLAMA_8B, pool("rtx4090", 1))
    (part,) = option.parts
    assert (part.sized.proposal.devices, part.replicas, part.spares) == (1, 1, 0)


@pytest.mark.parametrize(
    ("kind", "runs"), [("auto", "embedded"), ("vllm", "vllm"), ("embedded", "embedded")]
)
def test_a_processor_runs_the_engine_that_the_service_names(kind, runs):
    asked = {"engine": {"kind": kind}, "workload": {"requests_per_day": 100}}
    asked["objectives"] = {"ttft_p95_s": 60.0, "tpot_p95_s": 5.0}
    engine = wanted(service(**asked)).engine
    result = search(service(**asked), shape(LLAMA_8B), [pool("cpu", 1)], engine=engine, using=USING)
    assert {option.parts[0].sized.proposal.engine.name for option in result.options} == {runs}
    assert max(option.parts[0].sized.batch for option in result.options) <= 32


def test_a_processor_does_not_run_an_engine_that_has_no_build_for_it():
    asked = {"engine": {"kind": "sglang"}}
    engine = wanted(service(**asked)).engine
    result = search(service(**asked), shape(LLAMA_8B), [pool("cpu", 1)], engine=engine, using=USING)
    assert result.options == ()
    assert {r.broken.words for r in result.rejected} == {
        "sglang does not run on Server processor (8 channels DDR5-4800)"
    }


def test_a_spare_is_added_where_there_is_room():
    option = chosen(LLAMA_8B, pool("rtx4090", 2))
    assert (option.devices, option.spares) == (2, 1)


def test_a_model_too_large_for_a_device_is_split_by_tensors_within_its_host():
    option = chosen(LLAMA_70B, pool("h100-sxm", 8))
    assert option.parts[0].sized.proposal.tensor_parallel == 4


def test_bits_are_kept_where_they_fit_and_dropped_where_not():
    assert chosen(QWEN_14B, pool("rtx4090", 4, 4)).loss == 0
    few = {"requests_per_day": 20_000}
    assert chosen(QWEN_14B, pool("rtx4090", 1), workload=few).loss > 0
    asked = chosen(QWEN_14B, pool("rtx4090", 4, 4), model={"quantization": "awq"})
    assert asked.parts[0].sized.proposal.weights.needs_checkpoint


def test_stages_go_over_hosts_where_one_host_is_too_small():
    slow = {"objectives": {"tpot_p95_s": 1.0, "ttft_p95_s": 20.0}}
    option = chosen(
        LLAMA_70B, pool("rtx4090", 4, 4), workload={"requests_per_day": 10_000},
        model={"quantization": "none"}, **slow,
    )  # fmt: skip
    made = option.parts[0].sized.proposal
    assert (made.pipeline_parallel, made.hosts) in ((2, 2), (4, 2), (8, 2))


def test_equal_hosts_are_looked_at_once():
    few, many = found(LLAMA_8B, pool("rtx4090", 4, 4)), found(LLAMA_8B, pool("rtx4090", *[4] * 99))
    assert many.looked_at <= few.looked_at + 30


def test_hosts_of_different_sizes_are_used_together():
    small = pool("rtx4090", 4, 2, 1)
    assert replicas_that_fit(small, 2, 1, 1) == 3
    assert replicas_that_fit(small, 1, 1, 3) == 1
    assert replicas_that_fit(small, 2, 1, 3) == 0
    assert {1, 2, 4} <= {
        p.tensor_parallel for p in proposals(service(), shape(LLAMA_8B), small, engine=VLLM)
    }


def test_two_pools_carry_together_what_neither_carries_alone():
    load = {"requests_per_day": 5_000_000}
    small, large = pool("rtx4090", 4), pool("rtx6000ada", 2)
    alone = [found(LLAMA_8B, p, workload=load).options for p in (small, large)]
    assert alone == [(), ()]
    day = 100_000
    while True:
        load = {"requests_per_day": day}
        if not any(found(LLAMA_8B, p, workload=load).options for p in (small, large)):
            break
        day = int(day * 1.1)
    option = chosen(LLAMA_8B, small, large, workload=load)
    assert len(option.parts) == 2
    assert sum(part.rate_per_s for part in option.parts) == pytest.approx(day / 86400 * 3)


def test_attention_copies_with_spread_experts_are_looked_at_for_latent_caches():
    names = [option.name for option in found(DEEPSEEK_671B, pool("h200-sxm", 8, 8)).options]
    assert any("dp8 ep" in name for name in names)
    assert not any("dp" in option.name for option in found(LLAMA_8B, pool("h100", 8)).options)


def test_the_front_is_not_beaten_and_the_rest_names_who_beats_it():
    options = found(QWEN_14B, pool("rtx4090", 4, 4), pool("l4", 8)).options
    front = pareto(options)
    rest = dominated(options, front)
    assert best(options).cost <= max(option.cost for option in front)
    assert len(front) + len(rest) == len(options)
    assert {rejected.broken.rule for rejected in rest} == {"dominated"}


@pytest.mark.parametrize(
    ("parts", "rule"),
    [
        ({"workload": {"requests_per_day": 10**9}}, "peak"),
        ({"objectives": {"tpot_p95_s": 0.001}}, "tpot"),
        ({"objectives": {"ttft_p95_s": 0.001}}, "ttft"),
        ({"engine": {"max_num_seqs": 1024}}, "kv-room"),
        ({"engine": {"max_model_len": 131072}}, "memory-fits"),
        ({"engine": {"memory_ratio": 0.1}}, "memory-fits"),
    ],
)
def test_what_breaks_names_the_rule(parts, rule):
    result = found(LLAMA_8B, pool("rtx4090", 1), model={"quantization": "none"}, **parts)
    assert result.options == ()
    assert {rejected.broken.rule for rejected in result.rejected} == {rule}


def test_prices_decide_where_there_are_any():
    cheap, dear = pool("rtx4090", 4, price=0.3), pool("l40s", 4, price=3.0)
    assert chosen(LLAMA_8B, dear, cheap).parts[0].sized.proposal.pool.name == "rtx4090"
    cheap, dear = pool("rtx4090", 4, price=3.0), pool("l40s", 4, price=0.3)
    assert chosen(LLAMA_8B, dear, cheap).parts[0].sized.proposal.pool.name == "l40s"


def test_a_histogram_of_lengths_counts_its_long_requests():
    bins = (Bucket(tokens=200, requests=90), Bucket(tokens=3000, requests=10))
    mixed = Lengths(mean=480, p50=200, p95=3000, histogram=bins)
    even = Lengths(mean=480, p95=481)
    times = [
        chosen(LLAMA_8B, pool("rtx4090", 2), workload={"input_tokens": lengths}).ttft_p95_s
        for lengths in (mixed, even)
    ]
    assert times[0] > 2 * times[1]


def test_an_engine_is_started_for_as_many_sequences_as_it_decodes():
    """Memory that an engine takes for each sequence is counted for those that are decoded."""
    gib = 2**30

    def hungry(case):
        taken = memory(case)
        extra = (case.max_num_seqs or 0) * 0.02 * gib
        tokens = max(0.0, taken.kv_cache_tokens.value - extra / taken.kv_bytes_per_token.value)
        assert case.max_model_len
        return replace(
            taken,
            kv_cache_tokens=exactly(tokens),
            max_concurrency=exactly(tokens / case.max_model_len),
            fits=tokens > case.max_model_len,
        )

    using = Estimators(memory=hungry, pace=pace)
    for device in ("rtx4090", "h100-sxm"):
        (sized, *_) = search(
            service(engine={"tensor_parallel": 1, "max_model_len": 4096}),
            shape(LLAMA_8B), (pool(device, 4),), engine=VLLM, using=using,
        ).fitting  # fmt: skip
        assert sized.case.max_num_seqs == sized.batch
        assert sized.batch <= sized.requests_in_kv_cache <= 1.05 * sized.batch

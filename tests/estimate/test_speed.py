"""Speed of a launch: its parts against sums done by hand, its bounds, and its answers' order."""

import itertools
import math

import pytest

from llmdeploy.catalog import devices, engines, models
from llmdeploy.errors import InputError
from llmdeploy.estimate import speed
from llmdeploy.estimate.case import Case
from llmdeploy.estimate.speed.benchmark import batch_requests, benchmarked
from llmdeploy.estimate.speed.coefficients import NAMES, classes, coefficients, from_logs
from llmdeploy.estimate.speed.load import Load, closed, open_loop, saturated, waves
from llmdeploy.estimate.speed.seats import seats
from llmdeploy.estimate.speed.spread import groups
from llmdeploy.estimate.speed.terms import (
    decode_seconds,
    decode_terms,
    prefill_terms,
    prompt_seconds,
)
from llmdeploy.estimate.speed.work import kv_element_bytes, work_of
from llmdeploy.model import weight_format

LLAMA_8B = models.find("meta-llama/Llama-3.1-8B-Instruct")
MIXTRAL = models.find("mistralai/Mixtral-8x7B-Instruct-v0.1")
DEEPSEEK = models.find("deepseek-ai/DeepSeek-V3")


def case(**changes):
    fields = {
        "shape": LLAMA_8B,
        "weight_format": None,
        "engine": engines.find("vllm", "0.11.0"),
        "device": devices.find("h100-sxm"),
        "device_memory_bytes": None,
        "input_tokens": 1024.0,
        "output_tokens": 256.0,
        "concurrency": 16.0,
    }
    return Case(**(fields | changes))


def test_reading_weights_takes_their_bytes_over_the_memory_rate():
    # Llama-3.1-8B: 8,030,261,248 weights less the embedding's 128,256 x 4,096 = 525,336,576,
    # of which one row a token is read: 7,504,924,672 x 2 bytes / 3.35 TB/s = 4.4805 ms
    terms = decode_terms(work_of(case()), 1, 0)
    assert terms.dense_read_s == pytest.approx(7_504_924_672 * 2 / 3.35e12, rel=1e-6)
    # each token: 2 products a weight at 989.4 TFLOPS
    assert terms.dense_compute_s == pytest.approx(2 * 7_504_924_672 / 989.4e12, rel=1e-6)


def test_reading_the_cache_takes_its_bytes_over_the_memory_rate():
    # 32 layers x 8 KV heads x (128 + 128) x 2 bytes = 131,072 bytes a token;
    # 16 requests x 1,000 tokens = 2.097 GB / 3.35 TB/s = 626 us
    terms = decode_terms(work_of(case()), 16, 1000)
    assert terms.kv_read_s == pytest.approx(16 * 1000 * 131_072 / 3.35e12)


def test_tensor_parallel_divides_weights_and_cache_and_adds_two_sums_a_layer():
    one, four = (decode_terms(work_of(case(tensor_parallel=n)), 16, 1000) for n in (1, 4))
    assert four.dense_read_s == pytest.approx(one.dense_read_s / 4, rel=0.01)
    assert four.kv_read_s == pytest.approx(one.kv_read_s / 4)
    assert one.collective_s == 0
    # 64 sums of 16 x 4,096 x 2 bytes = 128 KiB: near protocol of the engines' own kernel over
    # NVLink 4, 4.56 us + 1.5 x 131,072 / 144 GB/s = 5.93 us
    assert four.collective_s == pytest.approx(64 * (4.56e-6 + 1.5 * 131_072 / 144e9))


def test_sums_take_what_was_measured_on_the_hosts():
    measured = ((1024, 50e-6), (2**24, 50e-6))
    made = decode_terms(work_of(case(tensor_parallel=4, all_reduce=measured)), 16, 1000)
    assert made.collective_s == pytest.approx(64 * 50e-6)  # two a layer


def test_experts_that_no_token_visits_are_not_read():
    # Mixtral: 8 experts, 2 a token: 2 tokens visit 8 (1 - 0.75^2) = 3.5 on average
    terms = decode_terms(work_of(case(shape=MIXTRAL)), 2, 0)
    assert 8 * (1 - math.exp(terms.expert_miss_log)) == pytest.approx(3.5)


def test_latent_caches_are_whole_on_every_device():
    work = work_of(case(shape=DEEPSEEK, tensor_parallel=8, weight_format=DEEPSEEK.weight_format))
    # 61 layers x 576 x 2 bytes, whatever TP is
    assert work.attended[0].read_s == pytest.approx(61 * 576 * 2 / 3.35e12)


def test_sliding_layers_read_no_more_than_their_window():
    shape = models.find("openai/gpt-oss-120b")
    work = work_of(case(shape=shape, weight_format=shape.weight_format))
    short, long = (decode_terms(work, 1, n).kv_read_s for n in (128, 12_800))
    # 18 of 36 layers stop at 128 tokens: 50.5 times as much, not 100
    assert long / short == pytest.approx((18 * 12_800 + 18 * 128) / (36 * 128))


def test_unsaid_cache_types_are_those_of_recipes():
    fp8 = weight_format("fp8")
    assert kv_element_bytes(case()) == 2
    assert kv_element_bytes(case(kv_cache_dtype="fp8")) == 1
    assert kv_element_bytes(case(weight_format=fp8)) == 2
    assert kv_element_bytes(case(weight_format=fp8, device=devices.find("b200"))) == 1
    assert kv_element_bytes(case(weight_format=fp8, engine=engines.find("trt-llm"))) == 1


def test_data_parallel_with_shared_experts_is_one_replica():
    spread = groups(case(shape=DEEPSEEK, data_parallel=8, expert_parallel=True))
    assert (spread.replicas, spread.attention_workers, spread.experts) == (1, 8, 8)
    apart = groups(case(data_parallel=8))
    assert (apart.replicas, apart.attention_workers, apart.experts) == (8, 1, 1)
    inner = groups(
        case(shape=DEEPSEEK, tensor_parallel=8, data_parallel=8, attention_data_parallel=True)
    )
    assert (inner.replicas, inner.attention, inner.attention_workers, inner.experts) == (1, 1, 8, 8)


def test_sizes_multiplied_by_the_expert_group_are_those_of_one_host():
    odd = case(shape=DEEPSEEK, tensor_parallel=64, hosts=8, expert_parallel=True)
    assert groups(odd).experts == 8
    honest = case(shape=DEEPSEEK, tensor_parallel=16, hosts=2, expert_parallel=True)
    assert (groups(honest).experts, groups(honest).hosts) == (16, 2)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tensor_parallel": 4},
        {"shape": MIXTRAL, "tensor_parallel": 2},
        {"shape": DEEPSEEK, "tensor_parallel": 8, "expert_parallel": True},
        {"shape": DEEPSEEK, "data_parallel": 8, "expert_parallel": True},
        {"pipeline_parallel": 4},
    ],
)
def test_the_pace_is_the_sum_of_its_terms(changes):
    made = case(**changes)
    pace, work = speed.pace(made), work_of(made)
    found = coefficients(made).coefficients
    for batch, context in ((1, 1), (7.5, 900), (300, 4000)):
        terms = decode_terms(work, batch, context)
        assert pace.decode_step_s(batch, context) == pytest.approx(decode_seconds(terms, found))
    terms = prefill_terms(work, 700, 300)
    assert pace.prefill_s(700, 300) == pytest.approx(prompt_seconds(terms, found))


def test_with_no_overheads_and_full_efficiency_a_step_is_the_data_sheet():
    ideal = from_logs({name: -50.0 if name.endswith("_s") else 0.0 for name in NAMES})
    terms = decode_terms(work_of(case()), 1, 0)
    both = math.hypot(terms.dense_read_s, terms.dense_compute_s)
    assert decode_seconds(terms, ideal) == pytest.approx(both)


def test_nothing_is_faster_than_the_data_sheets_floor():
    for name in ("h100", "a100", "l40s", "rtx4090", "b200", "mi300x", "ascend910b", "rtx3090"):
        for engine in ("vllm", "sglang", "trt-llm", "llama.cpp", "lmdeploy", "embedded"):
            made = case(device=devices.find(name), engine=engines.find(engine), concurrency=1.0)
            floor = decode_terms(work_of(made), 1, 1152)
            assert speed.estimate(made).tpot_s.value > 0.9 * floor.dense_read_s, (name, engine)


def test_more_callers_give_more_tokens_and_longer_waits():
    answers = [speed.estimate(case(concurrency=float(c))) for c in (1, 4, 16, 64)]
    for fewer, more in itertools.pairwise(answers):
        assert fewer.output_tokens_per_s.value < more.output_tokens_per_s.value
        assert fewer.tpot_s.value < more.tpot_s.value
        assert fewer.ttft_s.value < more.ttft_s.value
        assert fewer.utilisation_ratio.value < more.utilisation_ratio.value <= 1


def test_a_closed_loop_obeys_littles_law():
    answer = speed.estimate(case(concurrency=32.0))
    whole_s = answer.ttft_s.value + 255 * answer.tpot_s.value
    assert answer.output_tokens_per_s.value == pytest.approx(32 * 256 / whole_s)


def test_callers_past_the_seats_wait_and_the_interval_says_so():
    few, many = (speed.estimate(case(concurrency=c, max_num_seqs=16)) for c in (16.0, 64.0))
    assert many.tpot_s.value == pytest.approx(few.tpot_s.value)
    assert many.output_tokens_per_s.value == pytest.approx(few.output_tokens_per_s.value)
    assert many.ttft_s.value > 2.9 * (256 * few.tpot_s.value)
    assert many.ttft_s.high / many.ttft_s.value > few.ttft_s.high / few.ttft_s.value


def test_seats_are_the_caches_tokens_over_a_mean_request_or_the_schedulers_limit():
    assert seats(case(max_num_seqs=8)) == 8
    long = case(input_tokens=100_000.0, output_tokens=1000.0)
    assert 1 <= seats(long) < 10  # 80 GB less 16 GB of weights hold about 430,000 tokens
    assert seats(case(concurrency=None)) <= 500


def test_a_rate_below_what_is_possible_is_served_and_above_it_saturates():
    calm = speed.estimate(case(concurrency=None, request_rate_per_s=2.0))
    assert calm.output_tokens_per_s.value == pytest.approx(512)
    assert calm.utilisation_ratio.value < 0.5
    flood = speed.estimate(case(concurrency=None, request_rate_per_s=1e4))
    assert flood.utilisation_ratio.value == 1
    assert flood.ttft_s.value > calm.ttft_s.value


def test_without_load_the_saturated_server_is_meant():
    full = speed.estimate(case(concurrency=None))
    assert full.utilisation_ratio.value == 1
    assert full.output_tokens_per_s.value > speed.estimate(case()).output_tokens_per_s.value


def test_one_token_without_load_is_a_lone_requests_latency():
    lone = speed.estimate(case(concurrency=None, output_tokens=1.0))
    assert lone.ttft_s.value == pytest.approx(
        speed.estimate(case(concurrency=1.0, output_tokens=1.0)).ttft_s.value
    )


def test_replicas_share_the_callers_and_add_their_tokens():
    one = speed.estimate(case(concurrency=16.0))
    two = speed.estimate(case(concurrency=32.0, data_parallel=2))
    assert two.output_tokens_per_s.value == pytest.approx(2 * one.output_tokens_per_s.value)
    assert two.tpot_s.value == pytest.approx(one.tpot_s.value)


def test_one_stream_of_llama_cpp_counts_decoding_alone():
    answer = speed.estimate(case(engine=engines.find("llama.cpp"), concurrency=1.0))
    assert answer.output_tokens_per_s.value == pytest.approx(1 / answer.tpot_s.value)


def test_the_method_says_what_was_measured():
    def method(**changes):
        return speed.estimate(case(**changes)).tpot_s.method

    assert method() == "calibrated"
    assert method(device=devices.find("mi210")) == "interpolated"
    assert method(engine=engines.find("tgi")) == "interpolated"
    assert method(engine=engines.find("tgi"), device=devices.find("gaudi3")) == "roofline"


def test_the_less_is_known_the_wider_the_interval():
    def width(**changes):
        answer = speed.estimate(case(**changes)).tpot_s
        assert answer.low < answer.value < answer.high
        return answer.high / answer.low

    known = width()
    assert (
        width(shape=models.find("meta-llama/Llama-3.1-70B-Instruct"), tensor_parallel=4)
        < known
        < width(device=devices.find("mi210"))
        < width(engine=engines.find("tgi"), device=devices.find("gaudi3"))
    )
    assert known < width(input_tokens=None)


def test_versions_and_formats_are_told_apart():
    assert classes(case())["version"] == "vllm-0.11"
    assert classes(case(engine=engines.find("vllm", "0.29.1")))["version"] == "vllm-0.19"
    assert classes(case(engine=engines.find("vllm")))["version"] == "vllm-unknown"
    assert classes(case(weight_format=weight_format("awq")))["format"] == "weight-only"
    assert classes(case(weight_format=weight_format("fp8")))["format"] == "8bit"
    assert classes(case(weight_format=weight_format("nvfp4")))["format"] == "fp4"


def test_without_a_device_or_counted_weights_speed_is_refused():
    with pytest.raises(InputError, match="device"):
        speed.estimate(case(device=None))
    bare = LLAMA_8B.model_copy(update={"parameters": None})
    with pytest.raises(InputError, match="parameters"):
        speed.estimate(case(shape=bare))


def test_loads_of_one_replica_agree_with_each_other():
    pace = speed.pace(case())
    load = Load(input_tokens=1024, output_tokens=256, seats=64)
    full = saturated(pace, load)
    assert closed(pace, load, callers=64).tokens_per_s == pytest.approx(full.tokens_per_s)
    half = full.tokens_per_s / 256 / 2
    assert 1 < open_loop(pace, load, rate_per_s=half).running < 64


TRT = engines.find("TensorRT-LLM", "1.0.0")


def test_an_engine_that_evicts_nobody_keeps_room_for_whole_answers():
    # 5,120 tokens each where their end has room from the start, 3,072 on average where it has not
    long = {"input_tokens": 1024.0, "output_tokens": 4096.0, "concurrency": 1e4}
    ours, theirs = seats(case(**long)), seats(case(**long, engine=TRT))
    assert theirs < 0.75 * ours


def test_a_batch_is_served_in_waves_and_the_last_is_smaller():
    pace = speed.pace(case())
    load = Load(input_tokens=1024, output_tokens=256, seats=64)
    full = saturated(pace, load)
    # 128 requests: two full waves; 65: one full wave and one request alone
    assert waves(pace, load, requests=128).tokens_per_s == pytest.approx(full.tokens_per_s)
    alone = closed(pace, load, callers=1)
    spent_s = 64 * 256 / full.tokens_per_s + 256 / alone.tokens_per_s
    assert waves(pace, load, requests=65).tokens_per_s == pytest.approx(65 * 256 / spent_s)
    few = waves(pace, load, requests=8)
    assert few.tokens_per_s == pytest.approx(closed(pace, load, callers=8).tokens_per_s)


def test_a_full_server_of_tensorrt_llm_is_its_own_benchmarks():
    assert batch_requests(case(engine=TRT, input_tokens=128.0, output_tokens=4096.0)) == 1500
    assert batch_requests(case(engine=TRT, input_tokens=128.0, output_tokens=128.0)) == 30000
    assert batch_requests(case()) is None
    mixture = case(engine=TRT, shape=MIXTRAL, tensor_parallel=4, concurrency=None)
    shared = benchmarked(mixture)
    assert shared.attention_data_parallel
    assert groups(shared).attention_workers == 4
    for same in (
        case(engine=TRT, tensor_parallel=4, concurrency=None),
        case(engine=TRT, shape=MIXTRAL, tensor_parallel=4),
        case(shape=MIXTRAL, tensor_parallel=4, concurrency=None),
        case(engine=engines.find("TensorRT-LLM", "0.14.0"), shape=MIXTRAL, tensor_parallel=4,
             concurrency=None),
    ):  # fmt: skip
        assert benchmarked(same) == same


def test_the_prompts_of_others_hold_up_one_stage_at_a_time():
    """Of four stages each computes a quarter of a prompt while the others go on."""
    prompts = {"input_tokens": 8192.0, "output_tokens": 64.0, "concurrency": 64.0}
    one = speed.estimate(case(**prompts)).output_tokens_per_s.value
    four = speed.estimate(case(**prompts, pipeline_parallel=4)).output_tokens_per_s.value
    assert 2.5 * one < four < 4 * one


def test_tensorrt_llm_before_1_0_attends_past_a_models_window():
    mistral = models.find("mistralai/Mistral-7B-v0.1")
    long = {"shape": mistral, "input_tokens": 20_000.0, "output_tokens": 2000.0}
    (old,) = work_of(case(**long, engine=engines.find("TensorRT-LLM", "0.14.0"))).attended
    (new,) = work_of(case(**long, engine=TRT)).attended
    assert old.most_tokens == math.inf
    assert new.most_tokens == 4096

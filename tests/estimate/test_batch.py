"""Cases in, results out: same order, exact keys, an error a line, never a guess."""

import json

import pytest

from llmdeploy.edge.local import LocalShell
from llmdeploy.estimate.batch import answers
from llmdeploy.estimate.parse_model import Models

from .configs import LLAMA_8B, LLAMA_8B_PARAMETERS

NUMBERS = {
    "weights_bytes", "kv_bytes_per_token", "kv_cache_bytes", "kv_cache_tokens", "max_concurrency",
    "activation_bytes", "graph_bytes", "other_bytes", "ttft_s", "tpot_s", "output_tokens_per_s",
    "utilisation_ratio",
}  # fmt: skip
OTHERS = {"fits", "refusal", "unanswered", "assumptions"}
LLAMA = {"model_config": LLAMA_8B}
H100 = LLAMA | {
    "gpu": "NVIDIA H100 80GB HBM3", "engine": "vLLM", "engine_version": "0.11.0",
    "tensor_parallel": 1, "gpus": 1, "memory_fraction": 0.9, "max_model_len": 8192,
}  # fmt: skip
LOAD = {"input_tokens": 1000, "output_tokens": 200, "concurrency": 16}


def run(*cases):
    lines = [case if isinstance(case, str) else json.dumps(case) for case in cases]
    models = Models(store="/nowhere", shell=LocalShell())
    return [json.loads(text) for text in answers(lines, place="cases.jsonl", models=models)]


def one(**changes):
    (found,) = run(H100 | changes)
    assert "error" not in found, found
    return found


def value(found, key):
    return found[key]["value"]


def test_the_result_has_exactly_its_keys():
    assert set(one(**LOAD)) == NUMBERS | OTHERS


def test_every_number_has_an_interval_an_origin_and_a_method():
    found = one(**LOAD)
    for key in NUMBERS:
        number = found[key]
        assert set(number) == {"value", "low", "high", "origin", "method"}, key
        assert number["low"] <= number["value"] <= number["high"], key
        assert number["origin"] in {"measured", "engine-reported", "table", "derived", "assumed"}
        assert number["method"] in {"counted", "calibrated", "interpolated", "roofline"}
    assert found["unanswered"] == {}


def test_counted_numbers_of_a_plain_model_are_the_textbooks():
    found = one()
    assert value(found, "weights_bytes") == pytest.approx(2 * LLAMA_8B_PARAMETERS, rel=0.01)
    assert value(found, "kv_bytes_per_token") == 32 * 2 * 8 * 128 * 2


def test_devices_without_tp_leave_open_whether_a_large_model_fits():
    """70B in 16 bits: yes on eight devices together, no on each alone, which is the default."""
    asked = {"model": "meta-llama/Llama-3.1-70B-Instruct", "model_config": None, "gpus": 8}
    asked |= {"tensor_parallel": None, "max_model_len": 8192}
    (found,) = run({k: v for k, v in (H100 | asked).items() if v is not None})
    assert found["fits"] is None
    assert "out of memory while loading" in found["refusal"]
    assert found["weights_bytes"]["high"] > 140e9 > 80e9 > found["weights_bytes"]["value"]


def test_results_come_in_the_order_of_the_lines_and_errors_among_them():
    first, second, third, fourth, last = run(
        H100, "{", H100 | {"gpu": "RTX 4091"}, "", H100 | {"max_model_len": 4096}
    )
    assert "error" not in first
    assert "error" not in last
    assert second["error"]["place"] == "cases.jsonl:2"
    assert "cannot be read as JSON" in second["error"]["what"]
    assert third["error"]["place"] == "cases.jsonl:3"
    assert third["error"]["what"].startswith("gpu: ")
    assert "rtx4090" in third["error"]["fix"]
    assert set(fourth["error"]) == {"place", "what", "fix"}
    assert value(last, "max_concurrency") == pytest.approx(
        2 * value(first, "max_concurrency"), rel=0.02
    )


def test_a_result_is_written_before_the_next_line_is_read():
    read = []

    def lines():
        for number in range(3):
            read.append(number)
            yield json.dumps(H100)

    found = answers(lines(), place="pipe", models=Models(store="/nowhere", shell=LocalShell()))
    next(found)
    assert read == [0]


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"gpu": "RTX 4091"}, "gpu"),
        ({"tensor_parallel": 3, "gpus": 3}, "tensor_parallel"),
        ({"request_rate_per_s": -1}, "request_rate_per_s"),
        ({"gpu_memory_bytes": "80"}, "gpu_memory_bytes"),
        ({"model_config": {"model_type": "llama"}}, "model_config"),
        ({"model_config": {}}, "model_config"),
        ({"tensor_paralel": 2}, "tensor_paralel"),
        ({"engine": "vlm"}, "engine"),
        ({"quantization": "q17"}, "quantization"),
    ],
)
def test_a_wrong_case_is_an_error_that_names_its_key_and_a_fix(changes, key):
    (found,) = run(H100 | changes)
    assert set(found) == {"error"}
    assert key in found["error"]["what"].split(": ")[0]
    assert found["error"]["fix"]


def test_an_unknown_model_is_an_error_too():
    (found,) = run({"model": "nobody/Nothing-7B", "gpu": "h100-sxm"})
    assert "nobody/Nothing-7B" in found["error"]["what"]


def test_without_a_device_weights_and_kv_per_token_are_answered():
    found = one(gpu=None, **LOAD)
    assert value(found, "weights_bytes") > 0
    assert value(found, "kv_bytes_per_token") == 131_072
    for key in ("kv_cache_bytes", "kv_cache_tokens", "max_concurrency", "fits"):
        assert found[key] is None
        assert "give gpu or gpu_memory_bytes" in found["unanswered"][key]
    for key in ("ttft_s", "tpot_s", "output_tokens_per_s", "utilisation_ratio"):
        assert found[key] is None
        assert found["unanswered"][key] == "gpu is not given: name the device"


def test_memory_alone_answers_memory():
    found = one(gpu=None, gpu_memory_bytes=79.2 * 2**30)
    assert value(found, "kv_cache_tokens") > 100_000
    assert found["fits"] is True
    assert set(found["unanswered"]) == {
        "ttft_s", "tpot_s", "output_tokens_per_s", "utilisation_ratio",
    }  # fmt: skip


def test_every_null_has_a_reason():
    for found in run(H100, H100 | {"gpu": None}, H100 | {"gpu": "rtx3060", "max_model_len": None}):
        missing = {key for key in NUMBERS | {"fits"} if found[key] is None}
        assert set(found["unanswered"]) == missing


def test_what_cannot_fit_says_so_and_why():
    found = one(gpu="rtx4060", max_model_len=None)
    assert found["fits"] is False
    assert found["refusal"]


def test_what_is_assumed_is_said():
    (found,) = run(LLAMA | {"gpu": "h100-sxm"})
    assert found["assumptions"] == [
        "engine is not given: vllm",
        "engine_version is not given: the newest known rules",
        "gpus and tensor_parallel are not given: one device",
        "input_tokens is not given: speed for 512",
        "output_tokens is not given: speed for 256",
        "concurrency and request_rate_per_s are not given: a saturated server",
    ]


@pytest.mark.parametrize(
    ("concurrency", "rate_per_s", "holds", "words"),
    [
        (4, 3000, "concurrency", "concurrency (so many clients take no higher rate)"),
        (4000, 0.1, "request_rate_per_s",
         "request_rate_per_s (so many requests do not come at once)"),
    ],
)  # fmt: skip
def test_of_a_load_said_twice_the_smaller_holds_and_is_named(concurrency, rate_per_s, holds, words):
    given = {"concurrency": concurrency, "request_rate_per_s": rate_per_s}
    lengths = {"input_tokens": 1000, "output_tokens": 200}
    both, alone = one(**lengths, **given), one(**lengths, **{holds: given[holds]})
    for key in ("ttft_s", "tpot_s", "output_tokens_per_s", "utilisation_ratio"):
        assert both[key] == alone[key], key
    assert both["assumptions"][-1] == (
        f"concurrency and request_rate_per_s are both given: the smaller load holds, {words}"
    )


def test_a_version_newer_than_any_known_has_wider_intervals():
    known, newer = run(H100 | {"engine_version": "0.33.0"}, H100 | {"engine_version": "7.1.0"})
    assert any("is newer than 0.33.0" in words for words in newer["assumptions"])

    def width(found):
        number = found["kv_cache_tokens"]
        return number["high"] - number["low"]

    assert width(newer) > width(known)


@pytest.mark.parametrize(
    ("less", "more"),
    [
        ({"memory_fraction": 0.8}, {"memory_fraction": 0.9}),
        ({"kv_cache_dtype": "bf16"}, {"kv_cache_dtype": "fp8"}),
        ({"quantization": "bf16"}, {"quantization": "fp8"}),
        ({"quantization": "fp8"}, {"quantization": "awq"}),
        ({"tensor_parallel": 1, "gpus": 1}, {"tensor_parallel": 2, "gpus": 2}),
        ({"gpu": "h100-sxm"}, {"gpu": "h200-sxm"}),
    ],
)
def test_tokens_of_cache_grow_with_room(less, more):
    assert value(one(**less), "kv_cache_tokens") < value(one(**more), "kv_cache_tokens")


@pytest.mark.parametrize(
    ("faster", "slower"),
    [
        ({"concurrency": 4}, {"concurrency": 32}),
        ({"gpu": "h100-sxm"}, {"gpu": "l40s"}),
        ({"input_tokens": 500}, {"input_tokens": 4000}),
    ],
)
def test_tokens_come_slower_with_more_load_and_on_slower_devices(faster, slower):
    quick, slow = one(**LOAD | faster), one(**LOAD | slower)
    assert value(quick, "tpot_s") < value(slow, "tpot_s")
    assert value(quick, "ttft_s") < value(slow, "ttft_s")


def test_more_requests_at_once_give_more_tokens_together():
    alone, crowd = one(**LOAD | {"concurrency": 1}), one(**LOAD | {"concurrency": 32})
    assert 2 * value(alone, "output_tokens_per_s") < value(crowd, "output_tokens_per_s")


def test_less_known_is_a_wider_interval():
    def width(found, key):
        return (found[key]["high"] - found[key]["low"]) / found[key]["value"]

    known = one(**LOAD)
    vague = one(**LOAD | {"engine_version": None, "memory_fraction": None, "max_model_len": None})
    assert width(known, "kv_cache_tokens") <= width(vague, "kv_cache_tokens")
    rounded = 1 + 1e-4  # three numbers of six digits; the widths are equal
    assert width(known, "tpot_s") <= rounded * width(vague, "tpot_s")


def test_an_unknown_number_of_devices_widens_speed():
    load = {
        "model": "meta-llama/Llama-3.3-70B-Instruct",
        "gpu": "h100-sxm",
        "engine": "vllm",
    } | LOAD
    guessed, known = run(load, load | {"gpus": 8, "tensor_parallel": 8})
    assert "the weights need" in guessed["assumptions"][-1]
    for key in ("tpot_s", "output_tokens_per_s"):
        assert value(guessed, key) == value(known, key)
        assert guessed[key]["low"] < known[key]["low"]
        assert guessed[key]["high"] > known[key]["high"]
        assert guessed[key]["origin"] == "assumed"


class _BrokenShell(LocalShell):
    """An edge that fails in a way nobody foresaw."""

    def read_from(self, path, *, offset_bytes, limit_bytes=None):
        raise ValueError("a surprise")


def test_a_bug_costs_one_line_and_says_where_it_lies():
    lines = [json.dumps({"model": "nobody/Nothing"}), json.dumps(H100)]
    models = Models(store="/nowhere", shell=_BrokenShell())
    first, second = (json.loads(text) for text in answers(lines, place="c", models=models))
    assert first["error"]["what"].startswith("a bug of llmdeploy: ValueError: a surprise in read_")
    assert "nobody/Nothing" in first["error"]["fix"]
    assert "error" not in second


def test_a_line_nested_too_deep_costs_that_line_alone():
    deep = json.dumps({"model_config": "x"}).replace('"x"', "[" * 100_000)
    first, second, third, last = run("[" * 100_000, deep, LLAMA | {"gpu": {"a": {}}}, H100)
    assert "cannot be read as JSON" in first["error"]["what"]
    assert "cannot be read as JSON" in second["error"]["what"]
    assert third["error"]["fix"]
    assert "error" not in last


def test_a_config_of_endless_layers_costs_that_line_alone():
    first, last = run(H100 | {"model_config": LLAMA_8B | {"num_hidden_layers": 10**9}}, H100)
    assert "num_hidden_layers: found 1000000000, needed at most 10000" in first["error"]["what"]
    assert "error" not in last


def test_names_as_long_as_megabytes_give_short_errors():
    long = "x" * 5_000_000
    for found in run({"model": long}, H100 | {"gpu": long}, H100 | {"model": long, "engine": long}):
        assert len(json.dumps(found)) < 20_000


def test_speed_holds_for_one_host_and_for_two_where_sixteen_devices_name_none():
    sixteen = {"gpus": 16, "tensor_parallel": 8, "data_parallel": 2, **LOAD}
    unsaid, one_host, two = (
        one(**sixteen, **more) for more in ({"interconnect": "NVLink"}, {"hosts": 1}, {"hosts": 2})
    )
    assert value(unsaid, "tpot_s") == value(one_host, "tpot_s")
    for key in ("ttft_s", "tpot_s", "output_tokens_per_s"):
        assert unsaid[key]["low"] == min(one_host[key]["low"], two[key]["low"])
        assert unsaid[key]["high"] == max(one_host[key]["high"], two[key]["high"])
        assert unsaid[key]["origin"] == "assumed"
    networked = one(**sixteen, interconnect="infiniband-400g")
    assert "2 with 8 devices each" in " ".join(networked["assumptions"])

"""What a case line may say, and what each wrong value is told."""

import json

import pytest

from llmdeploy.errors import InputError
from llmdeploy.estimate import parse
from llmdeploy.estimate.parse import case_line
from llmdeploy.estimate.parse_options import from_options
from llmdeploy.estimate.parse_words import dtype, format_word, kv_dtype

KEYS = (
    "model", "model_config", "quantization", "engine", "engine_version", "gpu",
    "gpu_memory_bytes", "gpus", "hosts", "interconnect", "tensor_parallel", "pipeline_parallel",
    "data_parallel", "expert_parallel", "memory_fraction", "max_model_len", "kv_cache_dtype",
    "dtype", "max_num_seqs", "max_num_batched_tokens", "enforce_eager", "speculative_tokens",
    "input_tokens", "output_tokens", "concurrency", "request_rate_per_s",
)  # fmt: skip


def line(**keys):
    return case_line(json.dumps({"model": "Qwen/Qwen3-8B", **keys}), place="cases.jsonl:7")


def refused(wrong):
    text = wrong if isinstance(wrong, str) else json.dumps({"model": "x", **wrong})
    with pytest.raises(InputError) as error:
        case_line(text, place="cases.jsonl:7")
    return str(error.value), error.value.fix


def test_the_keys_are_those_that_are_documented():
    assert parse.KEYS == KEYS


def test_null_is_the_same_as_a_missing_key():
    assert line(**dict.fromkeys(KEYS[2:])) == line()


def test_counts_may_be_written_as_whole_floats_and_bytes_as_any():
    found = line(gpus=8.0, gpu_memory_bytes=79.19 * 2**30, max_model_len=32768.0)
    assert (found.gpus, found.max_model_len) == (8, 32768)
    assert found.gpu_memory_bytes == round(79.19 * 2**30)


def test_an_unknown_key_is_told_the_near_one():
    what, fix = refused({"tensor_paralel": 2})
    assert what == "cases.jsonl:7: tensor_paralel: unknown key 'tensor_paralel' with value 2"
    assert fix == "rename it to tensor_parallel"


@pytest.mark.parametrize(
    ("keys", "key", "found"),
    [
        ({"request_rate_per_s": -3}, "request_rate_per_s", "-3"),
        ({"concurrency": 0}, "concurrency", "0"),
        ({"input_tokens": -1}, "input_tokens", "-1"),
        ({"tensor_parallel": 0}, "tensor_parallel", "0"),
        ({"gpus": 2.5}, "gpus", "2.5"),
        ({"gpu_memory_bytes": 80}, "gpu_memory_bytes", "80"),
        ({"gpu_memory_bytes": 10**19}, "gpu_memory_bytes", "10000000000000000000"),
        ({"gpus": 10**13}, "gpus", "10000000000000"),
        ({"concurrency": 1e300}, "concurrency", "1e+300"),
        ({"gpu_memory_bytes": "80GiB"}, "gpu_memory_bytes", '"80GiB"'),
        ({"memory_fraction": 90}, "memory_fraction", "90"),
        ({"enforce_eager": "yes"}, "enforce_eager", '"yes"'),
    ],
)
def test_a_wrong_value_is_named_with_its_key_and_what_was_needed(keys, key, found):
    what, fix = refused(keys)
    assert what.startswith(f"cases.jsonl:7: {key}: found {found}, needed ")
    assert f"change {key}" in fix


def test_an_empty_name_is_not_a_missing_one():
    what, _ = refused({"gpu": " "})
    assert what == 'cases.jsonl:7: gpu: found " ", needed a name, or the key left out'


@pytest.mark.parametrize("text", ["", "{", "model: x", "{'model': 'x'}"])
def test_what_is_no_json_is_shown(text):
    what, fix = refused(text)
    assert "cannot be read as JSON" in what
    assert "one JSON object on one line" in fix


@pytest.mark.parametrize("text", ["[]", "3", "null", '"Qwen/Qwen3-8B"'])
def test_json_that_is_no_object_is_refused(text):
    assert "needed an object of keys to values" in refused(text)[0]


def test_a_line_needs_a_model():
    what, fix = refused('{"gpu": "rtx4090"}')
    assert what == "cases.jsonl:7: model: is missing, needed a model's name or a model_config"
    assert '"model": ' in fix


def test_an_infinite_number_is_refused():
    assert "input_tokens" in refused('{"model": "x", "input_tokens": Infinity}')[0]
    assert "gpu_memory_bytes" in refused('{"model": "x", "gpu_memory_bytes": Infinity}')[0]


def options_refused(**options):
    with pytest.raises(InputError) as error:
        from_options({"model": "Qwen/Qwen3-8B", **options})
    return str(error.value), error.value.fix


def test_options_carry_their_units():
    found = from_options(
        {
            "model": "x", "gpu_memory_bytes": "80GiB", "request_rate_per_s": "86400/day",
            "memory_fraction": "85%", "engine": None,
        }
    )  # fmt: skip
    assert found.gpu_memory_bytes == 80 * 2**30
    assert (found.request_rate_per_s, found.memory_ratio) == (1.0, 0.85)


def test_a_memory_fraction_may_be_written_as_engines_do():
    assert from_options({"model": "x", "memory_fraction": "0.9"}).memory_ratio == 0.9


def test_memory_without_a_unit_is_refused_with_both_units():
    what, fix = options_refused(gpu_memory_bytes="80")
    assert what.startswith("the command line: --gpu-memory: found '80', needed a number with its")
    assert "80GiB" in fix
    assert "80GB" in fix


def test_a_negative_rate_is_refused():
    what, fix = options_refused(request_rate_per_s="-20/s")
    assert what.startswith("the command line: --request-rate: found '-20/s', needed a rate like")
    assert "--request-rate 20/s" in fix


def test_a_zero_rate_is_refused():
    what, fix = options_refused(request_rate_per_s="0/s")
    assert what.startswith("the command line: --request-rate: found 0.0, needed greater than 0")
    assert "--request-rate" in fix


def test_a_wrong_share_is_refused():
    assert "needed a share like 90% or 0.9" in options_refused(memory_fraction="much")[0]
    assert "--memory-fraction: found 90.0" in options_refused(memory_fraction="90")[0]


def test_an_option_error_names_the_option_not_the_key():
    what, fix = options_refused(tensor_parallel=0)
    assert what.startswith("the command line: --tensor-parallel: found 0, needed greater than")
    assert fix == "change --tensor-parallel to 1 or more"


def test_options_without_a_model_are_told_both_ways():
    with pytest.raises(InputError, match="--model: is missing") as error:
        from_options({"gpu": "rtx4090"})
    assert "--model ORGANISATION/NAME" in error.value.fix


@pytest.mark.parametrize(
    ("word", "meant"),
    [("bfloat16", "bf16"), ("torch.float16", "fp16"), ("half", "fp16"), ("BF16", "bf16"),
     ("auto", None), (None, None), ("None", None)],
)  # fmt: skip
def test_dtypes_in_any_spelling(word, meant):
    assert dtype(word, place="x") == meant


@pytest.mark.parametrize(
    ("word", "meant"),
    [("fp8_e4m3", "fp8"), ("FP8", "fp8"), ("fp8-e5m2", "fp8"), ("auto", None), ("int8", "int8"),
     ("bfloat16", "bf16"), ("q4_0", "int4"), ("fp4_e2m1", "nvfp4"),
     ("int4_per_token_head", "int4"), ("turboquant_k8v4", "turboquant_k8v4")],
)  # fmt: skip
def test_kv_dtypes_in_any_spelling(word, meant):
    assert kv_dtype(word, place="x") == meant


def test_an_unknown_kv_dtype_is_told_near_ones():
    with pytest.raises(InputError, match="found 'fp9'") as error:
        kv_dtype("fp9", place="cases.jsonl:7: kv_cache_dtype")
    assert "fp8" in error.value.fix


@pytest.mark.parametrize(
    ("word", "meant"),
    [("Q4_K - Medium", "q4_k_m"), ("IQ3_XXS - 3.0625 bpw", "iq3_xxs"), ("FP8", "fp8"),
     ("IQ3_S mix - 3.66 bpw", "iq3_s"), ("Q8_0", "q8_0"), ("modelslim", "modelslim")],
)  # fmt: skip
def test_weight_formats_as_logs_print_them(word, meant):
    assert format_word(word) == meant


def test_numbers_and_texts_that_yaml_reads_otherwise_are_named_as_they_are():
    assert "concurrency: found 1e+300, needed less than" in refused({"concurrency": 1e300})[0]
    what, _ = refused('{"model": "x", "gpu": "\\ud800"}')
    assert "cannot be read as JSON: Invalid JSON: unexpected end of hex escape" in what


def test_a_long_wrong_value_is_repeated_in_part():
    assert len(refused({"model": ["x" * 10_000_000]})[0]) < 400

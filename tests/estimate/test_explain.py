"""Every formula's sum, computed as it stands, gives its value; the documents' three come first."""

import math
import re

import pytest

from llmdeploy.catalog import devices
from llmdeploy.estimate.explain import formula_trees, formulas
from llmdeploy.model import weight_format

from .configs import LLAMA_8B, LLAMA_8B_PARAMETERS
from .results import GIB, case, memory, number, result, speed, without_device

MIXTRAL = LLAMA_8B | {
    "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_local_experts": 8,
    "num_experts_per_tok": 2, "vocab_size": 32000, "max_position_embeddings": 32768,
}  # fmt: skip
CASES = {
    "one device": result(),
    "two stages of four": result(
        case=case(tensor_parallel=4, pipeline_parallel=2),
        memory=memory(kv_bytes_per_token=number(131_072 / 8, spread=0)),
    ),
    "experts": result(case=case(MIXTRAL)),
    "4 bit": result(case=case(weight_format=weight_format("awq"))),
    "fp8 cache": result(
        case=case(kv_cache_dtype="fp8"), memory=memory(kv_bytes_per_token=number(65_536, spread=0))
    ),
    "padded pages": result(memory=memory(kv_bytes_per_token=number(148_000, spread=0))),
    "lengths unknown": result(case=case(input_tokens=None, output_tokens=None)),
    "no room": result(case=case(device_memory_bytes=12 * GIB)),
    "no device": without_device(),
    "open loop": result(speed=speed(output_tokens_per_s=number(100.0))),
    "catalog memory": result(case=case(device_memory_bytes=None, device=devices.find("l40s"))),
}
NAMES = ("floor", "ceil")


def by_name(found):
    return {formula.name: formula for formula in found}


@pytest.mark.parametrize("name", CASES)
def test_every_written_sum_gives_its_value(name):
    computed = 0
    for formula in formulas(CASES[name]):
        if not formula.sum:
            continue
        assert re.fullmatch(r"(?:floor|ceil|e\+|[\d.()+\-/*x\s])+", formula.sum), formula.sum
        known = {name: getattr(math, name) for name in NAMES}
        found = eval(formula.sum.replace("x", "*"), known)
        assert found == pytest.approx(formula.value, rel=2e-3), formula.text
        computed += 1
    assert computed >= 3


def test_layers_that_only_speculate_are_named_as_not_counted():
    drafted = LLAMA_8B | {"num_nextn_predict_layers": 1}
    found = by_name(formulas(result(case=case(drafted))))["draft_parameters"]
    layer = 4096 * (2 * 4096 + 2 * 1024) + 3 * 4096 * 14336
    assert found.value == layer + 2 * 4096 * 4096 + 5 * 4096
    assert "not counted" in found.text
    assert "draft_parameters" not in by_name(formulas(result()))


@pytest.mark.parametrize("name", CASES)
def test_every_formula_says_unit_and_source_once(name):
    found = formulas(CASES[name])
    assert len(by_name(found)) == len(found)
    units = {"bytes", "parameters", "requests", "tokens", "s", "tokens/s", "ratio"}
    assert {formula.unit for formula in found} <= units
    assert all(formula.source for formula in found)


def test_the_documents_three_formulas_come_first():
    first, second, third = formulas(result())[:3]
    assert first.text == (
        f"weights = parameters x bytes per weight: {LLAMA_8B_PARAMETERS} x 2 = 16060522496 bytes"
    )
    # 85,899,345,920 - 16,060,522,496 - (2,147,483,648 + 214,748,364) = 67,476,591,412
    assert second.text == (
        "KV budget = memory of one device - weights / devices - overhead:"
        " 85899345920 - 16060522496 / 1 - 2362232012 = 67476591412 bytes"
    )
    # 67,476,591,412 / (1200 x 131,072) = 429.0
    assert third.text == (
        "largest batch = KV budget / (tokens of a request x KV bytes per token):"
        " floor(67476591412 / ((1000 + 200) x 131072)) = 429 requests"
    )
    assert first.source == second.source == third.source


def test_without_lengths_a_request_is_as_long_as_allowed():
    third = by_name(formulas(CASES["lengths unknown"]))["max_batch_estimate"]
    assert third.value == 67_476_591_412 // (8192 * 131_072)


def test_a_negative_budget_holds_no_request():
    found = by_name(formulas(CASES["no room"]))["max_batch_estimate"]
    assert found.value == 0
    assert "there is no KV budget" in found.text


def test_four_bits_are_half_a_byte():
    first = formulas(CASES["4 bit"])[0]
    assert first.value == LLAMA_8B_PARAMETERS / 2


def test_kv_per_token_is_the_sum_or_both_where_the_engine_pads():
    plain = by_name(formulas(result()))
    assert plain["kv_bytes_per_token"].sum == "32 x 8 x 2 x 128 x 2"
    padded = by_name(formulas(CASES["padded pages"]))
    assert padded["kv_bytes_per_token_textbook"].value == 131_072
    assert padded["kv_bytes_per_token"].value == 148_000


def test_a_closed_loops_output_is_a_sum_and_another_is_not():
    assert by_name(formulas(result()))["output_tokens_per_s"].sum
    assert not by_name(formulas(CASES["open loop"]))["output_tokens_per_s"].sum


def test_the_floor_reads_only_the_experts_that_somebody_visits():
    dense = by_name(formulas(result()))["tpot_floor_s"]
    sparse = by_name(
        formulas(result(case=case(MIXTRAL, concurrency=1), speed=speed(concurrency=1)))
    )
    many = by_name(formulas(result(case=case(MIXTRAL), speed=speed(concurrency=64))))
    assert sparse["tpot_floor_s"].value < many["tpot_floor_s"].value
    assert dense.value == pytest.approx((16_060_522_496 + 8 * 1100 * 131_072) / 3.35e12, rel=0.02)


def test_without_a_device_there_is_no_speed_and_no_budget():
    names = set(by_name(formulas(without_device())))
    assert {"weights_estimate", "kv_bytes_per_token"} <= names
    assert not names & {"kv_budget_estimate", "tpot_s", "kv_cache_bytes"}


def test_formulas_are_written_in_order_with_their_numbers():
    trees = formula_trees(formulas(result()))
    assert trees[0]["name"] == "weights_estimate"
    assert set(trees[0]) == {"name", "formula", "value", "unit", "source"}

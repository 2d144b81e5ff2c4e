"""config.json to a model's shape."""

import json
import re

import pytest

from llmdeploy.errors import InputError
from llmdeploy.store.shape import KNOWN, parse_shape, quantization, unfit

from .tiny_model import CONFIG


def shape(**changes):
    config = {key: value for key, value in (CONFIG | changes).items() if value != "left out"}
    return parse_shape(json.dumps(config), dtype="bfloat16", place="m/config.json")


def test_smollm2_has_the_shape_its_config_states():
    found = shape(
        hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, head_dim=64, vocab_size=49152, max_position_embeddings=8192,
    )  # fmt: skip
    assert (found.layers, found.attention_heads, found.kv_heads, found.head_dim) == (30, 9, 3, 64)
    assert (found.vocabulary_size, found.max_positions) == (49152, 8192)
    assert found.tied_embeddings


def test_heads_that_are_left_out_follow_llamas_rule():
    found = shape(num_key_value_heads="left out")
    assert (found.kv_heads, found.head_dim) == (4, 2)


@pytest.mark.parametrize("architecture", KNOWN)
def test_tying_that_is_left_out_is_what_the_architecture_means(architecture):
    found = shape(architectures=[architecture], tie_word_embeddings="left out")
    assert found.tied_embeddings is (architecture == "SmolLM3ForCausalLM")


def test_an_architecture_of_other_engines_has_a_shape_and_a_reason_why_not_here():
    changed = {"architectures": ["PhiForCausalLM"], "model_type": "phi"}
    assert shape(**changed).architecture == "PhiForCausalLM"
    assert re.search(r"found PhiForCausalLM, needed one of .*Llama.*Qwen3", unfit(CONFIG | changed))


def test_a_quantised_checkpoint_names_its_method_and_is_for_other_engines():
    packed = CONFIG | {"quantization_config": {"quant_method": "gptq", "bits": 4}}
    assert quantization(packed) == "gptq"
    assert "found a gptq checkpoint" in unfit(packed)
    assert unfit(CONFIG) is None
    assert quantization(CONFIG) is None


@pytest.mark.parametrize("value", [0, -1, "many", None, True, 2.5])
def test_a_count_that_is_none_is_refused_by_its_key(value):
    with pytest.raises(InputError, match=r"m/config\.json: num_hidden_layers: found"):
        shape(num_hidden_layers=value)


@pytest.mark.parametrize("text", ["", "{", "[1]"])
def test_what_is_no_config_is_refused(text):
    with pytest.raises(InputError, match=r"m/config\.json"):
        parse_shape(text, dtype="bfloat16", place="m/config.json")

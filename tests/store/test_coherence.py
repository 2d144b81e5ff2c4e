"""Headers against config.json, and what the tensors add up to."""

import json

import pytest

from llmdeploy.errors import InputError
from llmdeploy.store.coherence import check, count, stored_dtype
from llmdeploy.store.safetensors import Tensor
from llmdeploy.store.shape import parse_shape

from .tiny_model import CONFIG, tensor_shapes


def tensors(changes=None, dtype="BF16", **kwargs):
    shapes = tensor_shapes(**kwargs) | (changes or {})
    return tuple(
        Tensor(name=name, dtype=dtype, shape=sides, data_bytes=2) for name, sides in shapes.items()
    )


def shape(**changes):
    return parse_shape(json.dumps(CONFIG | changes), dtype="bfloat16", place="m")


def test_parameters_are_counted_by_what_quantisation_does_to_them():
    found = count(tensors())
    # a layer: q 8x8 + k 4x8 + v 4x8 + o 8x8 + gate, up 16x8 each + down 8x16 = 576; norm 8
    assert found.matrix == 2 * 576
    assert found.embedding == 32 * 8
    assert found.total == 2 * (576 + 8) + 32 * 8 + 8


def test_a_coherent_model_passes():
    assert check(shape(), tensors(), place="m") is None


@pytest.mark.parametrize(
    ("changed", "key", "words"),
    [
        ({"num_hidden_layers": 3}, "num_hidden_layers", "states 3, found layers 0 to 1"),
        ({"hidden_size": 16}, "hidden_size", "states 32 x 16 for model.embed_tokens.weight"),
        ({"vocab_size": 64}, "hidden_size", "states 64 x 8"),
        ({"num_key_value_heads": 4}, "num_key_value_heads", "found 4 x 8"),
        ({"intermediate_size": 32}, "intermediate_size", "states 32 x 8"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings", "no lm_head.weight"),
    ],
)
def test_a_config_that_differs_from_the_weights_is_refused_by_its_key(changed, key, words):
    with pytest.raises(InputError, match=key) as error:
        check(shape(**changed), tensors(), place="m")
    assert words in str(error.value)


def test_a_layer_missing_in_the_middle_is_named():
    there = tuple(t for t in tensors(layers=4) if ".layers.2." not in t.name)
    with pytest.raises(InputError, match="layers 0 to 3 without 2"):
        check(shape(num_hidden_layers=4), there, place="m")


def test_the_type_of_most_bytes_is_the_checkpoints():
    assert stored_dtype(tensors(), place="m") == "bfloat16"


@pytest.mark.parametrize("dtype", ["I8", "F8_E4M3"])
def test_packed_weights_are_refused(dtype):
    with pytest.raises(InputError, match=f"found {dtype}, needed one of BF16, F16, F32"):
        stored_dtype(tensors(dtype=dtype), place="m")

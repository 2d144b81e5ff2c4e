"""Whether a model's parts fit together: headers against config.json, and what they add up to."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from llmdeploy.errors import InputError
from llmdeploy.model import ModelShape
from llmdeploy.store.safetensors import Tensor
from llmdeploy.store.shape import Dtype

STORED: dict[str, Dtype] = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}
LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
VOCABULARY = ("embed_tokens.weight", "lm_head.weight")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """How many numbers a model has, and which of them quantisation shrinks."""

    total: int
    embedding: int
    matrix: int
    data_bytes: int


def count(tensors: Sequence[Tensor]) -> Parameters:
    """Parameters and data bytes of all tensors; a layer's matrix is what has two dimensions."""
    vocabulary = [t for t in tensors if t.name.endswith(VOCABULARY)]
    matrices = [t for t in tensors if LAYER.search(t.name) and len(t.shape) == 2]
    return Parameters(
        total=sum(t.elements for t in tensors),
        embedding=sum(t.elements for t in vocabulary),
        matrix=sum(t.elements for t in matrices),
        data_bytes=sum(t.data_bytes for t in tensors),
    )


def stored_dtype(tensors: Sequence[Tensor], *, place: str) -> Dtype:
    """The type most of the weights' bytes are in; InputError for packed or 8-bit weights that
    config.json does not tell of."""
    size = Counter[str]()
    for tensor in tensors:
        size[tensor.dtype] += tensor.data_bytes
    found = size.most_common(1)[0][0] if size else "no tensor"
    if found not in STORED:
        raise InputError(
            f"{place}: weights: found {found}, needed one of {', '.join(STORED)}",
            fix="copy config.json again: its quantization_config says how to read such weights",
        )
    return STORED[found]


def check(shape: ModelShape, tensors: Sequence[Tensor], *, place: str) -> None:
    """InputError naming key and both values where config.json and the weights differ."""
    found_layers = {int(m[1]) for t in tensors if (m := LAYER.search(t.name))}
    if found_layers != set(range(shape.layers)):
        raise _differs(
            place, "num_hidden_layers", shape.layers, f"layers {_ranges(found_layers)} in the files"
        )
    for tensor in tensors:
        key, needed = _stated(tensor, shape)
        if needed and tensor.shape != needed:
            raise _differs(place, key, f"{_by(needed)} for {tensor.name}", _by(tensor.shape))
    names = {t.name for t in tensors}
    if not any(name.endswith("embed_tokens.weight") for name in names):
        raise _differs(place, "vocab_size", shape.vocabulary_size, "no embed_tokens.weight")
    if not shape.tied_embeddings and not any(n.endswith("lm_head.weight") for n in names):
        raise _differs(place, "tie_word_embeddings", "false", "no lm_head.weight")


def check_layers(shape: ModelShape, tensors: Sequence[Tensor], *, place: str) -> None:
    """InputError where a layer of config.json has no tensor: a shard or a part is missing.

    For architectures whose other tensors are not known here; more layers (drafts) are fine, and
    names without layers say nothing.
    """
    found = {int(m[1]) for t in tensors if (m := LAYER.search(t.name))}
    if found and set(range(shape.layers)) - found:
        found_words = f"layers {_ranges(found)} in the files"
        raise _differs(place, "num_hidden_layers", shape.layers, found_words)


def _stated(tensor: Tensor, shape: ModelShape) -> tuple[str, tuple[int, ...] | None]:
    query = shape.attention_heads * shape.head_dim
    key_value = shape.kv_heads * shape.head_dim
    stated = {
        VOCABULARY: ("hidden_size", (shape.vocabulary_size, shape.hidden_size)),
        ("q_proj.weight",): ("num_attention_heads", (query, shape.hidden_size)),
        ("k_proj.weight", "v_proj.weight"): (
            "num_key_value_heads",
            (key_value, shape.hidden_size),
        ),
        ("up_proj.weight",): ("intermediate_size", (shape.intermediate_size, shape.hidden_size)),
        ("down_proj.weight",): ("intermediate_size", (shape.hidden_size, shape.intermediate_size)),
    }
    for endings, (key, needed) in stated.items():
        if tensor.name.endswith(endings):
            return key, needed
    return "", None


def _differs(place: str, key: str, stated: object, found: object) -> InputError:
    return InputError(
        f"{place}: {key}: config.json states {stated}, found {found}",
        fix="copy config.json and the safetensors files again, both from the same model",
    )


def _by(shape: Iterable[int]) -> str:
    return " x ".join(str(size) for size in shape)


def _ranges(layers: set[int]) -> str:
    if not layers:
        return "none"
    gaps = sorted(set(range(max(layers) + 1)) - layers)
    missing = f" without {', '.join(str(gap) for gap in gaps[:4])}" if gaps else ""
    return f"0 to {max(layers)}{missing}"

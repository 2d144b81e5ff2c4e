"""The model's shape, read from the config.json beside its weights."""

import json
from typing import Any, Literal, get_args

from llmdeploy.errors import InputError
from llmdeploy.model import ModelShape, from_config

Dtype = Literal["bfloat16", "float16", "float32"]
KNOWN = (
    "GraniteForCausalLM", "LlamaForCausalLM", "MistralForCausalLM", "Olmo2ForCausalLM",
    "Qwen2ForCausalLM", "Qwen3ForCausalLM", "SmolLM3ForCausalLM",
)  # fmt: skip
"""Architectures that share llama's keys and tensor names: what the embedded engine runs."""


def parse_shape(text: str, *, dtype: Dtype | None, place: str) -> ModelShape:
    """The shape that a config.json states; InputError with key, found and needed.

    `dtype` is that of the weights themselves: config.json often states another one. None: they
    are packed, and config.json says what they are computed in.
    """
    config = read_config(text, place)
    if unfit(config) is None:
        _check_positions(config, place)
    held = {} if dtype is None else {"dtype": dtype, "torch_dtype": dtype}
    return from_config({**config, **held}, place=place)


def read_config(text: str, place: str) -> dict[str, Any]:
    """The settings in a config.json; InputError where it holds none."""
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{place}: cannot be read as JSON: {error}",
            fix=f"copy {place} again from where the model was published",
        ) from error
    if not isinstance(config, dict):
        raise InputError(
            f"{place}: found {type(config).__name__}, needed an object of settings",
            fix=f"copy {place} again from where the model was published",
        )
    return config


def unfit(config: dict[str, Any]) -> str | None:
    """Why the embedded engine cannot serve such a model, in words; None where it can."""
    method = quantization(config)
    if method is not None:
        plain = ", ".join(get_args(Dtype))
        return f"found a {method} checkpoint, needed plain weights in {plain}"
    named = config.get("architectures") or ["nothing"]
    if named[0] not in KNOWN:
        return f"architectures: found {named[0]}, needed one of {', '.join(KNOWN)}"
    return None


def quantization(config: dict[str, Any]) -> str | None:
    """The checkpoint's own quantisation, None where its weights are plain."""
    stated = config.get("quantization_config") or config.get("compression_config")
    if not isinstance(stated, dict):
        return None
    return str(stated.get("quant_method", "unnamed"))


def _check_positions(config: dict[str, Any], place: str) -> None:
    """The engine refuses requests by this length, so it takes no other engine's default."""
    value = config.get("max_position_embeddings")
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        found = "nothing" if value is None else json.dumps(value)
        raise InputError(
            f"{place}: max_position_embeddings: found {found}, needed a whole number of at least 1",
            fix=f"copy {place} again from where the model was published",
        )

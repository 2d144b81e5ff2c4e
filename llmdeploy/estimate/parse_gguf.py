"""The config of a GGUF file: its header's metadata in the words of a config.json."""

import struct
from dataclasses import dataclass
from typing import Any

from llmdeploy.edge import Shell
from llmdeploy.errors import InputError

MAGIC = b"GGUF"
HEADER_BYTES = 64 * 2**20
"""Longest metadata that is read; a vocabulary of 256 Ki words takes about 8 MiB."""
_SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q",
    12: "<d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9
FILE_TYPES = {
    0: "f32", 1: "f16", 2: "q4_0", 3: "q4_1", 7: "q8_0", 8: "q5_0", 9: "q5_1", 10: "q2_k",
    11: "q3_k_s", 12: "q3_k_m", 13: "q3_k_l", 14: "q4_k_s", 15: "q4_k_m", 16: "q5_k_s",
    17: "q5_k_m", 18: "q6_k", 19: "iq2_xxs", 20: "iq2_xs", 21: "q2_k_s", 22: "iq3_xs",
    23: "iq3_xxs", 24: "iq1_s", 25: "iq4_nl", 26: "iq3_s", 27: "iq3_m", 28: "iq2_s", 29: "iq2_m",
    30: "iq4_xs", 31: "iq1_m", 32: "bf16",
}  # fmt: skip
"""Source: llama.cpp b6000 `enum llama_ftype`; the layout of the header: ggml docs/gguf.md, v3."""
ARCHITECTURES = {
    "llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM",
    "qwen2moe": "Qwen2MoeForCausalLM", "qwen3moe": "Qwen3MoeForCausalLM",
    "gemma2": "Gemma2ForCausalLM", "gemma3": "Gemma3ForCausalLM", "phi3": "Phi3ForCausalLM",
    "mixtral": "MixtralForCausalLM", "granite": "GraniteForCausalLM",
}  # fmt: skip
_KEYS = {
    "num_hidden_layers": "block_count", "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length", "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv", "head_dim": "attention.key_length",
    "max_position_embeddings": "context_length", "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count", "moe_intermediate_size":
    "expert_feed_forward_length", "sliding_window": "attention.sliding_window",
}  # fmt: skip
_NEEDED = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads")


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufModel:
    """What a GGUF file says about the model in it."""

    config: dict[str, Any]
    quantization: str | None
    """Such as q4_k_m; None where the file does not say."""


def gguf(path: str, *, shell: Shell) -> GgufModel:
    """The model of a GGUF file; InputError where its header is no GGUF or lacks metadata."""
    header = shell.read_from(path, offset_bytes=0, limit_bytes=HEADER_BYTES)
    if header[:4] != MAGIC:
        found = repr(header[:4]) if header else "no file, or an empty one"
        raise InputError(
            f"{path}: found {found}, needed a file that starts with {MAGIC!r}",
            fix="fetch the file again, or give the model's config.json",
        )
    try:
        values, tensors = _metadata(header)
    except (struct.error, IndexError, KeyError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(
            f"{path}: its header ends or breaks within the metadata: {error}",
            fix="fetch the file again, or give the model's config.json",
        ) from error
    return GgufModel(
        config=_config(values, tensors, path),
        quantization=FILE_TYPES.get(values.get("general.file_type", -1)),
    )


def _config(values: dict[str, Any], tensors: set[str], path: str) -> dict[str, Any]:
    architecture = values.get("general.architecture")
    if architecture is None:
        raise _missing(path, "general.architecture")
    if architecture not in ARCHITECTURES:
        raise InputError(
            f"{path}: general.architecture: found {architecture},"
            f" needed one of {', '.join(ARCHITECTURES)}",
            fix="give the config.json of the model that the file was made from",
        )
    experts = bool(values.get(f"{architecture}.expert_count"))
    named = "mixtral" if architecture == "llama" and experts else architecture
    config: dict[str, Any] = {"architectures": [ARCHITECTURES[named]]}
    config["model_type"] = named.replace("moe", "_moe")
    for key, gguf_key in _KEYS.items():
        value = values.get(f"{architecture}.{gguf_key}")
        if value is not None:
            config[key] = value
        elif key in _NEEDED:
            raise _missing(path, f"{architecture}.{gguf_key}")
    if named == "mixtral":
        config["num_local_experts"] = config.pop("num_experts")
    words = values.get("tokenizer.ggml.tokens", values.get(f"{architecture}.vocab_size"))
    if words is None:
        raise _missing(path, "tokenizer.ggml.tokens")
    config["vocab_size"] = words
    config["tie_word_embeddings"] = bool(tensors) and "output.weight" not in tensors
    config["torch_dtype"] = "float16"  # what llama.cpp computes and caches in
    return config


def _missing(path: str, key: str) -> InputError:
    return InputError(
        f"{path}: {key}: is missing from the file's metadata, needed a value",
        fix="convert the model again with llama.cpp's convert_hf_to_gguf.py, or give its"
        " config.json instead of the GGUF file",
    )


def _metadata(header: bytes) -> tuple[dict[str, Any], set[str]]:
    """Keys and values, an array as its length; and the names of the tensors."""
    tensor_count, key_count = struct.unpack_from("<QQ", header, 8)
    values: dict[str, Any] = {}
    at = 24
    for _ in range(key_count):
        key, at = _string(header, at)
        (kind,) = struct.unpack_from("<I", header, at)
        values[key], at = _value(header, at + 4, kind)
    names = set()
    for _ in range(tensor_count):
        name, at = _string(header, at)
        (dimensions,) = struct.unpack_from("<I", header, at)
        at += 4 + 8 * dimensions + 4 + 8
        names.add(name)
    return values, names


def _value(header: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind == _STRING:
        return _string(header, at)
    if kind != _ARRAY:
        (value,) = struct.unpack_from(_SCALARS[kind], header, at)
        return value, at + struct.calcsize(_SCALARS[kind])
    element, length = struct.unpack_from("<IQ", header, at)
    at += 12
    if element in _SCALARS:
        at += length * struct.calcsize(_SCALARS[element])
    else:
        for _ in range(length):
            _, at = _value(header, at, element)
    if at > len(header):
        raise IndexError(f"an array of {length} elements does not end")
    return length, at


def _string(header: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from("<Q", header, at)
    end = at + 8 + length
    if end > len(header):
        raise IndexError(f"a text of {length} bytes does not end")
    return header[at + 8 : end].decode(), end

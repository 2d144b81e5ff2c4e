"""Words of configs, logs and command lines for number formats, in our own spelling."""

import difflib

from llmdeploy.errors import InputError

DTYPES = {
    "bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16", "float16": "fp16", "half": "fp16",
    "f16": "fp16", "fp32": "fp32", "float32": "fp32", "float": "fp32", "f32": "fp32",
}  # fmt: skip
KV_DTYPES = DTYPES | {
    "fp8": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "float8_e4m3fn": "fp8",
    "float8_e4m3": "fp8", "float8_e5m2": "fp8", "fp8_inc": "fp8", "fp8_ds_mla": "fp8",
    "fp8_e4m3fn": "fp8", "fp8_e4m3fnuz": "fp8", "int8": "int8", "q8_0": "int8",
    "int4": "int4", "q4_0": "int4", "q4_1": "int4", "fp4": "nvfp4", "fp4_e2m1": "nvfp4",
    "nvfp4": "nvfp4", "nvfp4_4over6": "nvfp4", "nvfp4_ds_mla": "nvfp4",
    "int8_per_token_head": "int8", "fp8_per_token_head": "fp8", "int4_per_token_head": "int4",
    "turboquant_k8v4": "turboquant_k8v4", "turboquant_4bit_nc": "turboquant_4bit_nc",
    "turboquant_k3v4_nc": "turboquant_k3v4_nc", "turboquant_3bit_nc": "turboquant_3bit_nc",
}  # fmt: skip
"""Source: vLLM 0.11 and 0.32 `CacheDType`, SGLang 0.5 `--kv-cache-dtype`, TensorRT-LLM 1.0
`kv_cache_config.dtype`, llama.cpp `--cache-type-k`."""
UNSAID = {"auto", "default", "none", "null", "nan", "n/a", "not stated", "unknown", "model"}
"""Words that leave the choice to the engine or the checkpoint."""


SIZES = {"small": "s", "medium": "m", "large": "l"}


def format_word(word: str) -> str:
    """A weight format's name as people write it: llama.cpp prints `Q4_K - Medium` for q4_k_m and
    `IQ3_XXS - 3.0625 bpw` for iq3_xxs."""
    first, _, rest = word.strip().lower().partition(" - ")
    first = first.removesuffix(" mix")
    size = SIZES.get(rest.strip())
    return f"{first}_{size}" if size else first


def spelled(word: str) -> str:
    """The word without case, surrounding space, and the prefixes that Python adds."""
    return word.strip().lower().removeprefix("torch.").replace("-", "_")


def unsaid(word: str | None) -> bool:
    """Whether the word says nothing: missing, `auto`, `none`, …"""
    return word is None or word.strip().lower() in UNSAID


def dtype(word: str | None, *, place: str) -> str | None:
    """bf16, fp16 or fp32; None where the checkpoint's own is meant."""
    return _found(word, DTYPES, place=place)


def kv_dtype(word: str | None, *, place: str) -> str | None:
    """bf16, fp16, fp32, fp8, int8, int4, nvfp4 or a turboquant; None where the engine chooses."""
    return _found(word, KV_DTYPES, place=place)


def _found(word: str | None, known: dict[str, str], *, place: str) -> str | None:
    if word is None or unsaid(word):
        return None
    found = known.get(spelled(word))
    if found is not None:
        return found
    near = difflib.get_close_matches(spelled(word), known, n=3)
    raise InputError(
        f"{place}: found {word!r}, needed one of auto, {', '.join(known)}",
        fix=f"write {' or '.join(near)}" if near else "leave it out where the engine chooses",
    )

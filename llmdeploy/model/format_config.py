"""Weight formats that a config's `quantization_config` states, with what it leaves alone."""

import re
from collections.abc import Iterable
from typing import Any

from llmdeploy.model.formats import (
    ALL_BUT_EXPERTS,
    GROUP,
    KEPT,
    fp8,
    grouped,
    int8,
    mxfp4,
    named_format,
    nf4,
    nvfp4,
)
from llmdeploy.model.keys import Keys
from llmdeploy.model.shape import Part, PartBits, WeightFormat


def weight_format(name: str | dict[str, Any] | Keys) -> WeightFormat | None:
    """The format by the name that a config, a log or a person gives, or by a config's
    `quantization_config`; None: plain weights. InputError where the name is unknown."""
    if isinstance(name, Keys):
        return config_format(name)
    if isinstance(name, dict):
        inner = name if "quantization_config" in name else {"quantization_config": name}
        return config_format(Keys(inner, "quantization_config"))
    return named_format(name)


def config_format(keys: Keys) -> WeightFormat | None:
    """The format that a config's `quantization_config` (or `compression_config`) states."""
    stated = keys.section("quantization_config", "compression_config")
    if stated is None:
        return None
    method = stated.text("quant_method").lower().replace("-", "_")
    make = {
        "compressed_tensors": _compressed_tensors,
        "modelopt": _modelopt,
        "modelopt_fp4": _modelopt,
        "fp8": _fp8_config,
        "awq": _awq_or_gptq,
        "gptq": _awq_or_gptq,
        "auto_round": _awq_or_gptq,
        "gptq_marlin": _awq_or_gptq,
        "bitsandbytes": _bitsandbytes,
        "mxfp4": lambda s: mxfp4(),
        "quark": _quark,
        "torchao": _torchao,
        "hqq": _awq_or_gptq,
    }.get(method)
    if make is None and not method and stated.has("config_groups"):
        make = _compressed_tensors
    if make is None and not method and stated.has("quant_algo"):
        make = _modelopt
    found = make(stated) if make else named_format(method) if method else None
    if found is not None and keys.text("expert_dtype") == "fp4":  # DeepSeek V4
        experts = PartBits(part="routed_experts", bits=4 + 8 / 32)
        found = found.model_copy(update={"parts": (experts,)})
    kv = _kv_dtype(stated)
    return found.model_copy(update={"kv_cache_dtype": kv}) if found is not None and kv else found


def _fp8_config(stated: Keys) -> WeightFormat:
    kept = _kept(stated.items("modules_to_not_convert") + stated.items("ignored_layers"))
    block = stated.items("weight_block_size")
    return fp8(block=int(block[0]) if block else 0, kept=kept)


def _awq_or_gptq(stated: Keys) -> WeightFormat:
    method = "awq" if "awq" in stated.text("quant_method") else "gptq"
    bits = stated.count(
        "bits", default=stated.count("w_bit", default=stated.count("nbits", default=4))
    )
    group = stated.count(
        "group_size", default=stated.count("q_group_size", default=128, least=-1), least=-1
    )
    kept = _kept(stated.items("modules_to_not_convert"))
    return grouped(method, bits, group=max(group, 0), zeros=True, kept=kept)


def _bitsandbytes(stated: Keys) -> WeightFormat:
    kept = _kept(stated.items("llm_int8_skip_modules"))
    return int8(kept) if stated.flag("load_in_8bit") else nf4(kept)


def _quark(stated: Keys) -> WeightFormat:
    text = str(stated.values).lower()
    kept = _kept(stated.items("exclude"))
    if "fp4" in text:
        return mxfp4(kept)
    return fp8(kept=kept) if "fp8" in text else int8(kept)


def _torchao(stated: Keys) -> WeightFormat:
    text = str(stated.values).lower()
    if "int4" in text:
        return grouped("w4a16", 4, group=GROUP, zeros=True)
    return int8() if "int8" in text else fp8()


def _compressed_tensors(stated: Keys) -> WeightFormat:
    groups = stated.section("config_groups")
    kept = _kept(stated.items("ignore"), ignored=stated.find("ignore_count"))
    first: dict[str, Any] = next(iter(groups.values.values()), {}) if groups else {}
    weights = Keys(dict(first), stated.place).section("weights")
    if weights is None:
        return named_format(stated.text("format", "w4a16")) or fp8(kept=kept)
    bits, group = weights.count("num_bits", default=8), weights.find("group_size")
    group = group if isinstance(group, int) and group > 0 else 0
    inputs = Keys(dict(first), stated.place).section("input_activations")
    if weights.text("type") == "float":
        if bits == 4:
            return nvfp4(kept) if group == 16 else mxfp4(kept)
        block = weights.items("block_structure")
        return fp8(block=int(block[0]) if block else 0, kept=kept)
    if bits == 8 and inputs is not None:
        return int8(kept).model_copy(update={"method": "w8a8"})
    zeros = weights.has("symmetric") and not weights.flag("symmetric")
    activations = inputs.count("num_bits", default=16) if inputs is not None else 16
    return grouped(f"w{bits}a{activations}", bits, group=group, zeros=zeros, kept=kept,
                   activation_bits=activations)  # fmt: skip


def _modelopt(stated: Keys) -> WeightFormat:
    inner = stated.section("quantization") or stated
    algorithm = (inner.text("quant_algo") or stated.text("quant_algo")).upper()
    names = (
        inner.items("exclude_modules") + stated.items("ignore") + stated.items("exclude_modules")
    )
    kept = _kept(names, ignored=stated.find("ignore_count"))
    if algorithm == "MIXED_PRECISION":
        return _mixed(inner if inner.has("quantized_layers") else stated)
    if "FP4" in algorithm:
        return nvfp4(kept)
    if "W4A" in algorithm or "INT4" in algorithm:
        return grouped("awq", 4, group=GROUP, kept=kept)
    if "INT8" in algorithm or "W8A8_SQ" in algorithm:
        return int8(kept)
    return fp8(kept=kept)


_PART_WORDS: tuple[tuple[Part, tuple[str, ...]], ...] = (
    ("shared_experts", ("shared_expert",)),
    ("routed_experts", ("experts",)),
    ("attention_state", ("linear_attn", "mamba", "mixer.in_proj", "mixer.out_proj")),
    ("attention", ("attn", "q_proj", "k_proj", "o_proj")),
    ("dense_mlp", ("mlp", "ffn", "up_proj")),
)
"""Which part a layer's name means; the first that fits."""
_ALGORITHM_BITS = (("NVFP4", 4.5), ("MXFP4", 4.25), ("MXFP8", 8.25), ("FP8", 8.0), ("INT8", 8.0))


def _mixed(stated: Keys) -> WeightFormat:
    """ModelOpt's mixed precision: every quantised layer with its own algorithm."""
    layers = stated.section("quantized_layers")
    bits: dict[Part, float] = {}
    for name, how in (layers.values if layers else {}).items():
        algorithm = str(how.get("quant_algo", "") if isinstance(how, dict) else how).upper()
        part = next((p for p, words in _PART_WORDS if any(w in name for w in words)), None)
        width = next((b for word, b in _ALGORITHM_BITS if word in algorithm), None)
        if part is not None and width is not None:
            bits[part] = min(width, bits.get(part, width))
    names = [str(name) for name in stated.items("quantized_layers_keys")]  # algorithms dropped
    for part, words in _PART_WORDS:
        if any(w in name for name in names for w in words):
            bits.setdefault(part, 4.5 if part in ("routed_experts", "dense_mlp") else 8.0)
    if not bits:
        bits = {"routed_experts": 4.5, "dense_mlp": 4.5, "attention": 8.0}
    parts = tuple(PartBits(part=part, bits=width) for part, width in sorted(bits.items()))
    kept = tuple(sorted(ALL_BUT_EXPERTS))
    return nvfp4(kept).model_copy(update={"method": "modelopt_mixed", "parts": parts})


def _kept(names: Iterable[object], *, ignored: object = None) -> tuple[Part, ...]:
    """Parts that stay in the dtype by the list of modules that quantisation leaves alone."""
    kept: set[Part] = set(KEPT)
    text = [str(n).lower() for n in names]
    text = [n for n in text if not any(w in n for w in ("vision", "visual", "mtp", "indexer"))]
    for name in text:
        bare = name.replace("linear_attn", "").replace("shared_expert_gate", "")
        if any(word in bare for word in ("attn", "attention", "q_proj", "qkv")):
            kept.add("attention")
        if any(word in name for word in ("linear_attn", "mamba", "mixer.in_proj", "in_proj_qkv")):
            kept.add("attention_state")
        if "shared_expert" in bare:
            kept.add("shared_experts")
        if bare.endswith((".mlp*", ".mlp")) or re.search(r"mlp.*(gate|up|gate_up|down)_proj", bare):
            kept.add("dense_mlp")
    if isinstance(ignored, int) and ignored > 30:  # the list was dropped, its length is known:
        kept.add("attention")  # one name a layer is its attention
    return tuple(sorted(kept))


def _kv_dtype(stated: Keys) -> str | None:
    scheme = stated.section("kv_cache_scheme")
    if scheme is not None and scheme.count("num_bits", default=8) == 8:
        return "fp8" if scheme.text("type", "float") == "float" else "int8"
    inner = stated.section("quantization") or stated
    algorithm = inner.text("kv_cache_quant_algo") or stated.text("kv_cache_quant_algo")
    if algorithm.upper().startswith("FP8"):
        return "fp8"
    return "int8" if algorithm.upper() == "INT8" else None

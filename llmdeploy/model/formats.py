"""Weight formats by the words that configs, logs and people print."""

import re
from typing import Any

from llmdeploy.errors import InputError
from llmdeploy.model.shape import ModelShape, Part, PartBits, WeightFormat

PLAIN = {
    "none", "bf16", "fp16", "fp32", "bfloat16", "float16", "float32", "half", "float", "auto",
    "fp16/bf16", "f16", "f32", "plain", "unquantized", "16bit", "16-bit", "q0f16", "q0f32", "",
}  # fmt: skip
KEPT: tuple[Part, ...] = ("embedding", "head", "other", "vision")
ALL_BUT_EXPERTS: tuple[Part, ...] = (
    "embedding", "head", "attention", "attention_state", "dense_mlp", "shared_experts", "other",
    "vision",
)  # fmt: skip
ONLY_SMALL: tuple[Part, ...] = ("other", "vision")
FP8_BLOCK = 128
GROUP = 128
GGUF_BITS = {
    "q2_k": 3.0, "q2_k_s": 2.75, "q3_k_s": 3.50, "q3_k_m": 3.91, "q3_k_l": 4.27, "q4_0": 4.55,
    "q4_1": 5.0, "q4_k_s": 4.58, "q4_k_m": 4.85, "q5_0": 5.5, "q5_1": 6.0, "q5_k_s": 5.54,
    "q5_k_m": 5.69, "q6_k": 6.59, "q8_0": 8.5, "iq1_s": 1.56, "iq1_m": 1.75, "iq2_xxs": 2.06,
    "iq2_xs": 2.31, "iq2_s": 2.5, "iq2_m": 2.7, "iq3_xxs": 3.06, "iq3_xs": 3.3, "iq3_s": 3.44,
    "iq3_m": 3.66, "iq4_xs": 4.25, "iq4_nl": 4.5, "tq1_0": 1.69, "tq2_0": 2.06,
}  # fmt: skip
"""Bits per weight of whole files, embeddings and head with them: a mix of types.
Source: llama.cpp `quantize.cpp` (sizes of Llama-3-8B at each type)."""


def named_format(name: str) -> WeightFormat | None:
    """The format that a word means, with the usual group sizes where it does not say."""
    word = name.strip().lower().replace(" ", "_")
    if word in PLAIN:
        return None
    for pattern, make in _NAMED:
        found = re.search(pattern, word)
        if found:
            made: WeightFormat = make(found)
            return made
    if word in GGUF_BITS or word.removeprefix("gguf_") in GGUF_BITS:
        return gguf(word.removeprefix("gguf_"))
    raise InputError(
        f"quantization: found {name!r}, needed a weight format",
        fix="use one of bf16, fp8, int8, awq, gptq, nf4, mxfp4, nvfp4, w4a16, w8a8, q4_k_m",
    )


def fp8(*, block: int = 0, kept: tuple[Part, ...] = KEPT) -> WeightFormat:
    """8-bit floats, one scale a row, or a float32 a block of block x block weights."""
    if block:
        return WeightFormat(method="fp8_block", bits=8, group_size=block,
                            scale_bits=32 / block**2, activation_bits=8, kept=kept)  # fmt: skip
    return WeightFormat(method="fp8", bits=8, activation_bits=8, kept=kept)


def grouped(
    method: str, bits: float, *, group: int, zeros: bool = False, activation_bits: float = 16,
    kept: tuple[Part, ...] = KEPT, scale_bits: float = 16,
) -> WeightFormat:  # fmt: skip
    """Integers or small floats that share a scale (and a zero point) in groups along the input."""
    per_group = scale_bits + (bits if zeros else 0)
    return WeightFormat(
        method=method,
        bits=bits,
        group_size=group,
        scale_bits=per_group / group if group else 0,
        activation_bits=activation_bits,
        kept=kept,
    )


def mxfp4(kept: tuple[Part, ...] = ALL_BUT_EXPERTS) -> WeightFormat:
    """4-bit floats, one 8-bit exponent for 32. Source: OCP microscaling formats 1.0."""
    return grouped("mxfp4", 4, group=32, scale_bits=8, kept=kept)


def nvfp4(kept: tuple[Part, ...] = KEPT) -> WeightFormat:
    """4-bit floats, one fp8 scale for 16. Source: NVIDIA ModelOpt 0.37 `NVFP4_DEFAULT_CFG`."""
    return grouped("nvfp4", 4, group=16, scale_bits=8, activation_bits=4, kept=kept)


def int8(kept: tuple[Part, ...] = KEPT) -> WeightFormat:
    """Whole numbers of 8 bits for weights and activations."""
    return WeightFormat(method="int8", bits=8, activation_bits=8, kept=kept)


def modelslim() -> WeightFormat:
    """Ascend's 8-bit weights and activations: the MLPs' down projections stay in 16 bits.

    Source: msModelSlim 8.1 `quant_qwen.py`, disable_names; SGLang logs 10.4 GiB a device for
    Qwen3-32B on four.
    """
    parts = (PartBits(part="dense_mlp", bits=(8 + 8 + 16) / 3),)
    return int8().model_copy(update={"method": "modelslim", "parts": parts})


def nf4(kept: tuple[Part, ...] = KEPT) -> WeightFormat:
    """bitsandbytes: 4 bits, one byte for 64 weights and a float32 for 256 of those.

    Source: bitsandbytes 0.45 `compress_statistics`; vLLM 0.5.0 logs 5.31 GiB for Llama-3-8B.
    """
    return grouped("nf4", 4, group=64, scale_bits=8 + 32 / 256, kept=kept)


def gguf(word: str) -> WeightFormat:
    """llama.cpp's types: embeddings and head are quantised too."""
    return WeightFormat(method="gguf", bits=GGUF_BITS[word], kept=ONLY_SMALL)


_NAMED: tuple[tuple[str, Any], ...] = (
    (r"^(gguf_)?(i?q\d_(k_)?[slmx01]\w*|q\d_[k01]|iq\d_\w+|tq\d_0)$", lambda m: _gguf(m[2])),
    (r"^q(\d)f(16|32)", lambda m: grouped("mlc", int(m[1]), group=32, kept=ONLY_SMALL)),
    (r"nvfp4|modelopt_(fp)?4|modelopt_mixed|^fp4$|nvidia_fp4", lambda m: nvfp4()),
    (r"mxfp4|mx4|quark_w4", lambda m: mxfp4()),
    (r"w(\d)a(16|8|4)", lambda m: _w_a(int(m[1]), int(m[2]))),
    (r"modelslim", lambda m: modelslim()),
    (r"experts_int8", lambda m: int8(tuple(p for p in ALL_BUT_EXPERTS if p != "dense_mlp"))),
    (r"fp8.?block|block.?fp8|deepseek_fp8|blockwise", lambda m: fp8(block=FP8_BLOCK)),
    (r"fp8|f8|float8|modelopt$|fbgemm", lambda m: fp8()),
    (r"awq", lambda m: grouped("awq", _bits(m.string, 4), group=GROUP, zeros=True)),
    (r"gptq|autoround|auto_round", lambda m: grouped(
        "gptq", _bits(m.string, 4), group=GROUP, zeros=True)),
    (r"bnb.?8|llm.?int8|bitsandbytes.?8|int8|8.?bit|smoothquant|sq8", lambda m: int8()),
    (r"nf4|bnb|bitsandbytes", lambda m: nf4()),
    (r"int4|4.?bit|w4|u4|marlin|compressed.tensors|hqq|torchao", lambda m: grouped(
        "w4a16", 4, group=GROUP)),
    (r"exl[23]\w*?(\d(\.\d+)?)bpw", lambda m: WeightFormat(
        method="exl2", bits=float(m[1]), kept=("embedding", "other", "vision"))),
    (r"gguf", lambda m: gguf("q4_k_m")),
)  # fmt: skip
"""In this order: the first pattern found in the word decides."""


def _gguf(word: str) -> WeightFormat:
    if word not in GGUF_BITS:
        near = next((k for k in GGUF_BITS if k.startswith(word[:4])), None)
        if near is None:
            raise InputError(
                f"quantization: found {word!r}, needed a type of llama.cpp",
                fix=f"use one of {', '.join(sorted(GGUF_BITS))}",
            )
        word = near
    return gguf(word)


def _bits(word: str, default: int) -> int:
    found = re.search(r"int?([2348])|([2348])bit|w([2348])", word)
    return next((int(g) for g in found.groups() if g), default) if found else default


def _w_a(bits: int, activations: int) -> WeightFormat:
    if bits == 8 and activations == 8:
        return int8().model_copy(update={"method": "w8a8"})
    if bits == 8:
        return WeightFormat(method="w8a16", bits=8, kept=KEPT)
    return grouped(f"w{bits}a{activations}", bits, group=GROUP, activation_bits=activations)


def suited(shape: ModelShape, weight_format: WeightFormat | None) -> WeightFormat | None:
    """A format known by its word alone, with what its makers leave unquantised in such a model.

    In 4 bits, latent attention stays as it was and state layers do, but with GPTQ and AutoRound;
    NVFP4 checkpoints hold the state layers in fp8.

    Source: ignore lists of nvidia/DeepSeek-V3.1-NVFP4, nvidia/Qwen3.6-35B-A3B-NVFP4,
    RedHatAI/Qwen3.6-35B-A3B-NVFP4, QuixiAI and cpatonn AWQ checkpoints.
    """
    if weight_format is None or weight_format.bits > 4 or weight_format.method == "gguf":
        return weight_format
    kept = set(weight_format.kept)
    kinds = {layers.kind for layers in shape.cache}
    if "latent" in kinds and weight_format.method == "nvfp4":
        kept.add("attention")
    if "state" in kinds and weight_format.method != "gptq":
        kept.add("attention_state")
    return weight_format.model_copy(update={"kept": tuple(sorted(kept))})


def in_mixed_precision(shape: ModelShape, weight_format: WeightFormat) -> WeightFormat:
    """NVFP4 as its maker holds hybrid models: state layers and attention in fp8."""
    if all(layers.kind != "state" for layers in shape.cache):
        return weight_format
    parts = tuple(PartBits(part=part, bits=8) for part in _FP8_PARTS)
    return weight_format.model_copy(update={"method": "modelopt_mixed", "parts": parts})


_FP8_PARTS: tuple[Part, ...] = ("attention", "attention_state")
"""Source: `quantized_layers` of nvidia/Qwen3.6-27B-NVFP4."""

"""Reads a model's name: what quantisation it was repacked in, and what is left of it."""

import re
from dataclasses import dataclass

from llmdeploy.model import WeightFormat, weight_format

FORMAT_WORDS = (
    (r"(q4[-_]0[-_])?unquantized", "plain"),
    (r"modelopt[-_]?mixed", "nvfp4"),
    (r"nvfp4(a16)?|fp4", "nvfp4"),
    (r"mxfp4", "mxfp4"),
    (r"i?q\d[-_](k[-_][sml]|k|0|1|xs|xxs|nl|s|m)", "gguf"),
    (
        r"(bnb[-_])?[48]bit[-_]?bnb|bnb([-_]?[48]bit)?|bitsandbytes|nf4|unsloth[-_]bnb[-_]4bit",
        "nf4",
    ),
    (r"auto[-_]?round|gptq(model)?([-_]?(int)?[2348]([-_]?bits?)?)?", "gptq"),
    (r"awq([-_]?(int)?[48]([-_]?bits?)?)?([-_]marlin)?", "awq"),
    (r"(quantized[.])?w8a8|int8[-_]?w8a8|smoothquant", "w8a8"),
    (r"(quantized[.])?w4a16(_?g128)?", "w4a16"),
    (r"(quantized[.])?w8a16", "w8a16"),
    (r"fp8([-_](dynamic|static|kv|block|pertensor|tensorwise|e4m3))*", "fp8"),
    (r"int4|4[-_]?bits?|u4", "w4a16"),
    (r"int8|8[-_]?bits?", "int8"),
    (r"gguf", "gguf"),
    (r"mlx|exl[23]|hqq|bf16|fp16|f16|f32", "plain"),
)
"""Words at a name's end or between its dashes, and the format they mean; the first found counts.
Source: names of repackagings by the models' makers, RedHatAI, nvidia, unsloth, TheBloke."""
BLOCK_FP8 = ("qwen", "deepseek-ai", "moonshotai", "minimaxai", "xiaomimimo")
"""Who publishes FP8 with scales in blocks of 128 x 128. Source: their `weight_block_size`."""
FP8_KV = ("nvidia", "amd")
"""Whose FP8 and FP4 checkpoints ask for an FP8 KV cache.
Source: their hf_quant_config.json, `kv_cache_quant_algo`."""
SMALL_GROUPS = ("cyankiwi",)
"""Whose 4-bit checkpoints have groups of 32. Source: their `config_groups`."""
DYNAMIC_BITS = 0.27
"""What Unsloth's dynamic 4-bit checkpoints hold more, per weight: parts that stay in 16 bits.
Source: our count against one public launch log; their maker says up to a tenth more."""
DECORATIONS = {
    "instruct", "it", "chat", "hf", "base", "meta", "pt", "thinking", "preview", "latest", "model",
    "unsloth", "dynamic", "static", "quantized", "ct", "marlin", "mlx", "bf16", "fp16", "kv", "sft",
    "dpo", "rl", "abliterated", "uncensored", "llamafied", "qat", "gguf", "reasoning", "text",
    "zero", "distill",
}  # fmt: skip
"""Words that change the training, not the shape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A repackaging's name taken apart."""

    core: str
    """Lower case, without the organisation and the words of the format."""
    format: WeightFormat | None
    maker: str
    """The organisation, lower case; empty where the name has none."""
    plain: bool
    """Unquantised by name: the base's own format does not hold."""


def take_apart(name: str) -> Named:
    """The parts of a model's name, such as `RedHatAI/Qwen3-14B-FP8-dynamic`."""
    maker, _, last = name.lower().rpartition("/")
    last = last.split(":")[0]
    for pattern, word in FORMAT_WORDS:
        found = re.search(rf"(^|[-_.])({pattern})(?=$|[-_.])", last)
        if not found:
            continue
        after = re.sub(r"^-v\d+$", "", last[found.end() :])  # the repackaging's own version
        core = last[: found.start()] + after
        core = _without_formats(core)
        if word == "plain":
            return Named(core=core, format=None, maker=maker, plain=True)
        return Named(core=core, format=_format(word, found[2], maker), maker=maker, plain=False)
    return Named(core=last, format=None, maker=maker, plain=False)


def canonical(core: str) -> str:
    """What names of one shape share: words without training, `3_3` as `3.3`."""
    words = re.split(r"[-_]", re.sub(r"(?<=\d)_(?=\d)", ".", core))
    joined = [w for w in words if w and w not in DECORATIONS]
    return "-".join(joined)


def _without_formats(core: str) -> str:
    for pattern, _ in FORMAT_WORDS:
        core = re.sub(rf"(^|[-_.])({pattern})(?=$|[-_.])", "", core)
    return core


def _format(word: str, stated: str, maker: str) -> WeightFormat | None:
    if word == "gguf":
        found = re.search(r"i?q\d[-_]\w+", stated.replace("-", "_"))
        return weight_format(found[0] if found else "q4_k_m")
    if word == "fp8" and (maker in BLOCK_FP8 or "block" in stated):
        return weight_format("fp8_block")
    if word in ("gptq", "awq") and re.search(r"8", stated):
        word = f"{word}_int8"
    if word == "nf4" and "8bit" in stated:
        word = "int8"
    made = weight_format(word)
    if made is not None and word == "nf4" and "unsloth" in stated:
        made = made.model_copy(update={"scale_bits": made.scale_bits + DYNAMIC_BITS})
    if made is not None and maker in FP8_KV and word in ("fp8", "nvfp4"):
        made = made.model_copy(update={"kv_cache_dtype": "fp8"})
    if made is not None and maker in SMALL_GROUPS and made.bits == 4:
        made = made.model_copy(update={"group_size": 32, "scale_bits": 16 / 32, "method": "w4a16"})
    return made

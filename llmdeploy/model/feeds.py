"""The MLP of every layer: dense, mixture of experts, or none."""

from dataclasses import dataclass

from llmdeploy.model.families import Family
from llmdeploy.model.keys import Keys
from llmdeploy.model.layers import LONGCAT, stated_words
from llmdeploy.model.shape import Experts

EXPERTS_OF_INTERMEDIATE = (
    "mixtral", "gpt_oss", "minimax_m2", "minimax", "minimax_text_01", "jamba", "olmoe", "flex_olmo",
    "granitemoe", "granitemoeshared", "granitemoehybrid", "phimoe", "dbrx", "llama4", "llama4_text",
    "hunyuan", "hunyuan_v1_moe", "grok-1", "jetmoe",
)  # fmt: skip
"""Types whose experts have `intermediate_size`. Source: their modelling code in transformers."""


BOTH_HALVES = ("qwen", "recurrent_gemma")
"""Types that state the width of both halves of their gated MLP. Source: Qwen 1's own code;
transformers 5.24 `RecurrentGemmaMlp`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """Weights of all layers' MLPs together, counts."""

    dense: int = 0
    routed: int = 0
    shared: int = 0
    small: int = 0
    """Routers, biases."""
    experts: Experts | None = None


def feeds(keys: Keys, family: Family, *, kind: str, layers: int, hidden_size: int) -> Feed:
    """Counts of the MLPs of `layers` layers."""
    if keys.has("block_configs"):
        return Feed(dense=_searched(keys, hidden_size))
    experts = _experts(keys, kind)
    mixed = [False] * layers if experts is None else _mixed(keys, kind, layers)
    beside = kind.startswith("gemma4") or keys.flag("residual_moe")  # Grok 2
    plain = layers if beside else mixed.count(False)
    if kind == LONGCAT:
        plain = 2 * layers
    if kind == "nemotron_h":  # a layer is either a mixer or an MLP
        plain = stated_words(keys, layers).count("mlp")
    if kind in ("mamba", "falcon_mamba", "mamba2"):
        plain = 0
    matrices = 3 if family.gated else 2
    dense = small = 0
    if plain:
        size = dense_size(keys, kind, hidden_size)
        dense = plain * matrices * hidden_size * size
        small = plain * (hidden_size + (matrices - 1) * size) * family.mlp_bias
    if experts is None or not any(mixed):
        return Feed(dense=dense, small=small)
    number, width = mixed.count(True), experts.input_size or hidden_size
    experts = experts.model_copy(
        update={"layers": number, "dense_first_layers": _leading(mixed, kind)}
    )
    routed = number * experts.count * matrices * width * experts.intermediate_size
    sizes = keys.items("moe_intermediate_size")
    if kind.startswith("ernie4_5") and len(sizes) == 2:  # as many experts again, for images
        routed = routed * sum(sizes) // sizes[0]
    shared = number * matrices * hidden_size * experts.shared_intermediate_size
    if experts.input_size:
        shared += number * 2 * hidden_size * width  # into the latent width and back
    small += number * _router(keys, kind, experts, hidden_size)
    return Feed(dense=dense, routed=routed, shared=shared, small=small, experts=experts)


def dense_size(keys: Keys, kind: str, hidden_size: int) -> int:
    """The width of a dense MLP."""
    if keys.has("dense_intermediate_size"):  # MiniMax M3
        return keys.count("dense_intermediate_size")
    if kind.startswith("llama4"):
        return keys.count("intermediate_size_mlp", default=keys.count("intermediate_size"))
    if kind == "granitemoehybrid":
        return keys.count("shared_intermediate_size", default=keys.count("intermediate_size"))
    if kind in BOTH_HALVES:
        return keys.count("intermediate_size") // 2
    if kind in ("gpt2", "gpt_bigcode", "gpt_neo", "gptj", "falcon", "bloom", "codegen"):
        return keys.count("intermediate_size", default=4 * hidden_size)
    if kind == "mpt":
        return int(keys.number("expansion_ratio", 4) * hidden_size)
    if kind == "lfm2":
        return _lfm2_size(keys)
    if kind.startswith("rwkv"):
        return keys.count("intermediate_size", default=4 * hidden_size)
    return keys.count("intermediate_size")


def _lfm2_size(keys: Keys) -> int:
    size = keys.count("intermediate_size", default=keys.count("block_ff_dim", default=12288))
    if not keys.flag("block_auto_adjust_ff_dim", default=True):
        return size
    size = int(keys.number("block_ffn_dim_multiplier", 1.0) * int(2 * size / 3))
    multiple = keys.count("block_multiple_of", default=256)
    return multiple * -(-size // multiple)


def _experts(keys: Keys, kind: str) -> Experts | None:
    count = keys.find("experts")
    if not isinstance(count, int) and not isinstance(count, list):
        return None
    count = keys.count("experts", least=0)
    if count < 2 or (kind.startswith("gemma4") and not keys.flag("enable_moe_block")):
        return None
    of_intermediate = kind in EXPERTS_OF_INTERMEDIATE or keys.find("expert_size") is None
    if kind.startswith("hunyuan") and keys.find("expert_size") is not None:
        of_intermediate = False
    size = keys.count("intermediate_size" if of_intermediate else "expert_size")
    return Experts(
        layers=1,
        count=count,
        active=keys.count("active_experts"),
        intermediate_size=size,
        shared_intermediate_size=_shared_size(keys, kind, size),
        input_size=keys.count(
            "moe_latent_size",
            default=keys.count("routed_expert_hidden_size", default=0, least=0),
            least=0,
        ),
    )


def _shared_size(keys: Keys, kind: str, size: int) -> int:
    if kind.startswith("llama4"):
        return size
    stated = keys.find("shared_size")
    number = keys.find("shared_experts")
    number = number[0] if isinstance(number, list) else number
    if number is None and kind == "hunyuan_v1_moe":
        number = 1
    if isinstance(stated, int):
        return stated if not isinstance(number, int) else stated * max(number, 1)
    return size * number if isinstance(number, int) else 0


def _mixed(keys: Keys, kind: str, layers: int) -> list[bool]:
    """Which layers are mixtures."""
    if kind == "nemotron_h":
        return [word == "moe" for word in stated_words(keys, layers)]
    if keys.has("moe_layers"):
        at = set(keys.items("moe_layers"))
        return [i in at for i in range(layers)]
    if keys.text("moe_layers_enum"):  # Step 3
        listed = {int(word) for word in keys.text("moe_layers_enum").split(",") if word.isdigit()}
        return [i in listed for i in range(layers)]
    if keys.has("interleave_moe_layer_step"):
        step = keys.count("interleave_moe_layer_step")
        return [(i + 1) % step == 0 for i in range(layers)]
    if kind == "jamba":
        period, offset = keys.count("expert_layer_period"), keys.count("expert_layer_offset")
        return [i % period == offset for i in range(layers)]
    if keys.has("moe_layer_start_index"):
        return _ernie_layers(keys, layers)
    frequency = keys.values.get("moe_layer_freq")
    if isinstance(frequency, list):
        return [bool(value) for value in frequency[:layers]]
    step = frequency if isinstance(frequency, int) else keys.count("decoder_sparse_step", default=1)
    dense = set(keys.items("mlp_only_layers"))
    first = keys.count("first_k_dense_replace", default=0, least=0)
    first = keys.count("num_dense_layers", default=first, least=0)
    if keys.has("mlp_layer_types"):
        return [word != "dense" for word in keys.items("mlp_layer_types")]
    if keys.has("decoder_sparse_step"):
        return [i not in dense and (i + 1) % step == 0 for i in range(layers)]
    return [i >= first and i not in dense and i % step == 0 for i in range(layers)]


def _ernie_layers(keys: Keys, layers: int) -> list[bool]:
    first = keys.count("moe_layer_start_index", least=0)
    last = keys.find("moe_layer_end_index")
    last = layers - 1 if not isinstance(last, int) or last < 0 else last
    step = keys.count("moe_layer_interval", default=1)
    return [(i + 1) % step == 0 and first <= i <= last for i in range(layers)]


def _leading(mixed: list[bool], kind: str) -> int:
    """Dense layers before the first mixture; interleaved ones count as none."""
    return mixed.index(True) if all(mixed[mixed.index(True) :]) and kind != "nemotron_h" else 0


def _router(keys: Keys, kind: str, experts: Experts, hidden_size: int) -> int:
    router = hidden_size * experts.count
    if keys.text("topk_method") == "noaux_tc" or keys.flag("use_routing_bias"):
        router += experts.count
    if kind.startswith(("qwen2_moe", "qwen3_next", "qwen3_5")) and experts.shared_intermediate_size:
        router += hidden_size
    if kind == "gpt_oss":
        router += experts.count * (1 + 2 * experts.intermediate_size + hidden_size)
    if kind.startswith("gemma4"):
        router += hidden_size + experts.count
    return router


def _searched(keys: Keys, hidden_size: int) -> int:
    """Nemotron NAS: each block's own MLP width, or none, or one linear layer."""
    total = 0
    for number, block in enumerate(keys.items("block_configs")):
        ffn = Keys(dict(block), f"{keys.place}: block_configs/{number}").section("ffn")
        if ffn is None or ffn.flag("no_op"):
            continue
        if ffn.flag("replace_with_linear"):
            total += hidden_size**2
            continue
        size = int(2 * ffn.number("ffn_mult", 0) * hidden_size / 3)
        total += 3 * hidden_size * (-(-size // 256) * 256)
    return total

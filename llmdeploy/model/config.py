"""A model's shape from its published config.json: sizes, cache of every layer, weights by part."""

from collections.abc import Iterable
from typing import Any, Literal

from llmdeploy.errors import InputError
from llmdeploy.model.encoders import encoder_parameters, is_multimodal
from llmdeploy.model.families import Family, family, model_type
from llmdeploy.model.feeds import Feed, dense_size, feeds
from llmdeploy.model.format_config import config_format
from llmdeploy.model.keys import Keys, flattened
from llmdeploy.model.layers import Plan, mixers
from llmdeploy.model.mixers import Heads, Mixer
from llmdeploy.model.shape import CacheLayers, ModelShape, Parameters, is_pooling_architecture

Dtype = Literal["bfloat16", "float16", "float32"]
UNLIMITED_POSITIONS = 1_048_576
"""Of models without positions (Mamba, RWKV): no length is too long for them; our bound."""
DEFAULT_POSITIONS = 2048
"""Where the config names no longest length. Source: vLLM 0.11 `_get_and_verify_max_len`."""
STRETCHING = ("yarn", "linear", "dynamic", "deepseek_yarn")
"""Rope scalings whose factor the stated length does not hold yet.
Source: vLLM 0.11 `_get_and_verify_max_len`: all but su, longrope, llama3 and mrope."""
MOST_LAYERS = 10_000
"""Beyond it a config is broken, and one entry a layer would take minutes; our bound."""
WITHOUT_ROTATION = ("gpt2", "opt", "bloom", "mpt", "jamba", "nemotron_h", "gpt_bigcode")
SHARED_BLOCKS = ("zamba", "zamba2")
ENCODER_ONLY = (
    "albert", "bart", "bert", "bert-generation", "big_bird", "camembert", "clip", "data2vec-text",
    "deberta", "deberta-v2", "distilbert", "electra", "ernie", "megatron-bert", "modernbert",
    "mpnet", "nomic_bert", "rembert", "roberta", "roberta-prelayernorm", "roc_bert", "roformer",
    "t5", "vit", "whisper", "xlm-roberta", "xlm-roberta-xl", "xmod",
)  # fmt: skip


def from_config(config: dict[str, Any], *, place: str) -> ModelShape:
    """The shape that a config.json states; InputError naming the key where one is missing."""
    if not isinstance(config, dict):
        raise InputError(
            f"{place}: found {type(config).__name__}, needed an object of settings",
            fix=f"give the model's config.json as it was published, in {place}",
        )
    keys = flattened(config, place)
    kind = model_type(keys)
    if kind in ENCODER_ONLY:
        raise InputError(
            f"{place}: model_type: found {kind}, needed a model that generates text",
            fix="choose a decoder-only model",
        )
    if kind in SHARED_BLOCKS:
        raise InputError(
            f"{place}: model_type: found {kind}, whose layers share blocks: not counted",
            fix="choose another model; no counts are given rather than wrong ones",
        )
    traits = family(keys)
    keys = keys.with_defaults(traits.defaults)
    plan = _plan(keys, traits, kind)
    made = mixers(plan)
    feed = feeds(keys, traits, kind=kind, layers=_feed_layers(plan), hidden_size=plan.hidden_size)
    return ModelShape(
        architecture=_architecture(keys, kind),
        layers=plan.layers,
        hidden_size=plan.hidden_size,
        intermediate_size=_intermediate(keys, kind, feed, plan.hidden_size),
        attention_heads=plan.heads.heads,
        kv_heads=max((m.cache.kv_heads for m in made), default=0) or plan.heads.kv_heads,
        head_dim=plan.heads.head_dim,
        vocabulary_size=keys.count("vocab_size"),
        max_positions=_positions(keys, made),
        tied_embeddings=_tied(keys, traits),
        dtype=_dtype(keys),
        cache=_grouped(made),
        experts=feed.experts,
        parameters=_parameters(plan, made, feed, traits),
        weight_format=config_format(keys),
        rotary_elements=_rotary(plan, made),
        multimodal=is_multimodal(keys),
    )


def _plan(keys: Keys, traits: Family, kind: str) -> Plan:
    hidden_size = keys.count("hidden_size")
    attention_free = kind in ("mamba", "falcon_mamba", "mamba2") or kind.startswith("rwkv")
    heads = keys.count("num_attention_heads", default=1 if attention_free else None)
    if keys.find("head_dim") is None and hidden_size % heads and "kv_lora_rank" not in keys.values:
        raise InputError(
            f"{keys.place}: head_dim: found nothing, and hidden_size {hidden_size} is no multiple"
            f" of num_attention_heads {heads}",
            fix=f"add head_dim to {keys.place}",
        )
    head_dim = keys.count("head_dim", default=hidden_size // heads)
    return Plan(
        keys=keys,
        family=traits,
        kind=kind,
        layers=_layers(keys),
        hidden_size=hidden_size,
        heads=Heads(
            heads=heads,
            kv_heads=_kv_heads(keys, kind, heads),
            head_dim=head_dim,
            value_dim=_value_dim(keys, head_dim),
        ),
    )


def _value_dim(keys: Keys, head_dim: int) -> int:
    """Of V, where it is not K's; a latent cache has its own, and 0 stands for none."""
    stated = keys.find("v_head_dim")
    return keys.count("v_head_dim") if stated and not keys.has("kv_lora_rank") else head_dim


def _layers(keys: Keys) -> int:
    for name in ("block_configs", "hybrid_override_pattern", "layers_block_type"):
        stated = keys.values.get(name)
        if keys.find("num_hidden_layers") is None and stated:
            return len(stated)
    layers = keys.count("num_hidden_layers")
    if layers > MOST_LAYERS:
        raise keys.wrong("num_hidden_layers", layers, f"at most {MOST_LAYERS}")
    return layers


def _kv_heads(keys: Keys, kind: str, heads: int) -> int:
    if keys.flag("multi_query_attention"):  # ChatGLM
        return keys.count("multi_query_group_num", default=1)
    if kind == "gpt_bigcode":
        return 1 if keys.flag("multi_query", default=True) else heads
    if kind == "falcon" and not keys.flag("new_decoder_architecture"):
        return 1 if keys.flag("multi_query", default=True) else heads
    return keys.count("num_key_value_heads", default=heads)


def _feed_layers(plan: Plan) -> int:
    return 0 if plan.kind in ("mamba", "falcon_mamba", "mamba2") else plan.layers


def _architecture(keys: Keys, kind: str) -> str:
    named = keys.items("architectures")
    if named:
        return str(named[0])
    return f"{kind or 'llama'}".title().replace("_", "") + "ForCausalLM"


def _intermediate(keys: Keys, kind: str, feed: Feed, hidden_size: int) -> int:
    if feed.dense and not keys.has("block_configs"):
        return dense_size(keys, kind, hidden_size)
    if feed.experts is not None:
        return feed.experts.active * feed.experts.intermediate_size
    stated = keys.find("intermediate_size")
    if isinstance(stated, int):
        return stated
    return feed.dense // (3 * hidden_size * max(1, keys.count("num_hidden_layers")))


def _positions(keys: Keys, made: list[Mixer]) -> int:
    """The longest context that engines derive: what the config states, stretched by its rope
    scaling where that is not counted in it yet.

    Source: vLLM 0.11 `_get_and_verify_max_len`: yarn stretches its original length, Llama 3's and
    Phi's scalings and Gemma 3's length are whole already; Cohere's model_max_length wins.
    """
    if all(m.is_state for m in made):
        return keys.count("max_position_embeddings", default=UNLIMITED_POSITIONS)
    kind = model_type(keys)
    if kind.startswith("cohere") and keys.has("model_max_length"):
        return keys.count("model_max_length")
    length = keys.count("max_position_embeddings", default=DEFAULT_POSITIONS)
    if kind == "qwen" or "QWenLMHeadModel" in keys.items("architectures"):
        length = keys.count("seq_length", default=length)
    scaling = keys.section("rope_scaling", "rope_parameters")
    if scaling is None or kind.startswith("gemma"):
        return length
    way = scaling.text("rope_type") or scaling.text("type")
    original = scaling.values.get("original_max_position_embeddings")
    if way == "yarn" or keys.find("max_position_embeddings") is None:
        length = original if isinstance(original, int) and original > 0 else length
    stretched = way in STRETCHING or keys.find("max_position_embeddings") is None
    return int(length * scaling.number("factor", 1.0)) if stretched else length


def _rotary(plan: Plan, made: list[Mixer]) -> int:
    """Widths that are rotated, one table for each kind of attention layer that has its own."""
    keys = plan.keys
    if plan.kind in WITHOUT_ROTATION or not any(
        m.cache.kind not in ("state", "none") for m in made
    ):
        return 0
    if keys.has("kv_lora_rank"):
        return keys.count("qk_rope_head_dim")
    if plan.kind.startswith(("gemma3", "gemma4")):
        return sum({m.cache.kind: m.cache.head_dim for m in made}.values())
    ropes = keys.section("rope_parameters", "rope_scaling")
    inner = ropes.number("partial_rotary_factor", 1.0) if ropes is not None else 1.0
    share = keys.number("partial_rotary_factor", keys.number("rotary_pct", inner))
    return keys.count("rotary_dim", default=max(1, int(plan.heads.head_dim * share)))


def _tied(keys: Keys, traits: Family) -> bool:
    return keys.flag("tie_word_embeddings", default=traits.tied)


def _dtype(keys: Keys) -> Dtype:
    named = (keys.text("dtype") or keys.text("torch_dtype") or "bfloat16").removeprefix("torch.")
    if named in ("float16", "half"):
        return "float16"
    return "float32" if named in ("float32", "float") else "bfloat16"


def _grouped(made: Iterable[Mixer]) -> tuple[CacheLayers, ...]:
    counts: dict[CacheLayers, int] = {}
    for mixer in made:
        counts[mixer.cache] = counts.get(mixer.cache, 0) + 1
    return tuple(cache.model_copy(update={"layers": n}) for cache, n in counts.items())


def _parameters(plan: Plan, made: list[Mixer], feed: Feed, traits: Family) -> Parameters:
    keys, hidden_size = plan.keys, plan.hidden_size
    vocabulary = keys.count("vocab_size")
    norm = hidden_size * (2 if traits.norm_bias else 1)
    embedding = vocabulary * hidden_size + _other_embeddings(plan, traits)
    without_head = _tied(keys, traits) or is_pooling_architecture(_architecture(keys, plan.kind))
    head = 0 if without_head else vocabulary * hidden_size
    small = sum(m.small for m in made) + feed.small + _norms(plan, traits) + norm
    small += vocabulary * traits.head_bias
    if plan.kind == "bloom":  # a norm behind the embedding
        small += norm
    if plan.kind == "gpt_oss":  # a sink for every head
        small += plan.layers * plan.heads.heads
    attention = sum(m.split + m.kv + m.whole for m in made)
    return Parameters(
        embedding=embedding,
        head=head,
        attention=attention,
        dense_mlp=feed.dense,
        routed_experts=feed.routed,
        shared_experts=feed.shared,
        other=small + _per_layer_inputs(plan),
        vision=encoder_parameters(keys, kind=plan.kind, hidden_size=hidden_size),
        draft=_draft(plan, made, feed),
        attention_kv=sum(m.kv for m in made),
        attention_whole=sum(m.whole for m in made),
        attention_state=sum(m.split + m.whole for m in made if m.is_state),
        latent_up=sum(m.latent_up for m in made),
    )


def _norms(plan: Plan, traits: Family) -> int:
    width = plan.hidden_size * (2 if traits.norm_bias else 1)
    norms = traits.norms
    if plan.kind == "falcon" and plan.keys.flag("new_decoder_architecture"):
        norms = 2
    if plan.kind.startswith("gemma4") and plan.keys.flag("enable_moe_block"):
        norms += 3
    return plan.layers * norms * width


def _other_embeddings(plan: Plan, traits: Family) -> int:
    """Learned positions, and the embeddings of every layer that Gemma 3n and 4's E models have."""
    keys = plan.keys
    total = 0
    if traits.learned_positions:
        offset = 2 if plan.kind == "opt" else 0
        total += (keys.count("max_position_embeddings") + offset) * plan.hidden_size
    width = keys.find("hidden_size_per_layer_input")
    if isinstance(width, int) and width:
        rows = keys.count("vocab_size_per_layer_input", default=keys.count("vocab_size"))
        total += rows * plan.layers * width
    return total


def _per_layer_inputs(plan: Plan) -> int:
    """What joins the per-layer embeddings to the layers (Gemma 3n, 4)."""
    width = plan.keys.find("hidden_size_per_layer_input")
    if not isinstance(width, int) or not width:
        return 0
    hidden_size, layers = plan.hidden_size, plan.layers
    total = hidden_size * layers * width + width + layers * (2 * hidden_size * width + hidden_size)
    if plan.kind.startswith("gemma3n"):
        rank, inputs = plan.keys.count("laurel_rank", default=64), 4  # LAuReL and AltUp
        total += layers * (2 * hidden_size * rank + 3 * hidden_size)
        total += layers * (inputs * inputs * inputs + inputs * inputs + inputs * hidden_size)
        total += 2 * (inputs - 1) * hidden_size * hidden_size
    return total


def _draft(plan: Plan, made: list[Mixer], feed: Feed) -> int:
    """Layers that predict further tokens: each a copy of the last kind of layer and a joint."""
    names = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
    number = next((plan.keys.values[n] for n in names if plan.keys.has(n)), 0)
    if not isinstance(number, int) or number <= 0:
        return 0
    hidden_size = plan.hidden_size
    attending = next((m for m in reversed(made) if m.cache.kind not in ("state", "none")), None)
    mixing = 0 if attending is None else attending.split + attending.kv + attending.whole
    if feed.experts is not None:
        one = (feed.routed + feed.shared) // feed.experts.layers + hidden_size * feed.experts.count
    else:
        one = feed.dense // plan.layers
    return number * (mixing + one + 2 * hidden_size * hidden_size + 5 * hidden_size)

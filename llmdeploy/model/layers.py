"""Every layer's mixer, in the model's order: which layers are full, sliding, latent or states."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from llmdeploy.model.families import Family
from llmdeploy.model.keys import Keys
from llmdeploy.model.mixers import Heads, Mixer, attention, compressed, latent
from llmdeploy.model.states import (
    delta_net,
    kimi_delta,
    lightning,
    mamba1,
    mamba2,
    recurrent,
    rwkv,
    short_convolution,
)

AttentionWord = Literal["full", "sliding", "chunked"]
ATTENTION_WORDS: dict[str, AttentionWord] = {
    "full_attention": "full", "attention": "full", "full": "full", "global": "full",
    "sliding_attention": "sliding", "sliding_window_attention": "sliding", "sliding": "sliding",
    "local_attention": "sliding", "chunked_attention": "chunked",
    "deepseek_sparse_attention": "full", "hybrid": "full", "minimax_m3_sparse": "full",
}  # fmt: skip
"""Words of `layer_types`. Source: transformers 5.24 `ALLOWED_LAYER_TYPES`."""
STATE_WORDS = ("linear_attention", "mamba", "mamba2", "conv", "recurrent", "rwkv", "m")
PATTERN_WORDS = {"M": "mamba", "*": "full_attention", "-": "mlp", "E": "moe"}
"""Letters of Nemotron-H's `hybrid_override_pattern`.
Source: transformers 5.24 `NemotronHConfig`."""
GLOBAL_HEAD_DIM = 512
"""Of Gemma 4's full layers, where its config leaves it out.
Source: transformers 5.24 `Gemma4TextConfig`."""
LONGCAT = "longcat_flash"
"""Each of its layers has two of attention, two dense MLPs and a mixture.
Source: transformers 5.24 `LongcatFlashDecoderLayer`."""
MAMBA2_HEADS = ("mamba_num_heads", "mamba_n_heads")
PURE_STATE = {"mamba": "mamba", "falcon_mamba": "mamba", "mamba2": "mamba2", "rwkv": "rwkv",
              "rwkv5": "rwkv", "rwkv6": "rwkv", "rwkv7": "rwkv"}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What building a layer needs to know."""

    keys: Keys
    family: Family
    kind: str
    """The model type."""
    layers: int
    hidden_size: int
    heads: Heads

    def attention_layer(self, word: AttentionWord) -> Mixer:
        """Softmax attention with the sizes that this kind of layer has."""
        keys, heads = self.keys, self.heads
        window, shares_value = keys.find("sliding_window"), False
        if self.kind.startswith("gemma4") and word == "full":
            alike = keys.flag("attention_k_eq_v")
            dim = keys.count("global_head_dim", default=GLOBAL_HEAD_DIM)
            kv_heads = heads.kv_heads
            if alike:
                kv_heads = keys.count("num_global_key_value_heads", default=kv_heads)
            heads = Heads(heads=heads.heads, kv_heads=kv_heads, head_dim=dim, value_dim=dim)
            shares_value = alike
        if word == "sliding" and keys.has("swa_num_key_value_heads"):
            dim = keys.count("swa_head_dim", default=heads.head_dim)
            heads = Heads(
                heads=keys.count("swa_num_attention_heads", default=heads.heads),
                kv_heads=keys.count("swa_num_key_value_heads"),
                head_dim=dim,
                value_dim=keys.count("swa_v_head_dim", default=heads.value_dim),
            )
        if word == "chunked":
            window = keys.find("attention_chunk_size")
        made = attention(
            word, self.hidden_size, heads, family=self.family,
            window_tokens=window if isinstance(window, int) else 0, shares_value=shares_value,
        )  # fmt: skip
        return self._low_rank_query(made, heads.heads * heads.head_dim)

    def _low_rank_query(self, made: Mixer, query: int) -> Mixer:
        """Step 3: queries are made of a narrow vector that every rank computes."""
        rank = self.keys.find("share_q_dim")
        if not isinstance(rank, int) or rank <= 0:
            return made
        split = made.split + (rank - self.hidden_size) * query
        return replace(made, split=split, whole=made.whole + self.hidden_size * rank)

    def state_layer(self, word: str) -> Mixer:
        """A layer with a fixed state."""
        keys, width = self.keys, self.hidden_size
        makers: dict[str, Callable[[], Mixer]] = {
            "kimi_linear": lambda: kimi_delta(keys, width),
            "jamba": lambda: mamba1(keys, width, normed=True),
            "mamba": lambda: mamba1(keys, width, normed=False),
            "falcon_mamba": lambda: mamba1(keys, width, normed=False),
            "lfm2": lambda: short_convolution(keys, width),
            "lfm2_moe": lambda: short_convolution(keys, width),
            "lfm3": lambda: short_convolution(keys, width),
            "recurrent_gemma": lambda: recurrent(keys, width),
        }
        if self.kind in makers:
            return makers[self.kind]()
        if word == "rwkv":
            return rwkv(keys, width)
        if keys.has("linear_num_value_heads"):
            return delta_net(keys, width)
        if keys.has(*MAMBA2_HEADS) or word != "linear_attention" or self.kind == "mamba2":
            return mamba2(keys, width)
        return lightning(keys, width, self.heads.heads, self.heads.head_dim)


def mixers(plan: Plan) -> list[Mixer]:
    """One mixer a layer; the same object for layers of one kind."""
    keys = plan.keys
    if keys.has("block_configs"):
        return _searched_blocks(plan)
    if plan.kind == "deepseek_v4" or keys.has("compress_ratios"):
        make = cache(lambda r: compressed(keys, plan.hidden_size, plan.heads.heads, ratio=r))
        return [make(ratio) for ratio in _ratios(plan)]
    words = layer_words(plan)
    uses_latent = keys.has("kv_lora_rank") and keys.flag("use_mla", default=True)

    @cache
    def make_layer(word: str) -> Mixer:
        if word in ("mlp", "moe"):
            return attention("none", 0, Heads(heads=0, kv_heads=0, head_dim=0, value_dim=0),
                             family=Family())  # fmt: skip
        if word in STATE_WORDS:
            return plan.state_layer(word)
        if uses_latent:
            return latent(keys, plan.hidden_size, plan.heads.heads)
        return plan.attention_layer(ATTENTION_WORDS.get(word, "full"))

    made = [make_layer(word) for word in words]
    if plan.kind == LONGCAT:
        made = [mixer for mixer in made for _ in range(2)]
    if plan.kind == "falcon_h1":  # attention and Mamba side by side in every layer
        made = [*made, *[plan.state_layer("mamba")] * plan.layers]
    return _sharing_kv(plan, made)


def _ratios(plan: Plan) -> list[int]:
    """DeepSeek V4: how many tokens share an entry in each layer, 0 for the window alone."""
    stated = plan.keys.items("compress_ratios")
    if stated:
        return [int(ratio) for ratio in stated[: plan.layers]]
    by_word = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
    return [by_word.get(str(word), 0) for word in plan.keys.items("layer_types")]


def layer_words(plan: Plan) -> list[str]:
    """The kind of each layer in the words of `layer_types`."""
    keys, layers = plan.keys, plan.layers
    if plan.kind in PURE_STATE:
        return [PURE_STATE[plan.kind]] * layers
    return stated_words(keys, layers) or _periodic(plan) or _windowed(plan)


def stated_words(keys: Keys, layers: int) -> list[str]:
    """The kind of each layer where the config lists them all; empty where it does not."""
    if keys.text("hybrid_override_pattern"):
        return [PATTERN_WORDS.get(c, "mlp") for c in keys.text("hybrid_override_pattern")]
    for name in ("layer_types", "layers_block_type", "block_types", "_block_types"):
        stated = [str(word) for word in keys.items(name)]
        if stated:
            return (stated * -(-layers // len(stated)))[:layers]
    return []


def _periodic(plan: Plan) -> list[str]:
    keys, numbers = plan.keys, range(plan.layers)
    linear = keys.section("linear_attn_config")
    if linear is not None:
        full = set(linear.items("full_attn_layers"))  # counted from 1
        return ["full_attention" if i + 1 in full else "linear_attention" for i in numbers]
    if keys.has("full_attention_interval"):
        step = keys.count("full_attention_interval")
        return ["linear_attention" if (i + 1) % step else "full_attention" for i in numbers]
    if keys.has("attn_type_list"):  # MiniMax: 1 is softmax attention
        return ["full_attention" if a else "linear_attention" for a in keys.items("attn_type_list")]
    if keys.has("attn_layer_period"):
        period, offset = keys.count("attn_layer_period"), keys.count("attn_layer_offset", least=0)
        return ["attention" if i % period == offset else "mamba" for i in numbers]
    if keys.has("attn_layer_indices"):  # Bamba
        at = set(keys.items("attn_layer_indices"))
        return ["attention" if i in at else "mamba" for i in numbers]
    if keys.has("hybrid_layer_pattern"):  # MiMo-V2: 1 is sliding
        pattern = keys.items("hybrid_layer_pattern")
        return ["sliding_attention" if local else "full_attention" for local in pattern]
    if keys.has("layer_types_summary"):
        return _summed(keys)
    return []


def _summed(keys: Keys) -> list[str]:
    """From counts by kind, where the list itself was dropped."""
    section = keys.section("layer_types_summary")
    counts = section.values if section else {}
    return [word for word, number in counts.items() for _ in range(int(number))]


def _windowed(plan: Plan) -> list[str]:
    keys, layers = plan.keys, plan.layers
    full, local = "full_attention", "sliding_attention"
    if plan.kind.startswith("llama4") and keys.has("attention_chunk_size"):
        stated = keys.items("no_rope_layers") or [(i + 1) % 4 for i in range(layers)]
        return ["chunked_attention" if rope else full for rope in stated]
    window = keys.find("sliding_window")
    longest = keys.find("max_position_embeddings") or 0
    if not isinstance(window, int) or window <= 0 or (longest and window >= longest):
        return [full] * layers
    if keys.has("use_sliding_window") and not keys.flag("use_sliding_window"):
        return [full] * layers
    pattern = keys.values.get("sliding_window_pattern", keys.values.get("_sliding_window_pattern"))
    if isinstance(pattern, int) and pattern > 1:
        return [local if (i + 1) % pattern else full for i in range(layers)]
    if isinstance(pattern, str):  # EXAONE 4: "LLLG"
        return [local if pattern[i % len(pattern)] == "L" else full for i in range(layers)]
    if plan.kind in ("gpt_oss", "gemma2"):
        return [full if i % 2 else local for i in range(layers)]
    if plan.kind.startswith("qwen") and keys.has("max_window_layers"):
        first = keys.count("max_window_layers", least=0)
        return [local if i >= first else full for i in range(layers)]
    return [local] * layers


def _sharing_kv(plan: Plan, made: list[Mixer]) -> list[Mixer]:
    """The last layers of Gemma 3n and 4's E models read an earlier layer's K and V."""
    shared = plan.keys.find("num_kv_shared_layers")
    if not isinstance(shared, int) or shared <= 0:
        return made
    none = attention("none", 0, Heads(heads=0, kv_heads=0, head_dim=0, value_dim=0),
                     family=Family())  # fmt: skip

    @cache
    def without(split: int, small: int, head_dim: int) -> Mixer:
        return Mixer(cache=none.cache, split=split, small=small - head_dim)  # no norm of K

    return [*made[:-shared], *(without(m.split, m.small, m.cache.head_dim) for m in made[-shared:])]


def _searched_blocks(plan: Plan) -> list[Mixer]:
    """Nemotron NAS: each block states its own attention, or none, or one linear layer."""
    made = []
    for number, block in enumerate(plan.keys.items("block_configs")):
        block_keys = Keys(dict(block), f"{plan.keys.place}: block_configs/{number}")
        stated = block_keys.section("attention") or Keys({}, block_keys.place)
        if stated.flag("no_op") or stated.flag("replace_with_linear"):
            none = attention("none", 0, Heads(heads=0, kv_heads=0, head_dim=0, value_dim=0),
                             family=Family())  # fmt: skip
            linear = plan.hidden_size**2 if stated.flag("replace_with_linear") else 0
            made.append(Mixer(cache=none.cache, split=linear))
            continue
        kv_heads = plan.heads.heads // stated.count("n_heads_in_group", default=1)
        window = stated.find("window_length")
        heads = Heads(heads=plan.heads.heads, kv_heads=kv_heads, head_dim=plan.heads.head_dim,
                      value_dim=plan.heads.head_dim)  # fmt: skip
        word: AttentionWord = "sliding" if isinstance(window, int) else "full"
        made.append(attention(word, plan.hidden_size, heads, family=plan.family,
                              window_tokens=window if isinstance(window, int) else 0))  # fmt: skip
    return made

"""What one layer keeps of the past and the weights that mix its tokens, by kind of layer."""

from dataclasses import dataclass
from typing import Literal

from llmdeploy.model.families import Family
from llmdeploy.model.keys import Keys
from llmdeploy.model.shape import CacheLayers

INDEXER_ENTRY_SCALE_BYTES = 4
"""An indexer's key is kept in fp8 with one float32 scale.
Source: vLLM 0.11 `DeepseekV32Indexer`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixer:
    """One layer's cache and its weights, counts."""

    cache: CacheLayers
    split: int
    """Divided by tensor parallelism, K and V apart."""
    kv: int = 0
    whole: int = 0
    """Held by every rank."""
    small: int = 0
    """Norms, biases."""
    latent_up: int = 0
    """Of `split`."""

    @property
    def is_state(self) -> bool:
        return self.cache.kind == "state"


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """Sizes of one attention layer."""

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int


def attention(
    kind: Literal["full", "sliding", "chunked", "none"],
    hidden_size: int,
    heads: Heads,
    *,
    family: Family,
    window_tokens: int = 0,
    shares_value: bool = False,
    shares_kv: bool = False,
) -> Mixer:
    """A layer of softmax attention. `shares_value`: V is K (Gemma 4's full layers)."""
    query = heads.heads * heads.head_dim
    key, value = heads.kv_heads * heads.head_dim, heads.kv_heads * heads.value_dim
    kv = 0 if shares_kv else hidden_size * (key + (0 if shares_value else value))
    small = (query + (0 if shares_kv else key + value)) * family.qkv_bias
    small += hidden_size * family.out_bias
    small += {
        "none": 0,
        "head": heads.head_dim * (1 if shares_kv else 2),
        "full": query + key,
    }[family.qk_norm]
    cache = CacheLayers(
        kind=kind,
        layers=1,
        kv_heads=0 if kind == "none" else heads.kv_heads,
        head_dim=0 if kind == "none" else heads.head_dim,
        value_dim=0 if kind == "none" else heads.value_dim,
        window_tokens=window_tokens if kind in ("sliding", "chunked") else 0,
    )
    split = hidden_size * query * (2 if family.gated_query else 1)
    split += heads.heads * heads.value_dim * hidden_size
    return Mixer(cache=cache, split=split, kv=kv, small=small)


def latent(keys: Keys, hidden_size: int, heads: int) -> Mixer:
    """A layer of multi-head latent attention, with V3.2's indexer where the config has one."""
    rank, rope = keys.count("kv_lora_rank"), keys.count("qk_rope_head_dim")
    nope = keys.count("qk_nope_head_dim")
    value = keys.count("v_head_dim", default=nope)
    query_rank = keys.count("q_lora_rank", default=0, least=0)
    whole, small = hidden_size * (rank + rope), rank
    if query_rank:
        whole += hidden_size * query_rank
        small += query_rank
    split = (query_rank or hidden_size) * heads * (nope + rope) + heads * value * hidden_size
    up = rank * heads * (nope + value)
    indexer_bytes = 0
    if keys.has("index_n_heads"):
        index_heads, index_dim = keys.count("index_n_heads"), keys.count("index_head_dim")
        whole += (query_rank or hidden_size) * index_heads * index_dim
        whole += hidden_size * (index_dim + index_heads)
        small += 2 * index_dim
        indexer_bytes = index_dim + INDEXER_ENTRY_SCALE_BYTES
    cache = CacheLayers(
        kind="latent", layers=1, latent_dim=rank + rope, indexer_bytes=indexer_bytes
    )
    return Mixer(cache=cache, split=split + up, whole=whole, small=small, latent_up=up)


def compressed(keys: Keys, hidden_size: int, heads: int, *, ratio: int) -> Mixer:
    """A layer of DeepSeek V4: one K = V vector for all heads, kept for the last window and, every
    `ratio` tokens, once for all of them; ratio 4 has an indexer."""
    dim, query_rank = keys.count("head_dim"), keys.count("q_lora_rank")
    out_rank, groups = keys.count("o_lora_rank"), keys.count("o_groups")
    split = query_rank * heads * dim + heads * dim * out_rank + groups * out_rank * hidden_size
    whole, small, indexer_bytes = hidden_size * (query_rank + dim), query_rank + dim + heads, 0
    if ratio:
        width = 2 if ratio == 4 else 1  # neighbouring blocks overlap at the small ratio
        whole += 2 * hidden_size * width * dim + ratio * width * dim
        small += dim
    if ratio == 4:
        index_heads, index_dim = keys.count("index_n_heads"), keys.count("index_head_dim")
        whole += query_rank * index_heads * index_dim + hidden_size * index_heads
        whole += 4 * hidden_size * index_dim + 8 * index_dim
        small += index_dim
        indexer_bytes = index_dim + INDEXER_ENTRY_SCALE_BYTES
    window = keys.count("sliding_window", default=128)
    cache = (
        CacheLayers(
            kind="latent", layers=1, latent_dim=dim, compression=ratio, window_tokens=window,
            indexer_bytes=indexer_bytes,
        )
        if ratio
        else CacheLayers(kind="sliding", layers=1, kv_heads=1, head_dim=dim, window_tokens=window)
    )  # fmt: skip
    return Mixer(cache=cache, split=split, whole=whole, small=small)

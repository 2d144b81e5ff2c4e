"""Layers that keep a fixed state a request: Mamba, gated delta nets, short convolutions, RWKV."""

from typing import Literal, cast

from llmdeploy.model.keys import Keys
from llmdeploy.model.mixers import Mixer
from llmdeploy.model.shape import CacheLayers

StateDtype = Literal["bfloat16", "float16", "float32"]


def mamba1(keys: Keys, hidden_size: int, *, normed: bool) -> Mixer:
    """Mamba: an expanded width, each channel with its own state. `normed`: Jamba's three norms."""
    inner = keys.count("mamba_expand", default=keys.count("expand", default=2)) * hidden_size
    inner = keys.count("mamba_intermediate_size", default=inner)
    state = keys.count("mamba_d_state", default=keys.count("state_size", default=16))
    kernel = keys.count("mamba_d_conv", default=keys.count("conv_kernel", default=4))
    rank = keys.values.get("mamba_dt_rank", keys.values.get("time_step_rank"))
    rank = rank if isinstance(rank, int) else -(-hidden_size // 16)
    split = hidden_size * 2 * inner + inner * (rank + 2 * state) + rank * inner
    split += inner * hidden_size + inner * kernel + inner * state
    small = 3 * inner + ((rank + 2 * state) if normed else 0)
    return _state(keys, split=split, small=small, recurrent=inner * state,
                  convolution=inner * (kernel - 1))  # fmt: skip


def mamba2(keys: Keys, hidden_size: int) -> Mixer:
    """Mamba 2: heads that share one decay, B and C in groups."""
    heads = _first(keys, "mamba_num_heads", "mamba_n_heads", "num_heads")
    head_dim = _first(keys, "mamba_head_dim", "mamba_d_head", "head_dim")
    groups = _first(keys, "n_groups", "mamba_n_groups", "mamba_ngroups", default=1)
    state = _first(keys, "ssm_state_size", "mamba_d_state", "state_size", default=128)
    kernel = _first(keys, "conv_kernel", "mamba_d_conv", default=4)
    inner = heads * head_dim
    convolved = inner + 2 * groups * state
    split = hidden_size * (inner + convolved + heads) + inner * hidden_size + convolved * kernel
    small = convolved + 3 * heads + inner
    return _state(keys, split=split, small=small, recurrent=heads * head_dim * state,
                  convolution=convolved * (kernel - 1))  # fmt: skip


def delta_net(keys: Keys, hidden_size: int) -> Mixer:
    """Gated delta net of Qwen3-Next and 3.5: a matrix state for each value head."""
    keys_width = keys.count("linear_num_key_heads") * keys.count("linear_key_head_dim")
    value_heads = keys.count("linear_num_value_heads")
    value_dim, kernel = keys.count("linear_value_head_dim"), keys.count("linear_conv_kernel_dim")
    values_width = value_heads * value_dim
    convolved = 2 * keys_width + values_width
    split = hidden_size * (convolved + values_width + 2 * value_heads)
    split += values_width * hidden_size + convolved * kernel
    return _state(keys, split=split, small=2 * value_heads + value_dim,
                  recurrent=value_heads * keys.count("linear_key_head_dim") * value_dim,
                  convolution=convolved * (kernel - 1))  # fmt: skip


def kimi_delta(keys: Keys, hidden_size: int) -> Mixer:
    """Kimi delta attention: a matrix state for each head, gates of low rank."""
    linear = keys.section("linear_attn_config")
    if linear is None:
        raise keys.wrong("linear_attn_config", None, "the linear layers' heads and kernel")
    heads, dim = linear.count("num_heads"), linear.count("head_dim")
    kernel, width = linear.count("short_conv_kernel_size", default=4), heads * dim
    split = 4 * hidden_size * width + 3 * width * kernel + 2 * dim * width + hidden_size * heads
    return _state(keys, split=split, whole=2 * hidden_size * dim, small=width + heads + dim,
                  recurrent=heads * dim * dim, convolution=3 * width * (kernel - 1))  # fmt: skip


def short_convolution(keys: Keys, hidden_size: int) -> Mixer:
    """LFM2: a gated convolution over the last few tokens."""
    kernel = keys.count("conv_L_cache", default=3)
    split = 4 * hidden_size * hidden_size + hidden_size * kernel
    return _state(keys, split=split, small=0, recurrent=0,
                  convolution=hidden_size * (kernel - 1))  # fmt: skip


def lightning(keys: Keys, hidden_size: int, heads: int, head_dim: int) -> Mixer:
    """Lightning attention of MiniMax-01 and M1: linear attention with an output gate."""
    width = heads * head_dim
    return _state(keys, split=5 * hidden_size * width, small=width,
                  recurrent=heads * head_dim * head_dim, convolution=0)  # fmt: skip


def rwkv(keys: Keys, hidden_size: int) -> Mixer:
    """RWKV: receptance, key, value, gate and output of the model's width; a matrix a head."""
    dim = keys.count("head_dim", default=keys.count("head_size", default=64))
    width = keys.count("attention_hidden_size", default=hidden_size)
    return _state(keys, split=5 * hidden_size * width, small=16 * hidden_size,
                  recurrent=width * dim, convolution=2 * hidden_size)  # fmt: skip


def recurrent(keys: Keys, hidden_size: int) -> Mixer:
    """RG-LRU of RecurrentGemma: a vector state, gates of block-diagonal matrices."""
    width = keys.count("lru_width", default=hidden_size)
    kernel = keys.count("conv1d_width", default=4)
    blocks = keys.count("num_attention_heads")
    split = 3 * hidden_size * width + width * kernel + 2 * width * width // blocks
    return _state(keys, split=split, small=7 * width, recurrent=width,
                  convolution=width * (kernel - 1))  # fmt: skip


def _state(
    keys: Keys, *, split: int, small: int, recurrent: int, convolution: int, whole: int = 0
) -> Mixer:
    asked = keys.text("mamba_ssm_dtype") or keys.text("mamba_ssm_cache_dtype")
    known = asked in ("bfloat16", "float16", "float32")
    cache = CacheLayers(
        kind="state",
        layers=1,
        state_elements=recurrent + convolution,
        convolution_elements=convolution,
        state_dtype=cast(StateDtype, asked) if known else None,
    )
    return Mixer(cache=cache, split=split, whole=whole, small=small)


def _first(keys: Keys, *names: str, default: int | None = None) -> int:
    for name in names:
        if keys.has(name):
            return keys.count(name)
    return keys.count(names[0], default=default)

"""Decoder layers of the Llama family with few, larger operations, for the paged cache on CPU."""

from typing import Any

import torch
from torch.nn.functional import layer_norm, rms_norm, silu

from llmdeploy.engine.attention import (
    CurrentStep,
    Packing,
    PageShape,
    PrefillSpan,
    attend_decode,
    attend_prefill,
)
from llmdeploy.engine.linear import Matmul, packed_linear

FAMILY = ("LlamaDecoderLayer", "MistralDecoderLayer", "Qwen2DecoderLayer")
"""Classes whose forward pass is: norm, attention with rotary Q and K, add, norm, gated MLP, add."""

_FEW_ROWS = 16


def can_fuse(model: Any) -> bool:
    """Whether every layer is of the family, with full attention, SiLU, and plain linear layers."""
    config = model.config.get_text_config()
    layers = getattr(getattr(model, "model", None), "layers", ())
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    return (
        len(layers) > 0
        and all(type(layer).__name__ in FAMILY for layer in layers)
        and all(type(layer.self_attn.q_proj) is torch.nn.Linear for layer in layers)
        and kinds == {"full_attention"}
        and (getattr(config, "layer_types", None) or not getattr(config, "sliding_window", None))
        and config.hidden_act == "silu"
        and config.num_attention_heads % config.num_key_value_heads == 0
    )


def page_shape(model: Any, *, page_tokens: int) -> PageShape:
    """The shape of the model's pages in the manager's cache."""
    config = model.config.get_text_config()
    return PageShape(
        kv_heads=config.num_key_value_heads,
        page_tokens=page_tokens,
        head_dim=model.model.layers[0].self_attn.head_dim,
        layers=config.num_hidden_layers,
    )


def fuse(model: Any, *, step: CurrentStep, keep_plain: bool) -> None:
    """Gives every layer, the last norm and the head (in place) a forward pass of this module."""
    config = model.config.get_text_config()
    for index, layer in enumerate(model.model.layers):
        fused = FusedLayer(layer, index, config=config, step=step, keep_plain=keep_plain)
        layer.forward = fused.forward
        layer.self_attn, layer.mlp = None, None
    model.model.norm.forward = RmsNorm(model.model.norm)
    head = model.lm_head
    head.forward = packed_linear(head.weight.data, head.bias, keep_plain=keep_plain)


class RmsNorm:
    """x / rms(x) x weight in one kernel for few rows.

    The layer norm of (x, -x) has mean 0 and variance mean(x^2): its first half is the RMS norm of
    x. 5 us instead of 10 us at one row of 576, as much at 16, one core of a Xeon.
    """

    def __init__(self, norm: Any) -> None:
        self._weight = norm.weight.data
        self._epsilon = norm.variance_epsilon
        self._twice = torch.cat((self._weight, self._weight))
        self._size = self._weight.numel()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[-2] > _FEW_ROWS:
            return rms_norm(x, (self._size,), self._weight, self._epsilon)
        both = torch.cat((x, -x), -1)
        normed = layer_norm(both, (2 * self._size,), self._twice, None, self._epsilon)
        return normed[..., : self._size]


def _joined(*modules: Any, keep_plain: bool) -> Matmul:
    """One product for linear layers with the same input; their outputs lie side by side."""
    weight = torch.cat([module.weight.data for module in modules])
    biases = [module.bias for module in modules]
    bias = None if biases[0] is None else torch.cat([b.data for b in biases])
    return packed_linear(weight, bias, keep_plain=keep_plain)


class FusedLayer:
    """One decoder layer: seven products and additions, one cache write, one read a group."""

    def __init__(
        self, layer: Any, index: int, *, config: Any, step: CurrentStep, keep_plain: bool
    ) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self._index = index
        self._step = step
        self._head_dim = attention.head_dim
        self._scaling = attention.scaling
        self._heads = config.num_attention_heads
        self._kv_heads = config.num_key_value_heads
        self._norm_in = RmsNorm(layer.input_layernorm)
        self._norm_mid = RmsNorm(layer.post_attention_layernorm)
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        self._qkv = _joined(*projections, keep_plain=keep_plain)
        self._out = _joined(attention.o_proj, keep_plain=keep_plain)
        self._gate_up = _joined(mlp.gate_proj, mlp.up_proj, keep_plain=keep_plain)
        self._down = _joined(mlp.down_proj, keep_plain=keep_plain)
        self._intermediate = mlp.gate_proj.out_features
        self._cache: Any = None
        self._rows = self._pages = torch.empty(0)

    def forward(
        self,
        hidden_states: torch.Tensor,
        *,
        position_embeddings: tuple[torch.Tensor, torch.Tensor],
        cache: Any,
        **_: Any,
    ) -> torch.Tensor:
        """(1, tokens, hidden), as the class it stands in for."""
        packing = self._step.packing
        assert packing is not None, "the batch sets the packing before each forward pass"
        if cache is not self._cache:
            self._look_at(cache)
        attended = self._attend(self._norm_in(hidden_states), position_embeddings, packing)
        hidden_states = hidden_states + self._out(attended)
        both = self._gate_up(self._norm_mid(hidden_states))
        gate, up = both[..., : self._intermediate], both[..., self._intermediate :]
        return hidden_states + self._down(silu(gate).mul_(up))

    def _look_at(self, cache: Any) -> None:
        """Views on the cache's memory that start at this layer's first page."""
        allocator = cache.layer_to_allocator[self._index]
        page_numbers = allocator.tokens_per_page * self._head_dim
        first = allocator.layer_indices.index(self._index) * 2 * self._kv_heads
        flat = allocator.cache_tensor.view(-1)
        self._pages = flat.view(-1, page_numbers)[first:]
        self._rows = flat.view(-1, self._head_dim)[first * allocator.tokens_per_page :]
        self._cache = cache

    def _attend(
        self, x: torch.Tensor, cos_sin: tuple[torch.Tensor, torch.Tensor], packing: Packing
    ) -> torch.Tensor:
        tokens = x.shape[1]
        qkv = self._qkv(x).view(tokens, -1, self._head_dim)
        if packing.rotation is None:
            packing.rotation = self._rotation(*cos_sin)
        cos, minus_sin, sin = packing.rotation
        half = self._head_dim // 2
        rotated = qkv * cos
        rotated[..., :half].addcmul_(qkv[..., half:], minus_sin)
        rotated[..., half:].addcmul_(qkv[..., :half], sin)
        written = rotated[:, self._heads :].reshape(-1, self._head_dim)
        self._rows.index_copy_(0, packing.write_rows, written)
        if len(packing.groups) == 1 and not packing.spans:
            return self._decode(rotated, packing).unsqueeze(0)
        out = torch.empty(tokens, self._heads * self._head_dim, dtype=x.dtype)
        for group in packing.groups:
            query = rotated[group.rows, : self._heads]
            out[group.rows] = attend_decode(
                query, self._gather(group.pages, group.sequences), group
            )
        for span in packing.spans:
            out[span.rows] = self._prefill(rotated[span.rows], span)
        return out.unsqueeze(0)

    def _decode(self, rotated: torch.Tensor, packing: Packing) -> torch.Tensor:
        (group,) = packing.groups
        query = rotated[:, : self._heads]
        if not isinstance(group.rows, slice):
            query = query[group.rows]
        out = attend_decode(query, self._gather(group.pages, group.sequences), group)
        if isinstance(group.rows, slice):
            return out
        return torch.empty_like(out).index_copy_(0, group.rows, out)

    def _gather(self, pages: torch.Tensor, sequences: int) -> torch.Tensor:
        """(2, sequences x KV heads, tokens, head_dim): K and V of these pages."""
        gathered = self._pages.index_select(0, pages)
        return gathered.view(2, sequences * self._kv_heads, -1, self._head_dim)

    def _prefill(self, rotated: torch.Tensor, span: PrefillSpan) -> torch.Tensor:
        query = rotated[:, : self._heads].transpose(0, 1)
        if span.pages is None:
            keys, values = rotated[:, self._heads :].transpose(0, 1).chunk(2)
        else:
            keys, values = self._gather(span.pages, 1)[:, :, : span.length]
        return attend_prefill(query, keys, values, span).transpose(0, 1).flatten(1)

    def _rotation(
        self, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """cos and both sin halves for all heads of a token; Q heads scaled, V heads unturned."""
        half = self._head_dim // 2
        heads = torch.ones(self._heads + 2 * self._kv_heads, 1, dtype=cos.dtype)
        heads[: self._heads] = self._scaling
        turned = heads.clone()
        turned[self._heads + self._kv_heads :] = 0
        every_cos = cos[0][:, None, :] * heads
        every_cos[:, self._heads + self._kv_heads :] = 1
        every_sin = sin[0][:, None, :] * turned
        return every_cos, -every_sin[..., :half], every_sin[..., half:].contiguous()

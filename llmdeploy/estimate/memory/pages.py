"""vLLM's paged cache: groups of layers that share blocks, and the tokens it prints for them.

Source: vLLM 0.9 to 0.29 `v1/core/kv_cache_utils.py`, `v1/kv_cache_interface.py`."""

import math
from dataclasses import dataclass

from llmdeploy.estimate.memory.layers import LayerCache
from llmdeploy.estimate.memory.vllm_rules import VllmRules
from llmdeploy.model import CacheKind

DEFAULT_BLOCK_TOKENS = 16
"""Source: vLLM `CacheConfig.block_size`, its default on CUDA and ROCm since 0.2."""
LATENT_ALIGNMENT_TOKENS = 64
"""Blocks of MLA beside state layers are whole multiples of it.

Source: vLLM 0.11 `HybridAttentionMambaModelConfig`, kernel_block_alignment_size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Layers that share a block table."""

    kind: CacheKind
    block_tokens: int
    window_tokens: int = 0
    state_blocks: int = 0
    """Blocks that hold a request's state, whatever its length."""

    def blocks(self, length_tokens: int, batched_tokens: int) -> int:
        """Blocks of one request of that length."""
        if self.kind == "state":
            return self.state_blocks
        if self.kind == "sliding":
            held = min(self.window_tokens - 1 + batched_tokens, length_tokens)
            return -(-held // self.block_tokens) + 1
        if self.kind == "chunked":
            held = min(self.window_tokens + batched_tokens, length_tokens)
            return -(-held // self.block_tokens)
        return -(-length_tokens // self.block_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Paged:
    """A paged cache before its size is known."""

    block_bytes: float
    """One block in all layers of the fullest pipeline stage."""
    groups: tuple[Group, ...]
    batched_tokens: int
    prints_concurrency: bool
    """Printed tokens are concurrency x max_model_len, else blocks over groups."""

    def per_request(self, length_tokens: int) -> int:
        """Blocks that one request of that length takes in all groups."""
        return sum(group.blocks(length_tokens, self.batched_tokens) for group in self.groups)

    def blocks(self, available_bytes: float) -> int:
        """Whole blocks in so many bytes."""
        return max(0, int(available_bytes / self.block_bytes))

    def capacity_tokens(self, available_bytes: float, length_tokens: int) -> int:
        """Tokens as this version prints them."""
        if self.prints_concurrency:
            return int(self.concurrency(available_bytes, length_tokens) * length_tokens)
        return self.blocks(available_bytes) // len(self.groups) * self._smallest

    def concurrency(self, available_bytes: float, length_tokens: int) -> float:
        """Requests of that length at once, as printed."""
        return self.blocks(available_bytes) / max(1, self.per_request(length_tokens))

    def taken_bytes(self, available_bytes: float, length_tokens: int) -> float:
        """All of it: vLLM prints what is available, not the whole blocks in it."""
        return available_bytes

    @property
    def _smallest(self) -> int:
        return min(group.block_tokens for group in self.groups)

    def needed_bytes(self, length_tokens: int) -> float:
        """One request of that length, in bytes."""
        return self.per_request(length_tokens) * self.block_bytes

    def bytes_per_token(self, length_tokens: int) -> float:
        """Bytes of the cache over the tokens printed for it."""
        if self.prints_concurrency and len(self.groups) > 1:
            return self.per_request(length_tokens) * self.block_bytes / length_tokens
        return self.block_bytes * len(self.groups) / self._smallest

    def longest_tokens(self, available_bytes: float, limit_tokens: int) -> int:
        """The longest request, up to the limit, that the cache holds; 0 where none fits."""
        low, high = 0, limit_tokens
        while low < high:
            middle = (low + high + 1) // 2
            if self.needed_bytes(middle) <= available_bytes:
                low = middle
            else:
                high = middle - 1
        return low


def paged(
    layers: tuple[LayerCache, ...],
    rules: VllmRules,
    *,
    length_tokens: int,
    batched_tokens: int,
    block_tokens: int = DEFAULT_BLOCK_TOKENS,
) -> Paged | None:
    """The paged cache of a model's layers; None where they keep nothing."""
    if not rules.groups:
        layers = tuple(layer for layer in layers if layer.kind != "state")
    if not layers:
        return None
    kinds = {(layer.kind, layer.window_tokens) for layer in layers}
    chunked = any(layer.kind == "chunked" for layer in layers) and not rules.chunked_groups
    if not rules.groups or chunked or len(kinds) == 1:
        groups, block_bytes = _one_group(layers, rules, length_tokens, block_tokens)
    else:
        groups, block_bytes = _grouped(layers, rules, block_tokens)
    return Paged(
        block_bytes=block_bytes,
        groups=groups,
        batched_tokens=batched_tokens,
        prints_concurrency=rules.prints_concurrency,
    )


def _one_group(
    layers: tuple[LayerCache, ...], rules: VllmRules, length_tokens: int, block_tokens: int
) -> tuple[tuple[Group, ...], float]:
    """One block table for all layers, and the bytes of a block in all of them."""
    kind = layers[0].kind if len(layers) == 1 and rules.groups else "full"
    if kind == "state":
        size = sum(layer.stage_layers * layer.state_bytes for layer in layers)
        return (Group(kind="state", block_tokens=length_tokens, state_blocks=1),), float(size)
    if kind == "chunked" and not rules.chunked_groups:
        kind = "full"
    size_per_token = sum(layer.stage_layers * layer.bytes_per_token for layer in layers)
    group = Group(kind=kind, block_tokens=block_tokens, window_tokens=layers[0].window_tokens)
    return (group,), block_tokens * size_per_token


def _grouped(
    layers: tuple[LayerCache, ...], rules: VllmRules, block_tokens: int
) -> tuple[tuple[Group, ...], float]:
    """Groups of equally many layers, padded, whose blocks have the same bytes in each layer.

    A state takes one block, so blocks of attention are made as large as the state; of layers
    with fewer bytes a token a block holds more tokens.
    """
    counts = [layer.layers for layer in layers]
    size = min(counts)
    if max(counts) < size * rules.padding_ratio:
        size = max(counts)
    page_bytes = _page_bytes(layers, block_tokens)
    groups = tuple(
        _group(layer, page_bytes, rules)
        for layer in layers
        for _ in range(-(-layer.layers // size))
    )
    stage_ratio = max(layer.stage_layers / layer.layers for layer in layers)
    return groups, page_bytes * math.ceil(size * stage_ratio)


def _page_bytes(layers: tuple[LayerCache, ...], block_tokens: int) -> float:
    """One block in one layer, in bytes."""
    widest = max(layer.bytes_per_token for layer in layers)
    state_bytes = max(layer.state_bytes for layer in layers)
    if not state_bytes:
        return block_tokens * widest
    latent = any(layer.kind == "latent" for layer in layers)
    aligned = max(block_tokens, LATENT_ALIGNMENT_TOKENS) if latent else block_tokens
    return math.ceil(state_bytes / (aligned * widest)) * aligned * widest


def _group(layer: LayerCache, page_bytes: float, rules: VllmRules) -> Group:
    if layer.kind == "state":
        # of the printed tokens the smallest block counts: a state's never is
        return Group(kind="state", block_tokens=2**40, state_blocks=rules.state_blocks)
    return Group(
        kind=layer.kind,
        block_tokens=int(page_bytes / layer.bytes_per_token),
        window_tokens=layer.window_tokens,
    )

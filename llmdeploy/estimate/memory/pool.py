"""A KV cache of equal cells, one a token, given out in pages: SGLang, TensorRT-LLM and others."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Cells before their number is known."""

    cell_bytes: float
    """Of one token in all layers, with its share of what is kept a request."""
    page_tokens: int = 1

    def capacity_tokens(self, available_bytes: float, length_tokens: int) -> int:
        """Whole pages' tokens in so many bytes."""
        tokens = int(max(0.0, available_bytes) / self.cell_bytes)
        return tokens // self.page_tokens * self.page_tokens

    def bytes_per_token(self, length_tokens: int) -> float:
        """Bytes of one cell."""
        return self.cell_bytes

    def needed_bytes(self, length_tokens: int) -> float:
        """Whole pages of one request of that length."""
        return -(-length_tokens // self.page_tokens) * self.page_tokens * self.cell_bytes

    def taken_bytes(self, available_bytes: float, length_tokens: int) -> float:
        """The cells' own bytes."""
        return self.capacity_tokens(available_bytes, length_tokens) * self.cell_bytes

    def longest_tokens(self, available_bytes: float, limit_tokens: int) -> int:
        """The longest request, up to the limit."""
        return min(limit_tokens, self.capacity_tokens(available_bytes, limit_tokens))

    def concurrency(self, available_bytes: float, length_tokens: int) -> float:
        """Requests of that length at once."""
        return self.capacity_tokens(available_bytes, length_tokens) / length_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedCells(Pool):
    """As many cells as the longest request: llama.cpp takes its whole context at the start."""

    tokens: int

    def capacity_tokens(self, available_bytes: float, length_tokens: int) -> int:
        return self.tokens

    def longest_tokens(self, available_bytes: float, limit_tokens: int) -> int:
        return min(limit_tokens, int(max(0.0, available_bytes) / self.cell_bytes))

    def concurrency(self, available_bytes: float, length_tokens: int) -> float:
        return self.tokens / length_tokens

"""Linear layers for few rows on CPU: prepacked for oneDNN, and as stored for a single row."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.functional import linear

_ROWS_PACKED_FOR = 16

Matmul = Callable[[torch.Tensor], torch.Tensor]


def packed_linear(weight: torch.Tensor, bias: torch.Tensor | None, *, keep_plain: bool) -> Matmul:
    """x (..., in) -> (..., out) with `weight` (out, in).

    oneDNN reorders a plain bf16 weight at every call; packed once, it takes half the time at 1
    to 32 rows. At one row ATen's own gemv may be faster still (`gemv_helps`), but only with oneDNN
    switched off (slower at more rows); it needs the plain weight beside the packed one. Rows of a
    packed product do not depend on how many there are, from 2 on; the gemv rounds otherwise, so
    that in bf16 an answer given alone can part at a near tie from the one given in company.
    """
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS_PACKED_FOR)
    forward = torch.ops.mkldnn._linear_pointwise.default
    plain = weight if keep_plain else None
    one_row = weight.shape[1]
    switch = torch._C._set_mkldnn_enabled

    def apply(x: torch.Tensor) -> torch.Tensor:
        if plain is None or x.numel() != one_row:
            result: torch.Tensor = forward(x, packed, bias, "none", [], "")
            return result
        switch(False)
        try:
            return linear(x, plain, bias)
        finally:
            switch(True)

    return apply


def can_pack(dtype: torch.dtype) -> bool:
    """Whether oneDNN packs weights of this type on this machine."""
    if not torch.backends.mkldnn.is_available():
        return False
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return bool(dtype == torch.float32)


def gemv_helps(dtype: torch.dtype) -> bool:
    """Whether one row is faster by ATen's gemv than by the packed product.

    1.1 to 1.7 times on Zen 4 and AVX2. Not in bf16 with AMX: the products of one row of a 135M
    model took 30.7 ms packed and 37.3 ms by gemv on one core of a Xeon, 16.3 and 19.5 ms on two.
    """
    return not (dtype == torch.bfloat16 and torch.cpu._is_amx_tile_supported())


def pack_linears(model: Any, *, keep_plain: bool) -> int:
    """How many `nn.Linear` of the model (in place) now multiply with packed weights."""
    linears = [module for module in model.modules() if type(module) is nn.Linear]
    for module in linears:
        module.forward = packed_linear(module.weight.data, module.bias, keep_plain=keep_plain)
        if not keep_plain and module.weight is not _tied_weight(model):
            module.weight = None
    return len(linears)


def _tied_weight(model: Any) -> Any:
    embedding = model.get_input_embeddings()
    return embedding.weight if embedding is not None else None

"""Packed linear layers give what plain ones give."""

import pytest
import torch
from torch import nn

from llmdeploy.engine.linear import can_pack, pack_linears, packed_linear


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 2, 17])
@pytest.mark.parametrize("keep_plain", [True, False])
@pytest.mark.parametrize("biased", [True, False])
def test_a_packed_layer_gives_what_the_plain_one_gives(dtype, rows, keep_plain, biased):
    torch.manual_seed(0)
    if not can_pack(dtype):
        pytest.skip(f"oneDNN packs no {dtype} weights on this processor")
    weight = torch.randn(48, 32, dtype=dtype)
    bias = torch.randn(48, dtype=dtype) if biased else None
    x = torch.randn(1, rows, 32, dtype=dtype)
    out = packed_linear(weight, bias, keep_plain=keep_plain)(x)
    expected = torch.nn.functional.linear(
        x.float(), weight.float(), bias if bias is None else bias.float()
    )
    assert out.shape == (1, rows, 48)
    assert torch.allclose(out.float(), expected, atol=1e-4 if dtype == torch.float32 else 0.2)


def test_one_row_leaves_onednn_on():
    packed_linear(torch.randn(8, 8), None, keep_plain=True)(torch.randn(1, 1, 8))
    assert torch.backends.mkldnn.enabled
    assert torch._C._get_mkldnn_enabled()


def test_float16_is_not_packed():
    assert can_pack(torch.float32)
    assert not can_pack(torch.float16)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(16, 8)
        self.hidden = nn.Linear(8, 8)
        self.head = nn.Linear(8, 16, bias=False)
        self.head.weight = self.embedding.weight

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embedding

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.hidden(self.embedding(ids)))


@pytest.mark.parametrize("keep_plain", [True, False])
def test_all_linear_layers_of_a_model_are_packed_in_place(keep_plain):
    torch.manual_seed(0)
    net = Net().requires_grad_(False)
    expected = net(torch.tensor([[3, 5]]))
    assert pack_linears(net, keep_plain=keep_plain) == 2
    assert torch.allclose(net(torch.tensor([[3, 5]])), expected, atol=1e-5)
    assert net.embedding.weight is not None

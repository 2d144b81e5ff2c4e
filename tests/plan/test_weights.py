"""In which formats weights are tried, on what."""

import pytest

from llmdeploy.catalog import devices
from llmdeploy.plan.weights import choices, dtype

from .stand_ins import DEEPSEEK_671B, LLAMA_8B, service, shape


def names(device: str, quantization: str = "auto", config: dict = LLAMA_8B) -> list[str]:
    wanted = service(model={"quantization": quantization})
    return [w.name for w in choices(wanted, shape(config), devices.find(device))]


def test_auto_takes_fp8_only_where_it_is_multiplied_and_4_bits_last():
    assert names("h100") == ["bf16", "fp8", "awq"]
    assert names("a100") == ["bf16", "awq"]
    losses = [w.loss for w in choices(service(), shape(LLAMA_8B), devices.find("h100"))]
    assert losses == [0, 1, 2]


@pytest.mark.parametrize(("asked", "tried"), [("none", "bf16"), ("fp8", "fp8"), ("gptq", "gptq")])
def test_what_is_asked_for_is_tried_alone(asked, tried):
    assert names("h100", asked) == [tried]


def test_a_quantised_checkpoint_is_held_as_it_is():
    assert names("h200", "auto", DEEPSEEK_671B) == ["fp8_block"]
    assert names("h200", "awq", DEEPSEEK_671B) == ["fp8_block"]


@pytest.mark.parametrize(
    ("device", "stored", "held"),
    [("h100", "bfloat16", "bfloat16"), ("t4", "bfloat16", "float16"), ("h100", "float32",
     "bfloat16"), ("mi300x", "float16", "float16")],
)  # fmt: skip
def test_devices_without_bfloat16_take_float16(device, stored, held):
    found = dtype(service(), shape(LLAMA_8B, torch_dtype=stored), devices.find(device))
    assert found == held

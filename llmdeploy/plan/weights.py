"""In which formats a model's weights may be held, best quality first."""

from dataclasses import dataclass
from typing import Literal

from llmdeploy.catalog.types import DeviceSpec
from llmdeploy.model import ModelShape, WeightFormat, weight_format
from llmdeploy.service import Service

Convert = Literal["none", "int8", "nf4", "fp8"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """One way to hold the weights."""

    name: str
    """`bf16`, `fp8`, `awq`, …"""
    format: WeightFormat | None
    """None: plain, in the dtype."""
    convert: Convert
    """What the engine converts to while loading; `none`: the checkpoint is like that."""
    needs_checkpoint: bool
    """Whether a checkpoint in that format has to be there first."""
    loss: int
    """0: as trained and published; 1: 8 bits; 2: 4 bits. Orders choices by quality."""


def choices(service: Service, shape: ModelShape, device: DeviceSpec) -> tuple[Weights, ...]:
    """The formats to try on that device; one where the service or the checkpoint decides.

    `auto` takes the checkpoint as it is, and fewer bits only where that does not carry the
    service: fp8 where the device multiplies it, then 4 bits, which need another checkpoint; on
    Ascend the 8 bits of its own quantiser, which need one too.
    """
    asked = service.model.quantization
    if shape.weight_format is not None:  # a quantised checkpoint cannot be held otherwise
        return (_own(shape.weight_format),)
    match asked:
        case "auto":
            fp8 = (_converted("fp8"),) if device.fp8_flops_per_s else ()
            fewer = (_checkpoint("w8a8"),) if device.vendor == "ascend" else (_checkpoint("awq"),)
            return (plain(service, shape, device), *fp8, *fewer)
        case "none":
            return (plain(service, shape, device),)
        case "awq" | "gptq":
            return (_checkpoint(asked),)
        case _:
            return (_converted(asked),)


def plain(service: Service, shape: ModelShape, device: DeviceSpec) -> Weights:
    """The dtype itself."""
    name = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}[dtype(service, shape, device)]
    return Weights(name=name, format=None, convert="none", needs_checkpoint=False, loss=0)


def dtype(
    service: Service, shape: ModelShape, device: DeviceSpec
) -> Literal["bfloat16", "float16", "float32"]:
    """What activations and plain weights are held in: engines serve float32 checkpoints in 16
    bits, and bfloat16 as float16 where the device has none.

    Source: vLLM 0.33 `ModelConfig` dtype `auto`; bfloat16 needs compute capability 8.0.
    """
    if service.model.dtype != "auto":
        return service.model.dtype
    capability = device.compute_capability
    if capability is not None and float(capability) < 8.0:
        return "float16"
    return "float16" if shape.dtype == "float16" else "bfloat16"


def _own(format: WeightFormat) -> Weights:
    loss = 0  # it was published so: there is nothing better to compare with
    return Weights(
        name=format.method, format=format, convert="none", needs_checkpoint=False, loss=loss
    )


def _converted(method: Literal["int8", "nf4", "fp8"]) -> Weights:
    return Weights(
        name=method,
        format=weight_format(method),
        convert=method,
        needs_checkpoint=False,
        loss=2 if method == "nf4" else 1,
    )


def _checkpoint(method: Literal["awq", "gptq", "w8a8"]) -> Weights:
    return Weights(
        name=method,
        format=weight_format(method),
        convert="none",
        needs_checkpoint=True,
        loss=1 if method == "w8a8" else 2,
    )

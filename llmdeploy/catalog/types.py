"""Values of the catalog: a device, a link between devices, an engine with its version."""

from dataclasses import dataclass
from typing import Literal

Vendor = Literal["nvidia", "amd", "intel", "ascend", "apple", "habana", "cpu", "other"]
EngineName = Literal[
    "vllm", "sglang", "tensorrt-llm", "lmdeploy", "tgi", "llama.cpp", "mlc", "mindie", "exllama",
    "embedded",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpec:
    """One accelerator (or CPU) as its maker describes it. None: not published."""

    id: str
    name: str
    vendor: Vendor
    architecture: str
    """Such as `hopper`, `ada`, `cdna3`, `da-vinci`: what kernels and calibrations share."""
    memory_bytes: int
    """Nominal."""
    usable_memory_bytes: int
    """What engines see as total."""
    memory_bytes_per_s: float
    bf16_flops_per_s: float
    fp8_flops_per_s: float | None
    int8_flops_per_s: float | None
    fp4_flops_per_s: float | None
    compute_capability: str | None
    """NVIDIA's, such as `8.9`; None for others."""
    power_w: float | None
    link: str
    """Id of the link (LinkSpec) to its neighbours in the host."""
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSpec:
    """How long collectives take between devices joined by this link."""

    id: str
    """Such as `nvlink4`, `nvlink5-nvl72`, `pcie4`, `pcie5`, `xgmi`, `hccs`, `ethernet-25g`."""
    bytes_per_s: float
    """One direction, per device."""
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """An engine and, where known, its version as numbers, such as (0, 11, 0)."""

    name: EngineName
    version: tuple[int, ...] | None

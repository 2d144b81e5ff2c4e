"""A device that the catalog does not have, or has with other numbers, as typed by a person."""

import dataclasses

from llmdeploy.catalog import devices
from llmdeploy.catalog.types import DeviceSpec
from llmdeploy.errors import InputError
from llmdeploy.estimate.parse import CaseLine
from llmdeploy.units import parse_bytes

_FLOPS = {"TFLOPS": 1e12, "PFLOPS": 1e15, "GFLOPS": 1e9}
USABLE_RATIO = 0.985
"""Of the nominal memory, what engines see. Source: 79.2 of 80 GiB, 23.6 of 24, 139.7 of 141 GB
in public launch logs of vLLM and SGLang."""


def typed_device(
    line: CaseLine, *, memory_rate: str | None, compute: str | None
) -> DeviceSpec | None:
    """The catalog's device with the typed rates, or one made of numbers alone; None without rates.

    Without a name all three numbers are needed: memory, memory rate, bf16 rate.
    """
    if memory_rate is None and compute is None:
        return None
    rate = None if memory_rate is None else _bytes_per_s(memory_rate)
    flops = None if compute is None else _flops_per_s(compute)
    if line.gpu is not None:
        return _changed(devices.find(line.gpu), rate, flops)
    if line.gpu_memory_bytes is None or rate is None or flops is None:
        raise InputError(
            "the command line: found some of --gpu-memory, --gpu-bandwidth and --gpu-flops,"
            " needed all three or --gpu",
            fix="add --gpu NAME, or all three numbers of the data sheet",
        )
    return DeviceSpec(
        id="typed", name="device as typed", vendor="other", architecture="unknown",
        memory_bytes=line.gpu_memory_bytes,
        usable_memory_bytes=round(line.gpu_memory_bytes * USABLE_RATIO),
        memory_bytes_per_s=rate, bf16_flops_per_s=flops, fp8_flops_per_s=None,
        int8_flops_per_s=None, fp4_flops_per_s=None, compute_capability=None, power_w=None,
        link="pcie4", source="as typed",
    )  # fmt: skip


def _changed(found: DeviceSpec, bytes_per_s: float | None, flops: float | None) -> DeviceSpec:
    """The device with typed rates; its other products keep their ratio to bf16."""
    faster = 1.0 if flops is None else flops / found.bf16_flops_per_s
    return dataclasses.replace(
        found,
        memory_bytes_per_s=bytes_per_s or found.memory_bytes_per_s,
        bf16_flops_per_s=found.bf16_flops_per_s * faster,
        fp8_flops_per_s=found.fp8_flops_per_s and found.fp8_flops_per_s * faster,
        int8_flops_per_s=found.int8_flops_per_s and found.int8_flops_per_s * faster,
        fp4_flops_per_s=found.fp4_flops_per_s and found.fp4_flops_per_s * faster,
        source=f"{found.source}; rates as typed",
    )


def _bytes_per_s(typed: str) -> float:
    try:
        found = parse_bytes(typed.strip().removesuffix("/s")) if "/s" in typed else 0
    except ValueError:
        found = 0
    if found <= 0:
        raise InputError(
            f"the command line: --gpu-bandwidth: found {typed!r}, needed bytes a second",
            fix="write it like --gpu-bandwidth 3.35TB/s",
        )
    return float(found)


def _flops_per_s(typed: str) -> float:
    number, unit = typed.strip()[:-6], typed.strip()[-6:].upper()
    try:
        found = float(number) * _FLOPS[unit]
    except (ValueError, KeyError):
        found = 0.0
    if found <= 0:
        raise InputError(
            f"the command line: --gpu-flops: found {typed!r}, needed a dense bf16 rate",
            fix="write it like --gpu-flops 989TFLOPS",
        )
    return found

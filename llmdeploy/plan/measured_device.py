"""A host's device with what active tests measured there, in place of its data sheet."""

from dataclasses import replace

from llmdeploy.estimate.calibration import GEMM_RATIO, READ_RATIO
from llmdeploy.facts.bundle import Bundle
from llmdeploy.plan.device import MEASURED_DIGITS, Device, Speed
from llmdeploy.plan.document import Origin
from llmdeploy.plan.pool.rates import Rates, rates


def measured_device(device: Device, facts: Bundle) -> Device:
    """The device as tests found it, rounded so that two runs seldom differ; as it is where nothing
    was measured. A processor's rates are facts of their own already."""
    host = facts.host(device.host)
    names = {card.name for card in host.accelerators or ()}
    found = rates(facts.measured, {device.host: host}, names=names)
    if found is None:
        return device
    disk = found.disk_read_bytes_per_s
    held = replace(device, disk_read_bytes_per_s=None if disk is None else _rounded(disk))
    if device.kind != "cuda":
        return held
    return replace(held, speed=_speed(device.speed, found))


def _speed(speed: Speed, found: Rates) -> Speed:
    """Brought up to what a data sheet would say, as the coefficients of speed stand on that."""
    read, flops = found.memory_read_bytes_per_s, found.matmul_flops_per_s
    if read is None and flops is None:
        return speed
    return Speed(
        read_bytes_per_s=_rounded(read / READ_RATIO) if read else speed.read_bytes_per_s,
        matmul_flops_per_s=_rounded(flops / GEMM_RATIO) if flops else speed.matmul_flops_per_s,
        origin=Origin.MEASURED,
        source=f"{speed.source}, as far as preflight did not measure it",
    )


def _rounded(value: float) -> float:
    return float(f"{value:.{MEASURED_DIGITS}g}")

"""A device whose predicted speed is corrected by how former forecasts came out."""

from collections.abc import Sequence
from dataclasses import replace

from llmdeploy.estimate.calibration import Forecast, calibration
from llmdeploy.plan.device import Device


def calibrated_device(
    device: Device, records: Sequence[Forecast], *, engine: str, model: str
) -> Device:
    """The device with its rates multiplied by what its former releases measured over predicted;
    as it is where there is no record."""
    found = calibration(records, device=device.kind, engine=engine, model=model)
    if found is None:
        return device
    speed = device.speed
    return replace(
        device,
        speed=replace(
            speed,
            read_bytes_per_s=speed.read_bytes_per_s * found.ratio,
            matmul_flops_per_s=speed.matmul_flops_per_s * found.ratio,
            source=f"{speed.source}, {found.words}",
        ),
    )

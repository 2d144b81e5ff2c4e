"""How many devices hold what: the counts that were given, and what the missing ones mean."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from llmdeploy.catalog.types import DeviceSpec, EngineName
from llmdeploy.errors import InputError
from llmdeploy.estimate.parse import CaseLine
from llmdeploy.estimate.parse_counts import (
    HOST_DEVICES,
    LARGEST_HOST_DEVICES,
    LAYER_SPLIT,
    RACK_DEVICES,
    Ask,
    Counts,
    counts,
    divides,
    nearest,
)
from llmdeploy.model import ModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Devices and how the model is spread over them."""

    hosts: int
    tensor_parallel: int
    pipeline_parallel: int
    data_parallel: int
    expert_parallel: bool
    attention_data_parallel: bool
    guessed: bool
    """The number of devices is not known at all."""
    other_hosts: int | None
    """How many hosts it may be as well, where they are not given."""
    assumptions: tuple[str, ...]


def layout(
    line: CaseLine,
    shape: ModelShape,
    *,
    engine: EngineName,
    place: str,
    holds: Callable[[int], bool] | None = None,
    device: DeviceSpec | None = None,
    joined: bool = False,
) -> Layout:
    """The counts of a case, with a word for each that was not given.

    `holds` says whether the weights fit that many devices, `joined` that the case names a link
    within hosts and no network. InputError where the counts contradict each other or TP does not
    divide the heads.
    """
    domain = _domain(line, device)
    _check_stages(line.pipeline_parallel or 1, shape, place=place)
    found = counts(
        Ask(line=line, shape=shape, engine=engine, place=place, holds=holds, domain=domain)
    )
    _check_heads(shape, found, engine=engine, place=place)
    _check_stages(found.pipeline, shape, place=place)
    _check_hosts(line, place=place)
    hosts, other, said = _hosts(line, found, domain=_usual(device, domain), joined=joined)
    return Layout(
        hosts=hosts,
        tensor_parallel=found.tensor,
        pipeline_parallel=found.pipeline,
        data_parallel=found.data,
        expert_parallel=_expert_parallel(line, shape),
        attention_data_parallel=found.inner,
        guessed=found.guessed,
        other_hosts=other,
        assumptions=(*found.said, *said),
    )


def allowed_tensor_parallel(shape: ModelShape, limit: int = 64) -> tuple[int, ...]:
    """TP degrees up to `limit` that divide the heads and split or copy the KV heads evenly."""
    return tuple(tp for tp in range(1, limit + 1) if divides(shape, tp))


def _domain(line: CaseLine, device: DeviceSpec | None) -> int:
    """Devices that TP may span: those of one host, or of an NVLink rack."""
    if "nvl72" in (line.interconnect or (device.link if device else "")).lower():
        return RACK_DEVICES
    if not line.hosts:
        return HOST_DEVICES
    return min(max(1, (line.gpus or 1) // line.hosts), RACK_DEVICES)


def _usual(device: DeviceSpec | None, domain: int) -> int:
    """Devices of a usual host: one where only a network joins them, such as DGX Spark's."""
    return 1 if device is not None and device.link.startswith("ethernet") else domain


def _expert_parallel(line: CaseLine, shape: ModelShape) -> bool:
    asked = line.expert_parallel
    return shape.experts is not None and asked is not None and (asked is True or asked > 1)


def _check_heads(shape: ModelShape, found: Counts, *, engine: EngineName, place: str) -> None:
    tp = found.tensor // found.data if found.inner else found.tensor
    if engine in LAYER_SPLIT or divides(shape, tp):
        return
    fitting = allowed_tensor_parallel(shape)
    raise InputError(
        f"{place}: tensor_parallel: {tp} does not divide {shape.attention_heads} attention heads"
        f" and {shape.kv_heads} KV heads, needed one of {', '.join(str(n) for n in fitting)}",
        fix=f"set tensor_parallel to {nearest(fitting, tp)}",
    )


def _check_stages(stages: int, shape: ModelShape, *, place: str) -> None:
    """Every stage has a layer."""
    if stages > shape.layers:
        raise InputError(
            f"{place}: pipeline_parallel: found {stages} stages for {shape.layers} layers,"
            " needed a layer in each",
            fix=f"set pipeline_parallel to {shape.layers} or less",
        )


def _check_hosts(line: CaseLine, *, place: str) -> None:
    """Every host has a device."""
    if line.hosts is not None and line.gpus is not None and line.hosts > line.gpus:
        raise InputError(
            f"{place}: hosts: found {line.hosts} hosts for {line.gpus} gpus,"
            " needed a device in each",
            fix=f"set hosts to {line.gpus} or less; gpus counts the devices of all hosts together",
        )


def _hosts(
    line: CaseLine, found: Counts, *, domain: int, joined: bool
) -> tuple[int, int | None, tuple[str, ...]]:
    """Hosts, how many it may be as well, and a word where they were not given and are several.

    Sixteen devices are two usual hosts, or one large one. A case that names the link within a host
    and no network, such as `NVLink` for TP 4 x DP 4, is taken by its word: one.
    Source: 119 public points of 16 devices with `NVLink` and no hosts: time per token is 1.6 times
    the measured one in the median over InfiniBand, 0.97 times over NVLink.
    """
    if line.hosts is not None:
        return line.hosts, None, ()
    ranks = found.tensor * found.pipeline * (1 if found.inner else found.data)
    devices = line.gpus or ranks
    hosts = math.ceil(devices / domain)
    if hosts == 1:
        return 1, None, ()
    spread = f"{hosts} with {math.ceil(devices / hosts)} devices each"
    if domain == 1 or devices > LARGEST_HOST_DEVICES:
        return hosts, None, (f"hosts is not given: {spread}",)
    if joined:
        link = f"one with {devices} devices on {line.interconnect}"
        return 1, hosts, (f"hosts is not given: {link}; speed's intervals hold for {spread} too",)
    words = f"hosts is not given: {spread}; speed's intervals hold for one with {devices} too"
    return hosts, 1, (words,)

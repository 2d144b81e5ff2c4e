"""How many devices hold what: the counts that were given, and what the missing ones mean."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from llmdeploy.catalog.types import EngineName
from llmdeploy.errors import InputError
from llmdeploy.estimate.parse import CaseLine
from llmdeploy.estimate.parse_counts import (
    HOST_DEVICES,
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
    assumptions: tuple[str, ...]


def layout(
    line: CaseLine,
    shape: ModelShape,
    *,
    engine: EngineName,
    place: str,
    holds: Callable[[int], bool] | None = None,
) -> Layout:
    """The counts of a case, with a word for each that was not given.

    `holds` says whether the weights fit that many devices. InputError where the counts contradict
    each other or TP does not divide the heads.
    """
    domain = _domain(line)
    found = counts(
        Ask(line=line, shape=shape, engine=engine, place=place, holds=holds, domain=domain)
    )
    _check_heads(shape, found, engine=engine, place=place)
    _check_enough(line, shape, found, place=place)
    hosts, said = _hosts(line, found, domain=domain)
    return Layout(
        hosts=hosts,
        tensor_parallel=found.tensor,
        pipeline_parallel=found.pipeline,
        data_parallel=found.data,
        expert_parallel=_expert_parallel(line, shape),
        attention_data_parallel=found.inner,
        guessed=found.guessed,
        assumptions=(*found.said, *said),
    )


def allowed_tensor_parallel(shape: ModelShape, limit: int = 64) -> tuple[int, ...]:
    """TP degrees up to `limit` that divide the heads and split or copy the KV heads evenly."""
    return tuple(tp for tp in range(1, limit + 1) if divides(shape, tp))


def _domain(line: CaseLine) -> int:
    """Devices that TP may span: those of one host, or of an NVLink rack."""
    if line.interconnect and "nvl72" in line.interconnect.lower():
        return RACK_DEVICES
    return max(1, (line.gpus or 1) // line.hosts) if line.hosts else HOST_DEVICES


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


def _check_enough(line: CaseLine, shape: ModelShape, found: Counts, *, place: str) -> None:
    """Every stage has a layer, and every host a device."""
    if found.pipeline > shape.layers:
        raise InputError(
            f"{place}: pipeline_parallel: found {found.pipeline} stages for {shape.layers} layers,"
            " needed a layer in each",
            fix=f"set pipeline_parallel to {shape.layers} or less",
        )
    if line.hosts is not None and line.gpus is not None and line.hosts > line.gpus:
        raise InputError(
            f"{place}: hosts: found {line.hosts} hosts for {line.gpus} gpus,"
            " needed a device in each",
            fix=f"set hosts to {line.gpus} or less; gpus counts the devices of all hosts together",
        )


def _hosts(line: CaseLine, found: Counts, *, domain: int) -> tuple[int, tuple[str, ...]]:
    """Hosts, and a word where they were not given and are several."""
    if line.hosts is not None:
        return line.hosts, ()
    ranks = found.tensor * found.pipeline * (1 if found.inner else found.data)
    devices = line.gpus or ranks
    hosts = math.ceil(devices / domain)
    each = math.ceil(devices / hosts)
    return hosts, (f"hosts is not given: {hosts} with {each} devices each",) if hosts > 1 else ()

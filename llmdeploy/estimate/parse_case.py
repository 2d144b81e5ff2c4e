"""A case line with every name looked up: what the memory and speed estimates are made of."""

import difflib
import functools
from collections.abc import Callable
from dataclasses import dataclass

from llmdeploy.catalog import devices, engines, links
from llmdeploy.catalog.types import DeviceSpec, Engine, EngineName, LinkSpec
from llmdeploy.errors import InputError
from llmdeploy.estimate.case import Case
from llmdeploy.estimate.memory.draft import draft_words
from llmdeploy.estimate.parse import CaseLine, placed
from llmdeploy.estimate.parse_layout import layout
from llmdeploy.estimate.parse_model import FoundModel, Models
from llmdeploy.estimate.parse_others import MODELSLIM, other_cases, other_words
from llmdeploy.estimate.parse_words import DTYPES, dtype, format_word, kv_dtype, spelled, unsaid
from llmdeploy.model import ModelShape, WeightFormat, suited, weight_format, weights_bytes

DEFAULT_ENGINE = "vllm"
CONTAINERS = {
    "auto_round", "bitsandbytes", "compressed_tensors", "gguf", "marlin", "modelopt",
    "modelopt_mixed", "quark", "torchao",
}  # fmt: skip
"""Words for a file format that holds weights of any width: the checkpoint knows which."""
HELD_RATIO = 0.8
NEWEST_KNOWN: dict[EngineName, tuple[int, ...]] = {"vllm": (0, 33, 0), "sglang": (0, 5, 23)}
"""What memory's rules were read from. Source: vLLM 0.33.0 and SGLang 0.5.23 wheels."""
NETWORKS = ("ethernet", "infiniband", "ib-", "roce", "efa", "tcp")
"""Beginnings of the ids of links that join hosts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A case, what was taken for what it does not say, and why it has no device."""

    case: Case
    model_source: str
    assumptions: tuple[str, ...]
    no_device: str | None
    """Why speed cannot be answered; None where the device is known."""
    other_cases: tuple[Case, ...]
    """What else the line may mean, where that decides whether the launch fits."""
    guessed_devices: bool
    """Neither devices nor TP are known, and one device would not do."""
    other_hosts: int | None
    """How many hosts it may be as well, where they are not given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Numerics:
    weight_format: WeightFormat | None
    dtype: str | None
    assumption: str | None = None


def resolve(
    line: CaseLine, *, place: str, models: Models, typed: DeviceSpec | None = None
) -> Resolved:
    """The case of a line; InputError where the model, the device or the engine is unknown.

    `typed` is a device given by its numbers; it wins over the one that the line names.
    """
    said: list[str] = []
    found = models.find(line, place=place)
    if found.assumption:
        said.append(found.assumption)
    engine = _engine(line, place=place, said=said)
    device, no_device = (typed, None) if typed else _device(line, place=place)
    numerics = _numerics(line, found, place=place)
    if numerics.assumption:
        said.append(numerics.assumption)
    holds = _holder(line, found.shape, device, numerics=numerics)
    spread = layout(
        line, found.shape, engine=engine.name, place=place, holds=holds, device=device,
        joined=_joined(line, device),
    )  # fmt: skip
    link, network = _links(line, device, spread.hosts, said=said)
    case = Case(
        shape=found.shape,
        weight_format=numerics.weight_format,
        engine=engine,
        device=device,
        device_memory_bytes=line.gpu_memory_bytes,
        hosts=spread.hosts,
        link=link,
        network=network,
        tensor_parallel=spread.tensor_parallel,
        pipeline_parallel=spread.pipeline_parallel,
        data_parallel=spread.data_parallel,
        expert_parallel=spread.expert_parallel,
        attention_data_parallel=spread.attention_data_parallel,
        memory_ratio=line.memory_ratio,
        max_model_len=line.max_model_len,
        kv_cache_dtype=kv_dtype(line.kv_cache_dtype, place=f"{place}: kv_cache_dtype"),
        dtype=numerics.dtype,
        max_num_seqs=line.max_num_seqs,
        max_num_batched_tokens=line.max_num_batched_tokens,
        enforce_eager=line.enforce_eager,
        speculative_tokens=line.speculative_tokens,
        input_tokens=line.input_tokens,
        output_tokens=line.output_tokens,
        concurrency=line.concurrency,
        request_rate_per_s=line.request_rate_per_s,
    )
    others = other_cases(line, case)
    said.extend((*other_words(case, others), *draft_words(case)))
    return Resolved(
        case=case,
        model_source=found.source,
        other_cases=others,
        assumptions=(*said, *spread.assumptions),
        no_device=no_device,
        guessed_devices=spread.guessed,
        other_hosts=spread.other_hosts,
    )


def _holder(
    line: CaseLine, shape: ModelShape, device: DeviceSpec | None, *, numerics: _Numerics
) -> Callable[[int], bool] | None:
    """Whether a number of TP ranks holds the weights; None where the memory is not known.

    Source: assumed: a fifth of the memory is for cache, activations and the runtime.
    """
    size_bytes = line.gpu_memory_bytes or (device.usable_memory_bytes if device else None)
    if size_bytes is None or shape.parameters is None:
        return None
    room_bytes = HELD_RATIO * size_bytes

    def holds(tensor_parallel: int) -> bool:
        needed_bytes = weights_bytes(
            shape,
            numerics.weight_format,
            dtype=numerics.dtype or "bf16",
            tp=tensor_parallel,
            pp=line.pipeline_parallel or 1,
            ep=False,
        )
        return needed_bytes <= room_bytes

    return holds


def _engine(line: CaseLine, *, place: str, said: list[str]) -> Engine:
    if line.engine is None:
        said.append(f"engine is not given: {DEFAULT_ENGINE}")
    try:
        found = _found_engine(line.engine or DEFAULT_ENGINE, line.engine_version)
    except InputError as unknown:
        raise placed(unknown, place, "engine") from unknown
    newest = NEWEST_KNOWN.get(found.name)
    if found.version is not None and newest is not None and found.version > newest:
        known = ".".join(map(str, newest))
        said.append(
            f"engine_version {line.engine_version!r} is newer than {known}, the newest known: its"
            " rules, with wider intervals"
        )
        return Engine(name=found.name, version=None)
    if found.version is None:
        given = "is not given" if line.engine_version is None else f"{line.engine_version!r} says"
        said.append(
            f"engine_version {given}: the newest known rules"
            if line.engine_version is None
            else f"engine_version {given} no release: the newest known rules"
        )
    return found


def _device(line: CaseLine, *, place: str) -> tuple[DeviceSpec | None, str | None]:
    """The device, or why there is none: an unknown name is an error unless its memory is given."""
    if line.gpu is None:
        return None, "gpu is not given: name the device"
    try:
        return _found_device(line.gpu), None
    except InputError as unknown:
        if line.gpu_memory_bytes is not None:
            return None, f"gpu: {unknown}; {unknown.fix}"
        raise InputError(
            f"{place}: gpu: {unknown}",
            fix=f"{unknown.fix} (with gpu_memory_bytes too, memory is answered)",
        ) from unknown


def _numerics(line: CaseLine, found: FoundModel, *, place: str) -> _Numerics:
    """What the weights are held in, and the dtype of the rest.

    A format is also taken from `dtype`, where benchmarks print it. A word that says no more
    than the checkpoint's own format leaves that one, which knows its groups and exceptions.
    """
    asked, word = line.quantization, line.dtype
    assumption = None
    if word is not None and not unsaid(word) and spelled(word) not in DTYPES:
        if unsaid(asked) and _named_format(word) is not None:
            assumption = f"dtype {word!r} is a weight format: taken as quantization"
            asked, word = word, None
        elif _named_format(word) is not None:
            word = None
    own_dtype = dtype(word, place=f"{place}: dtype")
    own = found.shape.weight_format
    if asked is None or unsaid(asked):
        asked = found.quantization
        if asked is None:
            return _Numerics(weight_format=own, dtype=own_dtype, assumption=assumption)
    if spelled(asked) in DTYPES:
        plain = own_dtype or DTYPES[spelled(asked)]
        return _Numerics(weight_format=None, dtype=plain, assumption=assumption)
    try:
        named = _found_format(asked)
    except InputError as unknown:
        if own is None:
            raise placed(unknown, place, "quantization") from unknown
        return _Numerics(
            weight_format=own,
            dtype=own_dtype,
            assumption=f"quantization {asked!r} is not known: the checkpoint's own {own.method}",
        )
    held = _held(named, line, found.shape, asked=asked)
    return _Numerics(weight_format=held, dtype=own_dtype, assumption=assumption)


def _held(
    named: WeightFormat | None, line: CaseLine, shape: ModelShape, *, asked: str
) -> WeightFormat | None:
    """The format that a word means for this model: the checkpoint's own where the word says no
    more, 8 bits with ModelSlim unless the model's name says 4, else with what makers leave
    unquantised in such a model.

    4-bit floats of a model that was published in 4-bit integers are another checkpoint.
    Source: nvidia/Kimi-K2.5-NVFP4 beside moonshotai/Kimi-K2.5.
    """
    if named is None:
        return None
    if named.method == MODELSLIM:
        return _found_format("w4a8") if "w4a8" in (line.model or "").lower() else named
    own = shape.weight_format
    if own is not None and own.method == "w4a16" and named.method == "nvfp4":
        return suited(shape, named)
    if own is not None and (own.bits == named.bits or spelled(asked) in CONTAINERS):
        return own
    return suited(shape, named)


def _links(
    line: CaseLine, device: DeviceSpec | None, hosts: int, *, said: list[str]
) -> tuple[LinkSpec | None, LinkSpec | None]:
    """The link within a host and the one between hosts, as far as the case names them."""
    name = line.interconnect
    if name is None or unsaid(name):
        return None, None
    for part in (name, *name.split(";")):
        found = _found_link(part.strip(), device)
        if found is None:
            continue
        if not found.id.startswith(NETWORKS):
            return found, None
        if hosts == 1:
            said.append(f"interconnect {name!r} joins hosts: not used on one host")
            return None, None
        return None, found
    near = difflib.get_close_matches(name.lower(), [k.id for k in links.all_links()], n=3)
    meant = f" (did you mean {' or '.join(near)}?)" if near else ""
    said.append(f"interconnect {name!r} is not known{meant}: the device's own link")
    return None, None


def _joined(line: CaseLine, device: DeviceSpec | None) -> bool:
    """Whether the case names a link within hosts and no network."""
    if line.interconnect is None or unsaid(line.interconnect):
        return False
    named = [_found_link(part.strip(), device) for part in line.interconnect.split(";")]
    found = [link for link in named if link is not None]
    return bool(found) and not any(link.id.startswith(NETWORKS) for link in found)


def _named_format(word: str) -> WeightFormat | None:
    try:
        return _found_format(word)
    except InputError:
        return None


@functools.lru_cache(maxsize=1024)
def _found_engine(name: str, version: str | None) -> Engine:
    return engines.find(name, version)


@functools.lru_cache(maxsize=1024)
def _found_device(name: str) -> DeviceSpec:
    return devices.find(name)


@functools.lru_cache(maxsize=1024)
def _found_format(name: str) -> WeightFormat | None:
    return weight_format(format_word(name))


@functools.lru_cache(maxsize=1024)
def _found_link(name: str, device: DeviceSpec | None) -> LinkSpec | None:
    try:
        return links.find(name, device)
    except InputError:
        return None

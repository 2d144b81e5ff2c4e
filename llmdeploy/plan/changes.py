"""The smallest changes that would let a cluster carry a service, tried out, with their numbers."""

import math
from collections.abc import Iterator, Sequence

from llmdeploy.catalog.types import Engine
from llmdeploy.errors import Refused
from llmdeploy.model import ModelShape, weight_format, weights_bytes
from llmdeploy.plan.changes_hardware import FINE, Try, more_hardware, said
from llmdeploy.plan.larger_steps import larger_steps, with_step
from llmdeploy.plan.pool import Pool
from llmdeploy.plan.rank import Option, Rejected
from llmdeploy.plan.refusal import changed
from llmdeploy.plan.rules_placement import ROOMY_RATIO
from llmdeploy.plan.search import Found, search
from llmdeploy.plan.size import Estimators
from llmdeploy.service import Service
from llmdeploy.units import show_bytes

LENGTH_STEP_TOKENS = 256
FAR = 1000.0
"""Times too few replicas from which on no change but of the traffic is tried: none gives that much.
Source: own choice."""
HIGHER_RATIO = 0.9
"""The engines' own default share. Source: vLLM `gpu_memory_utilization` up to 0.21."""
CLOSEST = ("ttft", "tpot", "utilisation", "peak", "kv-room", "memory-fits", "weights-fit")
"""How near a rejected layout was to carrying the service: nearest first; of the same rule the one
that is short of least."""


def refusal(
    result: Found,
    service: Service,
    shape: ModelShape,
    pools: Sequence[Pool],
    *,
    engine: Engine,
    using: Estimators,
) -> Refused:
    """No layout carries the service: the nearest one's rule, and what would let one."""

    def look(changed_service: Service, changed_pools: Sequence[Pool]) -> Found:
        return search(changed_service, shape, changed_pools, engine=engine, using=using)

    tried = Try(look=look)
    nearest = min(result.rejected, key=_distance)
    if nearest.broken.rule == "peak" and nearest.broken.times_short > FAR:
        fixes = list(_less_traffic(service, pools, tried))
    else:
        single = list(_single(service, shape, pools, tried))
        cheap = single or list(_together(service, pools, tried))
        fixes = [*cheap, *more_hardware(service, pools, tried)]
        fixes = fixes or list(_all_and_hardware(service, pools, tried))
    there = " + ".join(f"{pool.devices} x {pool.name}" for pool in pools)
    return Refused(
        f"{service.model.id} on {there}: none of {result.looked_at} layouts carries the service;"
        f" the nearest, {nearest.layout}: {nearest.broken.words} ({nearest.broken.rule})",
        fix="; or ".join(fixes) or _hopeless(shape, pools),
    )


def _distance(rejected: Rejected) -> tuple[int, float]:
    rule = rejected.broken.rule
    near = CLOSEST.index(rule) if rule in CLOSEST else len(CLOSEST)
    return near, rejected.broken.times_short


def _single(
    service: Service, shape: ModelShape, pools: Sequence[Pool], tried: Try
) -> Iterator[str]:
    """Each change by itself that would do."""
    engine = service.engine
    if engine.tensor_parallel or engine.pipeline_parallel:
        free = changed(service, "engine", tensor_parallel=None, pipeline_parallel=None)
        yield from said(
            "leave engine.tensor_parallel and pipeline_parallel out", tried(free, pools)
        )
    yield from _shorter(service, pools, tried)
    if engine.kv_cache_dtype == "auto":
        eight = changed(service, "engine", kv_cache_dtype="fp8")
        yield from said("set engine.kv_cache_dtype to fp8", tried(eight, pools))
    yield from _fewer_bits(service, shape, pools, tried)
    if engine.memory_ratio < HIGHER_RATIO:
        more = changed(service, "engine", memory_ratio=HIGHER_RATIO)
        yield from said(f"set engine.memory_ratio to {HIGHER_RATIO:.0%}", tried(more, pools))
    if engine.max_num_seqs:
        free = changed(service, "engine", max_num_seqs=None)
        yield from said("leave engine.max_num_seqs out", tried(free, pools))
    yield from _larger_step(service, pools, tried)
    yield from _weaker_promises(service, pools, tried)
    yield from _less_traffic(service, pools, tried)


def _larger_step(service: Service, pools: Sequence[Pool], tried: Try) -> Iterator[str]:
    """The smallest larger step that would do where prompts are computed in chunks."""
    for tokens in larger_steps(service):
        option = tried(with_step(service, tokens), pools)
        if option is not None:
            yield from said(f"set engine.max_num_batched_tokens to {tokens}", option)
            return


def _shorter(service: Service, pools: Sequence[Pool], tried: Try) -> Iterator[str]:
    """The longest context, in steps, that fits; not below a mean request."""
    load = service.workload
    mean = load.input_tokens.mean + load.output_tokens.mean
    low, high = -(-int(mean) // LENGTH_STEP_TOKENS), service.engine.max_model_len
    high = high // LENGTH_STEP_TOKENS
    if low >= high:
        return
    found = tried(_with_length(service, low), pools)
    if found is None:
        return
    while high - low > max(1, low // 16):
        middle = (low + high) // 2
        option = tried(_with_length(service, middle), pools)
        low, high, found = (low, middle, found) if option is None else (middle, high, option)
    yield from said(f"set engine.max_model_len to {low * LENGTH_STEP_TOKENS}", found)


def _with_length(service: Service, steps: int) -> Service:
    return changed(service, "engine", max_model_len=steps * LENGTH_STEP_TOKENS)


def _fewer_bits(
    service: Service, shape: ModelShape, pools: Sequence[Pool], tried: Try
) -> Iterator[str]:
    if shape.weight_format is not None or service.model.quantization not in ("none", "fp8"):
        return
    for method in ("fp8", "awq"):
        if method != service.model.quantization:
            other = changed(service, "model", quantization=method)
            needs = " (needs a checkpoint in that format)" if method == "awq" else ""
            yield from said(f"set model.quantization to {method}{needs}", tried(other, pools))


def _weaker_promises(service: Service, pools: Sequence[Pool], tried: Try) -> Iterator[str]:
    loose = changed(service, "objectives", ttft_p95_s=600.0, tpot_p95_s=10.0)
    loosened = tried(loose, pools)
    if loosened is None:
        return
    promised, parts = service.objectives, []
    if loosened.ttft_p95_s > promised.ttft_p95_s:
        parts.append(("ttft_p95", _rounded_up(loosened.ttft_p95_s)))
    if loosened.tpot_p95_s > promised.tpot_p95_s:
        parts.append(("tpot_p95", _rounded_up(loosened.tpot_p95_s)))
    values = {f"{name}_s": value for name, value in parts}
    option = tried(changed(service, "objectives", **values), pools) if parts else None
    words = " and ".join(f"objectives.{name} to {value:g}s" for name, value in parts)
    yield from said(f"set {words}", option)


def _less_traffic(service: Service, pools: Sequence[Pool], tried: Try) -> Iterator[str]:
    """The most requests a day, to two digits, that would be carried."""

    def with_count(count: int) -> Option | None:
        return tried(changed(service, "workload", requests_per_day=count), pools)

    low, high = 1, service.workload.requests_per_day
    option = with_count(low) if high > 1 else None
    if option is None:
        return
    while high - low > max(1, low // FINE):
        middle = int(float(f"{math.sqrt(low * high):.2g}"))
        if middle in (low, high):
            break
        more = with_count(middle)
        low, high, option = (low, middle, option) if more is None else (middle, high, more)
    yield from said(f"set workload.requests_per_day to {low}", option)


def _together(service: Service, pools: Sequence[Pool], tried: Try) -> Iterator[str]:
    """As few changes together as do, without more hardware."""
    for words, smaller in _steps(service):
        option = tried(smaller, pools)
        if option is not None:
            yield from said(f"set together {words}", option)
            return


def _all_and_hardware(service: Service, pools: Sequence[Pool], tried: Try) -> Iterator[str]:
    """As few changes together as do with more hardware."""
    for words, smaller in _steps(service):
        for fix in more_hardware(smaller, pools, tried):
            yield f"set together {words}, and {fix}"
            return


def _steps(service: Service) -> Iterator[tuple[str, Service]]:
    """One change after the other, each kept: what costs no hardware."""
    load = service.workload
    tokens = int(load.input_tokens.p95 + load.output_tokens.p95)
    length = -(-tokens // LENGTH_STEP_TOKENS) * LENGTH_STEP_TOKENS
    free = changed(
        service, "engine", tensor_parallel=None, pipeline_parallel=None, max_num_seqs=None
    )
    words: list[str] = []
    for part, key, value, shown in (
        ("model", "quantization", "awq", "awq (needs a checkpoint in that format)"),
        ("engine", "kv_cache_dtype", "fp8", "fp8"),
        ("engine", "memory_ratio", HIGHER_RATIO, f"{HIGHER_RATIO:.0%}"),
        ("engine", "max_model_len", min(length, service.engine.max_model_len), str(length)),
    ):
        free = changed(free, part, **{key: value})
        words.append(f"{part}.{key} to {shown}")
        yield ", ".join(words), free


def _rounded_up(value: float) -> float:
    """A tenth more than the value, to two digits."""
    return float(f"{value * 1.1:.2g}")


def _hopeless(shape: ModelShape, pools: Sequence[Pool]) -> str:
    format = shape.weight_format or weight_format("awq")
    smallest = weights_bytes(shape, format)
    total = sum(pool.devices * pool.usable_bytes for pool in pools)
    largest = max(pools, key=lambda pool: pool.usable_bytes)
    count = math.ceil(smallest / (ROOMY_RATIO * largest.usable_bytes))
    return (
        f"use a smaller model or more memory: weights take {show_bytes(smallest)} at"
        f" {format.bits if format else 16:g} bits, all devices together have {show_bytes(total)};"
        f" about {count} x {largest.name} would leave room for a cache"
    )

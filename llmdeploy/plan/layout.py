"""How a replica is cut into workers and threads, how much KV it holds, how many it decodes."""

import math
from dataclasses import dataclass
from typing import Literal

from llmdeploy.errors import InputError, Refused
from llmdeploy.model import ModelShape
from llmdeploy.plan import memory
from llmdeploy.plan.device import Device
from llmdeploy.plan.lengths import check_lengths
from llmdeploy.plan.load import needed_tokens_per_s
from llmdeploy.plan.memory import Footprint, Numerics
from llmdeploy.plan.speed import KNEE, Pace, pace
from llmdeploy.service import Service
from llmdeploy.store import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One replica on its device, all numbers over its workers together."""

    numerics: Numerics
    workers: int
    ranks: int
    threads: int
    allowed_bytes: int
    footprint: Footprint
    kv_per_token: int
    kv_budget_bytes: int
    kv_tokens: int
    batch_in_kv: int
    batch_by_compute: int
    batch: int
    """Requests decoded together."""
    pace: Pace

    @property
    def memory_bytes(self) -> int:
        """All that the release takes."""
        return self.footprint.fixed_bytes + self.kv_tokens * self.kv_per_token

    @property
    def tokens_per_s(self) -> float:
        """Output tokens per second when saturated."""
        return self.workers * self.pace.tokens_per_s(self.batch / self.workers)

    def worker_batch(self, tokens_per_s: float) -> float:
        """Requests that one worker decodes together on average at that load, in output tokens/s."""
        return min(1.0, tokens_per_s / self.tokens_per_s) * self.batch / self.workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """The model with one request, or its loading, does not fit the device."""

    needed_bytes: int
    allowed_bytes: int
    longest_tokens: int
    """The `max_model_len` that would fit, 0 where not even the weights do."""
    batch: int
    """Requests that would be decoded together if they fitted."""


def numerics(service: Service, device: Device, manifest: Manifest) -> Numerics:
    """What weights and KV are held in: the checkpoint's type, or float32 where the device is
    slower in 16 bits, unless the user says another."""
    asked = service.model.dtype
    stored = manifest.dtype if device.fast_bfloat16 else "float32"
    dtype = stored if asked == "auto" else asked
    return Numerics(dtype=dtype, quantization=_held(service))


def check_rules(service: Service, device: Device, shape: ModelShape) -> None:
    """The engines' rules that memory has no part in; InputError or Refused naming the rule."""
    check_lengths(service, shape)
    _check_quantization(service, device)
    _check_ranks(service, device, shape)


def lay_out(service: Service, device: Device, manifest: Manifest) -> Layout | Shortfall:
    """Of the layouts that fit and carry the peak, the one with the least time per token there.

    One worker with all threads reads the weights once a step, one-thread workers each for itself,
    but waste no core. Where products bound, that gives the most tokens/s: 483 in two one-thread
    processes, 380 in one with two threads (SmolLM2-135M, 32 requests, two Zen 4 cores). Where
    reading bounds, one worker is ahead until many run: 42, 231, 435 tokens/s at 1, 8, 32 requests
    against 30, 186, 464 in two (two Xeon cores with AMX). Where no layout carries the peak, it is
    the one with the most tokens/s.
    """
    tried = [_try(service, device, manifest, workers=n) for n in _worker_counts(service, device)]
    fitting = [found for found in tried if isinstance(found, Layout)]
    if not fitting:
        return tried[-1]
    return min(fitting, key=lambda layout: (_peak_tpot_s(layout, service), -layout.tokens_per_s))


def _peak_tpot_s(layout: Layout, service: Service) -> float:
    """Seconds per output token at the peak; infinite where the layout does not carry it."""
    needed = needed_tokens_per_s(service.workload)
    if needed > layout.tokens_per_s * service.objectives.utilisation_ratio:
        return math.inf
    return layout.pace.tpot_s(max(1.0, layout.worker_batch(needed)))


def _worker_counts(service: Service, device: Device) -> list[int]:
    if device.kind == "cuda" or service.engine.tensor_parallel not in (None, 1):
        return [1]
    most = min(device.cores, service.engine.max_num_seqs or device.cores)
    return [n for n in range(most, 0, -1) if device.cores % n == 0]


def _try(
    service: Service, device: Device, manifest: Manifest, *, workers: int
) -> Layout | Shortfall:
    engine, workload = service.engine, service.workload
    held = numerics(service, device, manifest)
    ranks = engine.tensor_parallel or 1
    speed = pace(manifest, held, workload, device=device, workers=workers, ranks=ranks)
    by_compute = _batch_by_compute(service, device, speed, workers=workers)
    batch = engine.max_num_seqs or by_compute
    allowed_bytes = int(device.memory_bytes // device.slots * engine.memory_ratio)
    taken = memory.footprint(
        manifest,
        held,
        kind=device.kind,
        workers=workers,
        ranks=ranks,
        batch=-(-batch // workers),
        batched_tokens=engine.max_num_batched_tokens,
    )
    per_token = memory.kv_bytes_per_token(manifest.shape, held)
    budget_bytes = allowed_bytes - taken.fixed_bytes
    one_each_bytes = workers * memory.pages(engine.max_model_len) * per_token
    if max(one_each_bytes - budget_bytes, taken.peak_loading_bytes - allowed_bytes) > 0:
        return Shortfall(
            needed_bytes=max(taken.fixed_bytes + one_each_bytes, taken.peak_loading_bytes),
            allowed_bytes=allowed_bytes,
            longest_tokens=_longest(taken, allowed_bytes, per_token, workers),
            batch=batch,
        )
    mean_bytes = (workload.input_tokens.mean + workload.output_tokens.mean) * per_token
    by_memory = int(budget_bytes // mean_bytes)
    batch = min(batch, by_memory) if engine.max_num_seqs is None else batch
    batch = max(batch // workers, 1) * workers if engine.max_num_seqs is None else batch
    useful = memory.useful_tokens(
        device.kind,
        batch=batch,
        workers=workers,
        max_model_len=engine.max_model_len,
        lengths=(workload.input_tokens, workload.output_tokens),
    )
    return Layout(
        numerics=held,
        workers=workers,
        ranks=ranks,
        threads=max(1, device.cores // (workers * ranks)) if device.kind == "cpu" else 1,
        allowed_bytes=allowed_bytes,
        footprint=taken,
        kv_per_token=per_token,
        kv_budget_bytes=budget_bytes,
        kv_tokens=memory.kv_capacity_tokens(
            budget_bytes, per_token, workers=workers, needed_tokens=useful
        ),
        batch_in_kv=by_memory,
        batch_by_compute=by_compute,
        batch=batch,
        pace=speed,
    )


def _batch_by_compute(service: Service, device: Device, speed: Pace, *, workers: int) -> int:
    """Requests decoded together that keep the promised time per token, at least one a worker."""
    knee = min(KNEE[device.kind], service.engine.max_num_batched_tokens)
    within = speed.batch_within(service.objectives.tpot_p95_s, knee=knee)
    return max(1, within) * workers


def _longest(taken: Footprint, allowed_bytes: int, per_token: int, workers: int) -> int:
    if taken.peak_loading_bytes > allowed_bytes:
        return 0
    left_bytes = max(0, allowed_bytes - taken.fixed_bytes)
    return left_bytes // per_token // workers // memory.PAGE_TOKENS * memory.PAGE_TOKENS


def _held(service: Service) -> Literal["none", "int8", "nf4"]:
    """The embedded engine's format of the weights: `auto` keeps the dtype."""
    match service.model.quantization:
        case "auto" | "none":
            return "none"
        case "int8" | "nf4" as format:
            return format
        case other:
            raise InputError(
                f"model/quantization: found {other}, needed auto, none, int8 or nf4: what the"
                " embedded engine holds weights in",
                fix="set model.quantization to nf4, or plan for a cluster with `--inventory`",
            )


def _check_quantization(service: Service, device: Device) -> None:
    wanted = _held(service)
    if wanted != "none" and wanted not in device.quantizations:
        raise Refused(
            f"host {device.host}: model/quantization: {wanted} needs bitsandbytes on {device.kind},"
            f" found support for {', '.join(device.quantizations) or 'no format'}",
            fix="set model.quantization to none, or install bitsandbytes for this host's Python"
            " and run llmdeploy preflight again",
        )


def _check_ranks(service: Service, device: Device, shape: ModelShape) -> None:
    ranks = service.engine.tensor_parallel or 1
    if ranks == 1:
        return
    possible = [
        n
        for n in range(1, shape.kv_heads + 1)
        if shape.attention_heads % n == 0 and shape.kv_heads % n == 0
    ]
    if ranks not in possible:
        raise Refused(
            f"engine/tensor_parallel: {ranks} does not divide {shape.attention_heads} attention"
            f" heads and {shape.kv_heads} KV heads",
            fix=f"set engine.tensor_parallel to {' or '.join(str(n) for n in possible)}",
        )
    if _held(service) != "none":
        raise Refused(
            f"engine/tensor_parallel: {ranks} ranks cannot split bitsandbytes weights"
            f" ({service.model.quantization})",
            fix="set model.quantization to none, or engine.tensor_parallel to 1",
        )
    if device.kind == "cpu" and ranks > device.cores:
        raise Refused(
            f"engine/tensor_parallel: {ranks} ranks need a core each, a release has {device.cores}",
            fix=f"set engine.tensor_parallel to {max(n for n in possible if n <= device.cores)}",
        )

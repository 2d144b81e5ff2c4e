"""Tensor, pipeline and data parallel of a case, those that it leaves out too."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from llmdeploy.catalog.types import EngineName
from llmdeploy.errors import InputError
from llmdeploy.estimate.parse import CaseLine
from llmdeploy.model import ModelShape

HOST_DEVICES = 8
"""Devices of a usual host. Source: HGX, DGX, OAM and Atlas 800 boards hold eight."""
LARGEST_HOST_DEVICES = 16
"""Devices that one NVLink switch joined outside racks. Source: HGX-2, and HGX A100 with 16."""
RACK_DEVICES = 72
"""Devices in one NVLink domain. Source: NVIDIA GB200 NVL72 data sheet."""
MOST_DEVICES = 16
"""That TP is assumed to span where nothing is said: two usual hosts."""
LAYER_SPLIT: tuple[EngineName, ...] = ("llama.cpp", "exllama")
"""Engines that give each device whole layers. Source: llama.cpp `--split-mode layer`, its
default; ExLlama's `--gpu-split`."""
INNER_DATA_PARALLEL: tuple[EngineName, ...] = ("sglang", "tensorrt-llm")
"""Engines whose data parallel attention divides the TP group. Source: SGLang 0.5 `--dp-size` with
`--enable-dp-attention`; TensorRT-LLM 1.0 `enable_attention_dp`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A case's counts as far as it says them, and what decides the others."""

    line: CaseLine
    shape: ModelShape
    engine: EngineName
    place: str
    holds: Callable[[int], bool] | None
    """Whether that many devices hold the weights, each its part; None: not known."""
    domain: int
    """Devices joined by the fast link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Tensor, pipeline and data parallel, with a word for each that was not given."""

    tensor: int
    pipeline: int
    data: int
    inner: bool = False
    """Attention data parallel lies within TP."""
    said: tuple[str, ...] = field(default=())
    guessed: bool = False
    """The number of devices is not known at all."""


def counts(ask: Ask) -> Counts:
    """The counts of a case; InputError where they contradict each other.

    Unknown `gpus` are TP x PP x DP. Unknown TP, with `gpus` known, is the smallest that holds the
    weights and divides the heads, and the rest are replicas. Where neither is known, it is one
    device, as engines start by default; but what is under load and too large for one device runs
    on a whole host, or more where that cannot hold it either.
    """
    if ask.line.gpus is None:
        return _without_gpus(ask)
    if ask.line.tensor_parallel is None:
        return _without_tp(ask, ask.line.gpus)
    return _given(ask, ask.line.gpus, ask.line.tensor_parallel)


def divides(shape: ModelShape, tp: int) -> bool:
    """Whether TP splits the heads evenly, and splits or copies the KV heads.

    Source: vLLM 0.11 `ModelConfig.verify_with_parallel_config` and `get_num_kv_heads`.
    """
    if not shape.attention_heads:
        return True
    if shape.attention_heads % tp:
        return False
    if any(part.kind == "latent" for part in shape.cache):
        return True
    kv_heads = shape.kv_heads or shape.attention_heads
    return kv_heads % tp == 0 or tp % kv_heads == 0


def _given(ask: Ask, gpus: int, tp: int) -> Counts:
    pp, dp = ask.line.pipeline_parallel or 1, ask.line.data_parallel
    used = tp * pp
    if used > gpus:
        raise InputError(
            f"{ask.place}: tensor_parallel: {tp} x pipeline_parallel {pp} need {used} devices,"
            f" gpus says {gpus}",
            fix=f"set gpus to {used}, or tensor_parallel to {max(1, gpus // pp)}",
        )
    if dp is None and used == gpus and _needs_inner(ask, tp):
        word = f"{tp} does not divide the heads: attention is data parallel over {tp} devices"
        return Counts(tensor=tp, pipeline=pp, data=tp, inner=True, said=(word,))
    if dp is None:
        replicas = gpus // used
        word = f"data_parallel is not given: {gpus} / {used} = {replicas}"
        said = (*((word,) if replicas > 1 else ()), *_idle(gpus, used * replicas))
        return Counts(tensor=tp, pipeline=pp, data=replicas, said=said)
    if dp > 1 and used * dp > gpus:
        return _inner(ask, used, dp=dp, gpus=gpus)
    return Counts(tensor=tp, pipeline=pp, data=dp, said=_idle(gpus, used * dp))


def _idle(gpus: int, used: int) -> tuple[str, ...]:
    """A word where devices are left over."""
    left = gpus - used
    verb = "is" if left == 1 else "are"
    return (f"{left} of {gpus} devices {verb} not used by tp x pp x dp",) if left else ()


def _needs_inner(ask: Ask, tp: int) -> bool:
    """Whether experts on that many devices can only run with data parallel attention."""
    has_experts = ask.shape.experts is not None
    return ask.engine in INNER_DATA_PARALLEL and has_experts and not divides(ask.shape, tp)


def _inner(ask: Ask, used: int, *, dp: int, gpus: int) -> Counts:
    tp = ask.line.tensor_parallel or 1
    if used == gpus and tp % dp == 0:
        return Counts(tensor=tp, pipeline=used // tp, data=dp, inner=True)
    raise InputError(
        f"{ask.place}: data_parallel: {dp} x {used} devices of tensor and pipeline parallel are"
        f" {used * dp}, gpus says {gpus}",
        fix=f"set gpus to {used * dp}, or data_parallel to {max(1, gpus // used)}",
    )


def _without_gpus(ask: Ask) -> Counts:
    """As many devices as TP x PP x DP; where an engine may have put DP within TP, it has."""
    line = ask.line
    tp, pp, dp = line.tensor_parallel, line.pipeline_parallel or 1, line.data_parallel or 1
    if tp is not None:
        inner = ask.engine in INNER_DATA_PARALLEL and dp > 1 and tp % dp == 0
        return Counts(tensor=tp, pipeline=pp, data=dp, inner=inner)
    if pp * dp > 1:
        word = "tensor_parallel is not given: 1"
        return Counts(tensor=1, pipeline=pp, data=dp, said=(word,))
    fewest = _fewest(ask) if _loaded(line) else 1
    if fewest == 1:
        word = "gpus and tensor_parallel are not given: one device"
        return Counts(tensor=1, pipeline=1, data=1, said=(word,))
    hosts = max(n for n in range(1, HOST_DEVICES + 1) if divides(ask.shape, n))
    tp = max(fewest, hosts)
    word = (
        f"gpus and tensor_parallel are not given: {tp} devices; the weights need {fewest} or more"
    )
    return Counts(tensor=tp, pipeline=1, data=1, said=(word,), guessed=True)


def _loaded(line: CaseLine) -> bool:
    """Whether requests are served: then the launch had room for its weights."""
    return line.concurrency is not None or line.request_rate_per_s is not None


def _fewest(ask: Ask) -> int:
    """The fewest devices whose TP holds the weights; 1 where none does or none is known."""
    if ask.holds is None or ask.engine in LAYER_SPLIT:
        return 1
    fitting = (n for n in range(1, MOST_DEVICES + 1) if divides(ask.shape, n) and ask.holds(n))
    return next(fitting, 1)


def _without_tp(ask: Ask, gpus: int) -> Counts:
    pp, dp = ask.line.pipeline_parallel, ask.line.data_parallel
    shared = (pp or 1) * (dp or 1)
    if gpus % shared:
        raise InputError(
            f"{ask.place}: gpus: {gpus} devices cannot be shared by pipeline_parallel {pp or 1} x"
            f" data_parallel {dp or 1}",
            fix=f"set gpus to a multiple of {shared}",
        )
    rest = gpus // shared
    if ask.engine in LAYER_SPLIT and pp is None:
        word = f"tensor_parallel is not given: {ask.engine} splits layers over {rest} devices"
        return Counts(tensor=1, pipeline=rest, data=dp or 1, said=(word,) if rest > 1 else ())
    tp = _tensor(ask, rest, dp=dp)
    replicas = (dp or 1) * (rest // tp)
    more = f" and data_parallel {replicas}" if replicas != (dp or 1) else ""
    word = f"tensor_parallel is not given: {tp}{more} on {gpus} devices"
    return Counts(tensor=tp, pipeline=pp or 1, data=replicas, said=(word,) if gpus > 1 else ())


def _tensor(ask: Ask, devices: int, *, dp: int | None) -> int:
    """All of the devices where DP is given or nothing is known of memory; else the fewest."""
    most = min(devices, ask.domain)
    fitting = [
        n for n in range(1, most + 1) if devices % n == 0 and (n == 1 or divides(ask.shape, n))
    ]
    if dp is not None or ask.holds is None:
        return fitting[-1]
    return next((n for n in fitting if ask.holds(n)), fitting[-1])


def nearest(fitting: tuple[int, ...], tp: int) -> int:
    """The TP among `fitting` that is nearest in proportion."""
    return min(fitting, key=lambda fit: (abs(math.log2(fit / tp)), fit))

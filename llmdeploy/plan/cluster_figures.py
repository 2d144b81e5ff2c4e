"""Every figure of a cluster's plan, with its origin and its sum written out."""

from collections.abc import Iterator

from llmdeploy.estimate.answer import Estimated
from llmdeploy.model import ModelShape
from llmdeploy.plan.document import Figure, Origin
from llmdeploy.plan.figure import counted, predicted, shown
from llmdeploy.plan.load import needed_tokens_per_s, peak_requests_per_s
from llmdeploy.plan.rank import Option, Part
from llmdeploy.plan.rate_figures import rate_figures
from llmdeploy.plan.size import tpot_s
from llmdeploy.service import Service

ELEMENT_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}


def figures(option: Option, service: Service, shape: ModelShape) -> tuple[Figure, ...]:
    """The documents' estimate first, then what refines it, then speed, replicas and costs; names
    of a second part end in its number."""
    made = [
        figure.model_copy(update={"name": figure.name if n == 0 else f"{figure.name}_{n + 1}"})
        for n, part in enumerate(option.parts)
        for figure in _part(part, service, shape)
    ]
    return (*made, *_load(option, service))


def _part(part: Part, service: Service, shape: ModelShape) -> Iterator[Figure]:
    yield from _estimate(part, service, shape)
    yield from _memory(part, service)
    yield from rate_figures(part, shape)
    yield from _speed(part, service)


def _estimate(part: Part, service: Service, shape: ModelShape) -> Iterator[Figure]:
    """The documents' three formulas as they stand, for one device.

    Source: the documents: weights = parameters x bytes per weight; KV budget = device memory x
    allowed share - weights - overhead; max batch = KV budget / mean KV of one request.
    """
    sized = part.sized
    proposal, memory = sized.proposal, sized.memory
    pool, ratio, load = proposal.pool, service.engine.memory_ratio, service.workload
    yield counted(
        "device_memory", pool.usable_bytes, "bytes",
        f"what engines see of a {pool.device.name}", origin=Origin.TABLE,
    )  # fmt: skip
    allowed = int(pool.usable_bytes * ratio)
    yield counted(
        "allowed_memory", allowed, "bytes",
        f"device memory x allowed share: floor({pool.usable_bytes} x {ratio:g})",
    )  # fmt: skip
    if shape.parameters is None:
        return
    format = proposal.weights.format
    per_weight = format.bits / 8 if format is not None else ELEMENT_BYTES[proposal.dtype]
    ranks = proposal.devices if proposal.expert_parallel or proposal.data_parallel == 1 else 1
    weights = int(shape.parameters.total * per_weight / ranks)
    yield counted(
        "weights_estimate", weights, "bytes",
        f"parameters x bytes per weight / ranks:"
        f" floor({shape.parameters.total} x {per_weight:g} / {ranks})",
    )  # fmt: skip
    terms = [memory.activation_bytes, memory.graph_bytes, memory.other_bytes]
    overhead = sum(round(term.value) for term in terms)
    yield counted(
        "overhead_estimate", overhead, "bytes",
        "activations + graphs + contexts and buffers: "
        + " + ".join(str(round(term.value)) for term in terms),
        origin=_origin(memory.activation_bytes),
    )  # fmt: skip
    per_token = round(memory.kv_bytes_per_token.value)
    yield counted("kv_per_token", per_token, "bytes", "of one token on one device, all layers")
    mean = load.input_tokens.mean + load.output_tokens.mean
    request = int(mean * per_token)
    yield counted(
        "kv_per_request", request, "bytes",
        f"mean input and output tokens x KV per token: floor({mean:g} x {per_token})",
    )  # fmt: skip
    budget = allowed - weights - overhead
    yield counted(
        "kv_budget_estimate", budget, "bytes",
        f"allowed memory - weights - overhead: {allowed} - {weights} - {overhead}",
    )  # fmt: skip
    if request > 0:
        yield counted(
            "max_batch_estimate", budget // request, "count",
            f"KV budget / mean KV of one request: floor({budget} / {request})",
        )  # fmt: skip


def _memory(part: Part, service: Service) -> Iterator[Figure]:
    """What the engine at that version is estimated to take and print."""
    sized = part.sized
    memory, engine = sized.memory, sized.proposal.engine
    version = ".".join(str(n) for n in engine.version or ()) or "any version"
    for name, term in (
        ("weights", memory.weights_bytes),
        ("activations", memory.activation_bytes),
        ("graphs", memory.graph_bytes),
        ("contexts_and_buffers", memory.other_bytes),
        ("kv_cache_memory", memory.kv_cache_bytes),
    ):
        if term is not None:
            yield _estimated(name, term, "bytes", f"a device, {engine.name} {version}")
    if memory.kv_cache_tokens is not None:
        yield _estimated("kv_cache", memory.kv_cache_tokens, "tokens", "as the engine prints them")
    if memory.max_concurrency is not None:
        words = f"requests of {service.engine.max_model_len} tokens at once, as printed"
        yield _estimated("max_concurrency", memory.max_concurrency, "requests", words)
    yield counted(
        "max_batch_memory", sized.requests_in_kv_cache, "count",
        "requests of mean length in a replica's KV cache",
    )  # fmt: skip
    limit_s = service.objectives.tpot_p95_s
    words = (
        "asked for"
        if service.engine.max_num_seqs
        else f"what fits and keeps {limit_s:g} s a token on average"
    )
    yield counted("max_num_seqs", sized.batch, "count", words)


def _speed(part: Part, service: Service) -> Iterator[Figure]:
    sized, pace = part.sized, part.sized.pace
    origin = Origin.DERIVED
    prompt, answer = service.workload.input_tokens.mean, service.workload.output_tokens.mean
    step_s = pace.decode_step_s(sized.batch, prompt + answer / 2)
    known = f"{pace.method}, 90 % within {pace.spread_ratio:.0%}"
    yield predicted(
        "step_time", step_s, "s",
        f"one decoding step of {sized.batch} requests of {prompt + answer / 2:g} tokens ({known})",
        origin=origin,
    )  # fmt: skip
    yield predicted(
        "tpot", tpot_s(pace, service, sized.batch), "s",
        f"step + requests / mean output x prefill of a mean prompt, saturated ({known})",
        origin=origin,
    )  # fmt: skip
    yield predicted(
        "predicted_throughput", sized.tokens_per_s, "tokens/s",
        f"a replica, saturated: requests / time per token: {sized.batch} / {shown(sized.tpot_s)}",
        origin=origin,
    )  # fmt: skip
    seen = part.peak
    yield predicted(
        "utilisation", seen.utilisation_ratio, "ratio",
        f"at the peak: {shown(part.rate_per_s)} / {shown(seen.sustained_rate_per_s)} requests/s",
        origin=origin,
    )  # fmt: skip
    for name, value in (
        ("ttft_p50", seen.ttft_p50_s), ("ttft_p95", seen.ttft_p95_s), ("ttft_p99", seen.ttft_p99_s),
        ("tpot_p95", seen.tpot_p95_s),
    ):  # fmt: skip
        words = f"at the peak, queue included, {part.replicas} replica(s) ({known})"
        yield predicted(name, value, "s", words, origin=origin)
    yield predicted(
        "batch_at_peak", seen.batch, "requests", "decoded together on a replica, mean",
        origin=origin,
    )  # fmt: skip


def _load(option: Option, service: Service) -> Iterator[Figure]:
    load, needed = service.workload, needed_tokens_per_s(service.workload)
    yield predicted(
        "peak_rate", peak_requests_per_s(load), "requests/s",
        f"requests a day / 86400 x peak factor:"
        f" {load.requests_per_day} / 86400 x {load.peak_factor:g}",
        origin=Origin.DERIVED,
    )  # fmt: skip
    yield predicted(
        "needed_throughput", needed, "tokens/s",
        f"peak rate x mean output: {load.requests_per_day} / 86400 x {load.peak_factor:g}"
        f" x {load.output_tokens.mean:g}",
        origin=Origin.DERIVED,
    )  # fmt: skip
    ratio = service.objectives.utilisation_ratio
    if len(option.parts) == 1:
        (part,) = option.parts
        words = (
            f"at least needed / (predicted x utilisation), {shown(needed)}"
            f" / ({shown(part.sized.tokens_per_s)} x {ratio:g}), and as many as keep the objectives"
        )
        yield counted("replicas", part.replicas, "count", words)
    else:
        words = " + ".join(str(part.replicas) for part in option.parts)
        total = sum(part.replicas for part in option.parts)
        yield counted("replicas", total, "count", f"of all parts: {words}")
    yield counted("spares", option.spares, "count", "replicas beyond those, for the loss of one")
    each = " + ".join(
        f"{part.replicas + part.spares} x {part.sized.proposal.devices}" for part in option.parts
    )
    yield counted("devices", option.devices, "count", f"replicas and spares x devices: {each}")
    power_w = option.power_w
    if power_w is not None:
        yield predicted(
            "power", power_w, "W", "devices x their limits, hosts not counted", origin=Origin.TABLE
        )


def _estimated(name: str, term: Estimated, unit: str, words: str) -> Figure:
    """A number with its interval; whole where it counts bytes or tokens."""
    interval = f"{term.method}, 90 %: {shown(term.low)} to {shown(term.high)}"
    if unit in ("bytes", "tokens"):
        return counted(name, round(term.value), unit, f"{words} ({interval})", origin=_origin(term))
    return predicted(name, term.value, unit, f"{words} ({interval})", origin=_origin(term))


def _origin(term: Estimated) -> Origin:
    return Origin(term.origin)

"""Every figure of the plan, with its origin and its sum written out."""

from collections.abc import Iterator

from llmdeploy.estimate.speed.processors import KV_PASSES, REQUEST_S, STEP_OVERHEAD_S
from llmdeploy.plan.case import Case
from llmdeploy.plan.document import Figure, Origin
from llmdeploy.plan.figure import counted, predicted, shown, weaker
from llmdeploy.plan.memory import KEPT_FACTOR, PAGE_TOKENS, pages, step_bytes


def figures(case: Case) -> tuple[Figure, ...]:
    """The documents' estimate first, then what refines it, then speed and replicas.

    A formula reads `words: sum = value`; its sum can be computed as it stands
    (tests/plan/test_explain.py does).
    """
    load = (*_start(case), *_load(case))
    return (*_estimate(case), *_memory(case), *_batch(case), *_speed(case), *load)


def _estimate(case: Case) -> Iterator[Figure]:
    """The documents' three formulas as they stand.

    Source: the documents: weights = parameters x bytes per weight; KV budget = device memory x
    allowed share - weights - overhead; max batch = KV budget / mean KV of one request.
    """
    layout, manifest, device = case.layout, case.manifest, case.device
    ratio = case.service.engine.memory_ratio
    yield counted(
        "device_memory", device.memory_bytes, "bytes", device.memory_source, origin=Origin.MEASURED
    )
    yield counted(
        "allowed_memory",
        layout.allowed_bytes,
        "bytes",
        f"device memory / releases side by side x allowed share:"
        f" floor({device.memory_bytes} / {device.slots} x {ratio:g})",
    )
    per_weight = layout.numerics.bytes_per_weight
    weights = round(manifest.parameters * per_weight) * layout.workers
    yield counted(
        "weights_estimate",
        weights,
        "bytes",
        f"copies x parameters x bytes per weight: {layout.workers} x {manifest.parameters}"
        f" x {per_weight:g}",
    )
    overhead = layout.footprint.processes_bytes
    yield counted(
        "overhead_estimate",
        overhead,
        "bytes",
        f"processes of {layout.workers * layout.ranks} workers and their endpoint",
        origin=Origin.TABLE if device.kind == "cpu" else Origin.ASSUMED,
    )
    yield from _estimate_batch(case, weights=weights, overhead=overhead)


def _estimate_batch(case: Case, *, weights: int, overhead: int) -> Iterator[Figure]:
    """The third formula, from bytes of weights and of overhead.

    Source: as `_estimate`.
    """
    layout, shape = case.layout, case.manifest.shape
    yield counted(
        "kv_per_token",
        layout.kv_per_token,
        "bytes",
        f"layers x 2 (K, V) x KV heads x head_dim x bytes:"
        f" {shape.layers} x 2 x {shape.kv_heads} x {shape.head_dim} x "
        f"{layout.numerics.element_bytes}",
    )
    mean = int(case.mean_tokens * layout.kv_per_token)
    yield counted(
        "kv_per_request",
        mean,
        "bytes",
        f"mean input and output tokens x KV per token:"
        f" floor({case.mean_tokens:g} x {layout.kv_per_token})",
    )
    budget = layout.allowed_bytes - weights - overhead
    yield counted(
        "kv_budget_estimate",
        budget,
        "bytes",
        f"allowed memory - weights - overhead: {layout.allowed_bytes} - {weights} - {overhead}",
    )
    yield counted(
        "max_batch_estimate",
        budget // mean,
        "count",
        f"KV budget / mean KV of one request: floor({budget} / {mean})",
    )


def _memory(case: Case) -> Iterator[Figure]:
    layout, taken = case.layout, case.layout.footprint
    engine, workers = case.service.engine, case.layout.workers
    yield counted(
        "weights",
        taken.weights_bytes,
        "bytes",
        f"{_held(case)}: {workers} x {taken.weights_bytes // workers}",
    )
    yield counted(
        "packed_weights",
        taken.packed_bytes,
        "bytes",
        "a second copy, packed for fast products" if taken.packed_bytes else "none is kept",
    )
    per_step = step_bytes(
        case.manifest.shape,
        batch=-(-(engine.max_num_seqs or layout.batch_by_compute) // workers),
        batched_tokens=engine.max_num_batched_tokens,
    )
    processes = workers * layout.ranks
    grown = taken.workspace_bytes // processes - per_step
    yield counted(
        "workspace",
        taken.workspace_bytes,
        "bytes",
        f"workers x (allocator's growth + activations and logits of a step):"
        f" {processes} x ({grown} + {per_step})",
        origin=Origin.TABLE,
    )
    yield counted(
        "kv_budget",
        layout.kv_budget_bytes,
        "bytes",
        f"allowed memory - weights - packed weights - overhead - workspace:"
        f" {layout.allowed_bytes} - {taken.weights_bytes} - {taken.packed_bytes}"
        f" - {taken.processes_bytes} - {taken.workspace_bytes}",
    )
    yield counted("kv_cache", layout.kv_tokens, "tokens", _kv_words(case))
    yield counted(
        "memory_needed",
        layout.memory_bytes,
        "bytes",
        f"weights + packed weights + overhead + workspace + KV cache:"
        f" {taken.weights_bytes} + {taken.packed_bytes} + {taken.processes_bytes}"
        f" + {taken.workspace_bytes} + {layout.kv_tokens} x {layout.kv_per_token}",
    )


def _batch(case: Case) -> Iterator[Figure]:
    layout, speed = case.layout, case.device.speed
    yield counted(
        "max_batch_memory",
        layout.batch_in_kv,
        "count",
        f"KV budget / (mean tokens x KV per token):"
        f" floor({layout.kv_budget_bytes} / ({case.mean_tokens:g} x {layout.kv_per_token}))",
    )
    limit_s = case.service.objectives.tpot_p95_s
    each = layout.batch_by_compute // layout.workers
    yield counted(
        "max_batch_compute",
        layout.batch_by_compute,
        "count",
        f"workers x requests that keep {limit_s:g} s per token, and no more than bring speed:"
        f" {layout.workers} x {each}",
        origin=weaker(speed.origin),
    )
    asked = case.service.engine.max_num_seqs
    words = "asked for" if asked else "the smaller of both, the same for each worker"
    yield counted("max_num_seqs", layout.batch, "count", words)


def _speed(case: Case) -> Iterator[Figure]:
    layout, pace = case.layout, case.layout.pace
    speed, each = case.device.speed, case.layout.batch / case.layout.workers
    origin = weaker(speed.origin)
    for name, value, unit in (
        ("memory_read_rate", speed.read_bytes_per_s, "bytes/s"),
        ("matmul_rate", speed.matmul_flops_per_s, "FLOP/s"),
    ):
        yield predicted(
            name, value, unit, f"of one {_part(case)}, {speed.source}", origin=speed.origin
        )
    yield predicted(
        "step_time",
        pace.step_s(each),
        "s",
        f"overheads + (weights + requests x {KV_PASSES} x KV) / read rate + requests x products"
        f" / decode rate: {STEP_OVERHEAD_S} + {each:g} x {REQUEST_S}"
        f" + ({pace.weights_bytes} + {each:g} x {KV_PASSES} x {pace.kv_bytes:.0f})"
        f" / {shown(pace.read_bytes_per_s)} + {each:g} x {pace.decode_flops:.0f}"
        f" / {shown(pace.decode_flops_per_s)}",
        origin=origin,
    )
    yield predicted(
        "tpot",
        pace.tpot_s(each),
        "s",
        f"step + requests x input / output x prefill per token: {shown(pace.step_s(each))}"
        f" + {each:g} x {pace.input_tokens:g} / {pace.output_tokens:g}"
        f" x {shown(pace.prefill_s_per_token)}",
        origin=origin,
    )
    yield predicted(
        "predicted_throughput",
        layout.tokens_per_s,
        "tokens/s",
        f"saturated: workers x requests / time per token: {layout.workers} x {each:g}"
        f" / {shown(pace.tpot_s(each))}",
        origin=origin,
    )


def _start(case: Case) -> Iterator[Figure]:
    rate, weights_bytes = case.device.disk_read_bytes_per_s, case.manifest.weights_bytes
    if rate is not None:
        yield predicted(
            "load_time", weights_bytes / rate, "s",
            f"files of the weights / measured disk read: {weights_bytes} / {shown(rate)}",
            origin=Origin.MEASURED,
        )  # fmt: skip


def _load(case: Case) -> Iterator[Figure]:
    layout, load = case.layout, case.service.workload
    origin, needed = weaker(case.device.speed.origin), case.needed_tokens_per_s
    utilisation = case.service.objectives.utilisation_ratio
    yield predicted(
        "peak_rate",
        load.requests_per_day / 86400 * load.peak_factor,
        "requests/s",
        f"requests a day / 86400 x peak factor:"
        f" {load.requests_per_day} / 86400 x {load.peak_factor:g}",
        origin=Origin.DERIVED,
    )
    yield predicted(
        "needed_throughput",
        needed,
        "tokens/s",
        f"peak rate x mean output: {load.requests_per_day} / 86400 x {load.peak_factor:g}"
        f" x {load.output_tokens.mean:g}",
        origin=Origin.DERIVED,
    )
    yield counted(
        "replicas",
        1,
        "count",
        f"needed / (predicted x utilisation): ceil({shown(needed)}"
        f" / ({shown(layout.tokens_per_s)} x {utilisation:g}))",
        origin=origin,
    )
    yield predicted(
        "utilisation",
        needed / layout.tokens_per_s,
        "ratio",
        f"at the peak: {shown(needed)} / {shown(layout.tokens_per_s)}",
        origin=origin,
    )
    yield _ttft(case, origin)


def _ttft(case: Case, origin: Origin) -> Figure:
    """Of a p95 prompt that finds the peak's mean batch decoding and no queue before it."""
    pace, prompt = case.layout.pace, case.service.workload.input_tokens.p95
    chunk = case.service.engine.max_num_batched_tokens
    return predicted(
        "ttft_p95",
        case.ttft_s,
        "s",
        f"p95 prompt x prefill per token + its chunks x a step at the peak, no queue:"
        f" {prompt:g} x {shown(pace.prefill_s_per_token)} + ceil({prompt:g} / {chunk})"
        f" x {shown(pace.step_s(case.peak_batch))}",
        origin=origin,
    )


def _held(case: Case) -> str:
    numerics = case.layout.numerics
    if numerics.quantization != "none":
        return f"copies x ({numerics.quantization} matrices, {numerics.dtype} tables and norms)"
    if numerics.dtype == case.manifest.dtype:
        return "copies x tensors as the files' headers list them"
    return f"copies x tensors in {numerics.dtype}"


def _kv_words(case: Case) -> str:
    layout, load = case.layout, case.service.workload
    longest = case.service.engine.max_model_len
    fits = layout.kv_budget_bytes // layout.kv_per_token
    if case.device.kind == "cuda":
        return (
            f"what fits ({fits}), and no more than requests x max_model_len"
            f" ({layout.batch} x {pages(longest)}), in {PAGE_TOKENS}-token pages"
        )
    usual = pages(min(longest, load.input_tokens.p95 + load.output_tokens.p95))
    return (
        f"what fits ({fits}), and no more than {KEPT_FACTOR} x requests x p95 of input and"
        f" output ({KEPT_FACTOR} x {layout.batch} x {usual}) or one whole request a worker"
        f" ({layout.workers} x {pages(longest)}), in {PAGE_TOKENS}-token pages"
    )


def _part(case: Case) -> str:
    return "core" if case.device.kind == "cpu" else "card"

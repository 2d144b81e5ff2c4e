"""The plan's decisions and warnings, in words."""

from collections.abc import Iterator

from llmdeploy.plan.case import Case
from llmdeploy.plan.document import Origin
from llmdeploy.plan.figure import shown
from llmdeploy.units import show_bytes


def notes(case: Case) -> tuple[str, ...]:
    """The decisions that a reader would ask about."""
    return tuple(_notes(case))


def _notes(case: Case) -> Iterator[str]:
    layout, device, service = case.layout, case.device, case.service
    needed = case.needed_tokens_per_s
    yield (
        f"One device is enough: {case.manifest.id} with its KV cache takes"
        f" {show_bytes(layout.memory_bytes)} of the {show_bytes(layout.allowed_bytes)} a release"
        f" may use, and the peak's {shown(needed)} output tokens/s are"
        f" {needed / layout.tokens_per_s:.0%} of the predicted {shown(layout.tokens_per_s)}."
    )
    free = 1 - service.engine.memory_ratio
    yield f"{free:.0%} of each release's share of {device.memory_source} stays free."
    if device.slots > 1:
        yield (
            "Old and new release run side by side, each with half of the memory"
            + (" and its own cores." if len(device.core_slots) > 1 else ".")
        )
    if layout.workers > 1:
        yield (
            f"{layout.workers} workers of {layout.threads} thread(s), each with its own copy of"
            " the weights: that takes the least time per token at the peak."
        )
    elif layout.threads > 1:
        yield (
            f"One worker of {layout.threads} threads, which read one copy of the weights"
            " together: that takes the least time per token at the peak."
        )
    if layout.numerics.dtype != case.manifest.dtype and service.model.dtype == "auto":
        yield (
            f"Weights stored in {case.manifest.dtype} are held in {layout.numerics.dtype}: this"
            " processor's 16-bit products are slower."
        )
    if device.kind == "cuda":
        yield "Speed is a roofline only: this engine was not calibrated on CUDA."
    elif device.speed.origin == Origin.ASSUMED:
        yield (
            "Speeds are assumed: measure them with `llmdeploy preflight service.yaml --out"
            " facts.json` and plan with `--facts facts.json`."
        )
    yield from _warnings(case)
    yield "There is no spare replica: one host serves, and its loss stops the service."


def _warnings(case: Case) -> Iterator[str]:
    service, pace = case.service, case.layout.pace
    each = case.layout.batch / case.layout.workers
    promised_s = service.objectives.tpot_p95_s
    if pace.tpot_s(each) > promised_s:
        yield (
            f"max_num_seqs {case.layout.batch}: time per token is predicted at"
            f" {shown(pace.tpot_s(each))} s when all are busy, objectives.tpot_p95 is"
            f" {promised_s:g} s."
        )
    if case.ttft_s > service.objectives.ttft_p95_s:
        yield (
            f"TTFT of a p95 prompt is predicted at {shown(case.ttft_s)} s, objectives.ttft_p95 is"
            f" {service.objectives.ttft_p95_s:g} s."
        )
    long_tokens = service.workload.input_tokens.p95 + service.workload.output_tokens.p95
    if long_tokens > service.engine.max_model_len:
        yield (
            f"p95 input and output together are {long_tokens:g} tokens, max_model_len is"
            f" {service.engine.max_model_len}: such requests are refused or cut."
        )

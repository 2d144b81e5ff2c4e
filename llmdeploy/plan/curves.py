"""Latency against load for each kind of replica of a plan, from the plan alone."""

from collections.abc import Iterator
from dataclasses import dataclass

from llmdeploy.catalog import devices, engines
from llmdeploy.errors import InputError
from llmdeploy.estimate.case import Case
from llmdeploy.model import ModelShape, WeightFormat, weight_format
from llmdeploy.plan.cluster import PlannedPart
from llmdeploy.plan.document import Plan, Replica
from llmdeploy.plan.engine_pace import engine_pace
from llmdeploy.plan.figure_pace import figure_pace
from llmdeploy.plan.load import peak_requests_per_s
from llmdeploy.plan.peak import distribution
from llmdeploy.simulate import Limits, Pace
from llmdeploy.simulate.curve import Curve, curve

DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledPace:
    """Another pace, all its times multiplied."""

    pace: Pace
    ratio: float

    def decode_step_s(self, batch: float, context_tokens: float) -> float:
        """As the pace's own, multiplied."""
        return self.ratio * self.pace.decode_step_s(batch, context_tokens)

    def prefill_s(self, tokens: float, context_tokens: float = 0) -> float:
        """As the pace's own, multiplied."""
        return self.ratio * self.pace.prefill_s(tokens, context_tokens)


def curves(plan: Plan) -> tuple[Curve, ...]:
    """One curve a part; none for a part whose device or weights nobody knows any more."""
    return tuple(_of_cluster(plan) if plan.cluster is not None else _of_one_host(plan))


def _of_one_host(plan: Plan) -> Iterator[Curve]:
    pace, serve = figure_pace(plan), plan.replicas[0].serve
    if pace is None:
        return
    workers = serve.data_parallel
    limits = Limits(
        kv_cache_tokens=max(1, serve.kv_cache_tokens // workers),
        max_num_seqs=max(1, serve.max_num_seqs // workers),
        max_num_batched_tokens=serve.max_num_batched_tokens,
    )
    yield _curve(
        plan,
        pace,
        limits,
        name=f"{serve.engine} on {serve.device}, each worker",
        replicas=workers,
        rate_per_s=peak_requests_per_s(plan.workload),
    )


def _of_cluster(plan: Plan) -> Iterator[Curve]:
    assert plan.cluster is not None, "asked for a cluster's plan only"
    for number, part in enumerate(plan.cluster.parts):
        replica = next((r for r in plan.replicas if r.part == number), None)
        if replica is None:
            continue
        try:
            pace = _pace(plan, number, part, replica)
        except InputError:  # the plan names what this version's catalog no longer has
            continue
        load = plan.workload
        mean_tokens = load.input_tokens.mean + load.output_tokens.mean
        limits = Limits(
            kv_cache_tokens=max(1, int(part.requests_in_kv * mean_tokens)),
            max_num_seqs=part.max_num_seqs,
            max_num_batched_tokens=replica.serve.max_num_batched_tokens,
        )
        yield _curve(
            plan,
            pace,
            limits,
            name=part.layout,
            replicas=part.replicas,
            rate_per_s=part.requests_per_s,
        )


def _curve(
    plan: Plan, pace: Pace, limits: Limits, *, name: str, replicas: int, rate_per_s: float
) -> Curve:
    load = plan.workload
    return curve(
        pace,
        name=name,
        rate_per_s=rate_per_s,
        replicas=replicas,
        lengths=(distribution(load.input_tokens), distribution(load.output_tokens)),
        limits=limits,
    )


def _pace(plan: Plan, number: int, part: PlannedPart, replica: Replica) -> Pace:
    """The part's pace, scaled to the step that the plan's figure states: links that only the
    inventory names are in that figure."""
    case = _case(plan, part, replica)
    pace = engine_pace(case)
    name = "step_time" if number == 0 else f"step_time_{number + 1}"
    stated = next((f.value for f in plan.figures if f.name == name), None)
    load = plan.workload
    context = load.input_tokens.mean + load.output_tokens.mean / 2
    own_s = pace.decode_step_s(part.max_num_seqs, context)
    return ScaledPace(pace=pace, ratio=stated / own_s if stated else 1.0)


def _case(plan: Plan, part: PlannedPart, replica: Replica) -> Case:
    serve, shape = replica.serve, plan.model.shape
    group = serve.group
    return Case(
        shape=shape,
        weight_format=_format(part.weights, shape),
        engine=engines.find(serve.engine, group.version if group else None),
        device=devices.find(part.device),
        device_memory_bytes=part.usable_bytes,
        hosts=part.hosts_per_replica,
        tensor_parallel=part.tensor_parallel,
        pipeline_parallel=part.pipeline_parallel,
        data_parallel=part.data_parallel,
        expert_parallel=part.expert_parallel,
        attention_data_parallel=part.data_parallel > 1,
        max_model_len=serve.max_model_len,
        kv_cache_dtype=None if part.kv_cache_dtype == "auto" else part.kv_cache_dtype,
        dtype=DTYPES[serve.dtype],
        max_num_seqs=part.max_num_seqs,
        max_num_batched_tokens=serve.max_num_batched_tokens,
        input_tokens=plan.workload.input_tokens.mean,
        output_tokens=plan.workload.output_tokens.mean,
    )


def _format(name: str, shape: ModelShape) -> WeightFormat | None:
    """The format of that name, the checkpoint's own where it is that one."""
    if shape.weight_format is not None and shape.weight_format.method == name:
        return shape.weight_format
    return weight_format(name)

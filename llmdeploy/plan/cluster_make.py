"""Makes the plan of a service on a cluster: search, choice, places, expectations."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from llmdeploy.errors import InputError
from llmdeploy.inventory import Inventory
from llmdeploy.model import ModelShape, weights_bytes
from llmdeploy.plan.changes import refusal
from llmdeploy.plan.cluster import (
    Choice,
    Cluster,
    Cost,
    Expected,
    PlannedPart,
    Quality,
    RejectedLayout,
)  # fmt: skip
from llmdeploy.plan.cluster_figures import figures
from llmdeploy.plan.cluster_notes import notes
from llmdeploy.plan.coresidency import coresidency
from llmdeploy.plan.document import Plan, PlannedModel, Promises, Replica
from llmdeploy.plan.larger_steps import step_notes
from llmdeploy.plan.lengths import check_lengths
from llmdeploy.plan.place import place
from llmdeploy.plan.pool import Pool
from llmdeploy.plan.rank import Option, Part, best, dominated, pareto
from llmdeploy.plan.refusal import changed
from llmdeploy.plan.search import Found, search
from llmdeploy.plan.serving import EngineKind, alternatives, serve, wanted
from llmdeploy.plan.size import Estimators
from llmdeploy.service import Service

HOURS_A_DAY = 24
DIGITS = 4
RANK_HOST_BYTES = 4 * 2**30
"""Of a host's memory that one process beside a card takes, and the server before them. Source:
assumed: 2 to 4 GiB resident with torch and a CUDA context; what is read from disk is page cache."""
QUALITY: tuple[Quality, ...] = ("as published", "8 bits", "4 bits")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannableModel:
    """A model as far as a plan needs it; its files may lie in no store yet."""

    id: str
    shape: ModelShape
    manifest_sha256: str | None = None
    """None: declared by its config alone."""


def make_for_cluster(
    service: Service,
    inventory: Inventory,
    pools: Sequence[Pool],
    model: PlannableModel,
    *,
    using: Estimators,
) -> Plan:
    """The plan; Refused with the smallest changes that would do where no layout does."""
    check_lengths(service, model.shape)
    check_format(service, model.shape)
    service = changed(service, "model", id=model.id)
    engine = wanted(service)
    found = search(service, model.shape, pools, engine=engine.engine, using=using)
    if not found.options:
        raise refusal(found, service, model.shape, pools, engine=engine.engine, using=using)
    option = best(found.options)
    cluster = _cluster(option, found, service, inventory, model.shape, using=using)
    host = inventory.gateway_host
    return Plan(
        schema=1,
        service=service.name,
        model=_model(model),
        replicas=_replicas(option, service, model.shape, version=engine.version),
        core_slots=(),
        ports=inventory.ports,
        state_root=inventory.state_root,
        model_store=inventory.model_store,
        data_address=host.data_address,
        python=inventory.python_of(host),
        workload=service.workload,
        objectives=service.objectives,
        gateway=service.gateway,
        release=service.release,
        promises=_promises(option),
        figures=figures(option, service, model.shape),
        notes=(
            *notes(option, found, cluster, service, engine=engine, inventory=inventory),
            *step_notes(option, service, model.shape, using=using),
        ),
        cluster=cluster,
    )


def check_format(service: Service, shape: ModelShape) -> None:
    """InputError where another format is asked than the checkpoint has: it cannot be undone."""
    asked, held = service.model.quantization, shape.weight_format
    if held is None or asked in ("auto", held.method) or held.method.startswith(asked):
        return
    raise InputError(
        f"model/quantization: found {asked}, the checkpoint's weights are {held.method} already",
        fix="set model.quantization to auto, or name the unquantised model",
    )


def _model(model: PlannableModel) -> PlannedModel:
    shape = model.shape
    size = weights_bytes(shape, shape.weight_format) if shape.parameters is not None else None
    if model.manifest_sha256 is not None:
        return PlannedModel(
            id=model.id,
            manifest_sha256=model.manifest_sha256,
            shape=shape,
            weights_bytes=size,
        )
    text = json.dumps(model.shape.model_dump(mode="json"), sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return PlannedModel(
        id=model.id, manifest_sha256=digest, shape=shape, weights_bytes=size, declared=True
    )


def _replicas(
    option: Option, service: Service, shape: ModelShape, *, version: str
) -> tuple[Replica, ...]:
    serves = []
    for part in option.parts:
        kind = _kind(part)
        serves.append(serve(part, service, shape, kind=kind, version=version))
    return tuple(
        Replica(
            name=f"r{number}",
            host=placed.members[0].host,
            serve=serves[placed.part],
            members=placed.members,
            part=placed.part,
            spare=placed.spare,
        )
        for number, placed in enumerate(place(option))
    )


def _kind(part: Part) -> EngineKind:
    name = part.sized.proposal.engine.name
    assert name in ("embedded", "vllm", "sglang"), "the service's engine is one of these"
    return name


def _promises(option: Option) -> Promises:
    """Of the replicas that carry the peak; a spare adds to them, and is not counted on."""
    return Promises(
        kv_cache_tokens=min(part.sized.printed_tokens for part in option.parts),
        max_concurrency=sum(part.sized.batch * part.replicas for part in option.parts),
        output_tokens_per_s=_short(
            sum(part.sized.tokens_per_s * part.replicas for part in option.parts)
        ),
    )


def _cluster(
    option: Option,
    found: Found,
    service: Service,
    inventory: Inventory,
    shape: ModelShape,
    *,
    using: Estimators,
) -> Cluster:
    front = pareto(found.options)
    if option not in front:  # equal to one of the front in all that is compared
        front = (option, *front)
    rejected = (*found.rejected, *dominated(found.options, front))
    return Cluster(
        parts=tuple(_part(part) for part in option.parts),
        expected=_expected(option, service),
        cost=_cost(option, service, inventory),
        coresidency=coresidency(option, service, shape, using=using),
        choices=tuple(_choice(other, chosen=other is option) for other in front),
        alternatives=alternatives(option, service, shape, using=using),
        looked_at=found.looked_at,
        rejected=tuple(
            RejectedLayout(layout=r.layout, rule=r.broken.rule, words=r.broken.words)
            for r in rejected
        ),
    )


def _part(part: Part) -> PlannedPart:
    sized = part.sized
    proposal, memory = sized.proposal, sized.memory
    return PlannedPart(
        layout=proposal.name,
        device=proposal.pool.device.id,
        weights=proposal.weights.name,
        kv_cache_dtype=proposal.kv_cache_dtype or "auto",
        tensor_parallel=proposal.tensor_parallel,
        pipeline_parallel=proposal.pipeline_parallel,
        data_parallel=proposal.data_parallel,
        expert_parallel=proposal.expert_parallel,
        hosts_per_replica=proposal.machines,
        devices_per_replica=proposal.devices,
        replicas=part.replicas,
        spares=part.spares,
        max_num_seqs=sized.batch,
        kv_cache_tokens=part.sized.printed_tokens,
        requests_in_kv=sized.requests_in_kv_cache,
        output_tokens_per_s=_short(sized.tokens_per_s),
        requests_per_s=_short(part.rate_per_s),
        weights_bytes=round(memory.weights_bytes.value),
        activation_bytes=round(memory.activation_bytes.value),
        graph_bytes=round(memory.graph_bytes.value),
        other_bytes=round(memory.other_bytes.value),
        kv_cache_bytes=sized.kv_cache_bytes,
        usable_bytes=proposal.pool.usable_bytes,
        host_memory_bytes=_host_memory_bytes(part),
    )


def _host_memory_bytes(part: Part) -> int:
    """Of one replica on one of its hosts: on processors all that it holds, beside cards what their
    processes take."""
    proposal, memory = part.sized.proposal, part.sized.memory
    ranks = proposal.devices // proposal.machines
    if proposal.pool.device.vendor != "cpu":
        return (ranks + 1) * RANK_HOST_BYTES
    terms = (memory.weights_bytes, memory.activation_bytes, memory.other_bytes)
    return ranks * (sum(round(term.value) for term in terms) + part.sized.kv_cache_bytes)


def _expected(option: Option, service: Service) -> tuple[Expected, ...]:
    promised = service.objectives
    worst = max(option.parts, key=lambda part: part.peak.ttft_p95_s)
    slowest = max(option.parts, key=lambda part: part.peak.tpot_p95_s)
    busiest = max(option.parts, key=lambda part: part.peak.utilisation_ratio)
    return (
        _one("ttft_p95", promised.ttft_p95_s, worst.peak.ttft_p95_s, "s", worst),
        _one("tpot_p95", promised.tpot_p95_s, slowest.peak.tpot_p95_s, "s", slowest),
        _one(
            "utilisation", promised.utilisation_ratio, busiest.peak.utilisation_ratio, "ratio",
            busiest,
        ),
    )  # fmt: skip


def _one(name: str, promised: float, value: float, unit: str, part: Part) -> Expected:
    spread = part.sized.pace.spread_ratio
    high = value * (1 + spread)
    return Expected(
        name=name,
        promised=promised,
        predicted=_short(value),
        low=_short(value / (1 + spread)),
        high=_short(high),
        unit=unit,
        method=part.sized.pace.method,
        kept=value <= promised,
        sure=high <= promised,
    )


def _cost(option: Option, service: Service, inventory: Inventory) -> Cost:
    load = service.workload
    tokens_per_day = load.requests_per_day * load.output_tokens.mean
    price, power_w = option.price_per_hour, option.power_w
    return Cost(
        price_per_hour=None if price is None else _short(price),
        currency=inventory.currency,
        price_per_million_output_tokens=(
            None if price is None else _short(price * HOURS_A_DAY / tokens_per_day * 1e6)
        ),
        power_w=power_w,
        energy_per_day_kwh=None if power_w is None else _short(power_w * HOURS_A_DAY / 1000),
    )


def _choice(option: Option, *, chosen: bool) -> Choice:
    price = option.price_per_hour
    return Choice(
        layout=option.name,
        devices=option.devices,
        spares=option.spares,
        price_per_hour=None if price is None else _short(price),
        power_w=option.power_w,
        ttft_p95_s=_short(option.ttft_p95_s),
        tpot_p95_s=_short(option.tpot_p95_s),
        quality=QUALITY[option.loss],
        chosen=chosen,
    )


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")

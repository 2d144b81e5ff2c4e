"""Makes the plan of a service from its inventory, its hosts' facts and its model."""

from collections.abc import Sequence

from llmdeploy.backends.spec import DrillSpec, ServeSpec
from llmdeploy.estimate.calibration import Forecast
from llmdeploy.facts.bundle import Bundle, HostFacts
from llmdeploy.inventory import Inventory
from llmdeploy.plan import refusal
from llmdeploy.plan.calibrated import calibrated_device
from llmdeploy.plan.case import Case
from llmdeploy.plan.device import Device, choose_device
from llmdeploy.plan.document import Plan, PlannedModel, Promises, Replica
from llmdeploy.plan.explain import figures
from llmdeploy.plan.layout import Layout, Shortfall, check_rules, lay_out
from llmdeploy.plan.load import replicas
from llmdeploy.plan.measured_device import measured_device
from llmdeploy.plan.notes import notes
from llmdeploy.service import Drill, Service
from llmdeploy.store import Model


def make(
    service: Service,
    inventory: Inventory,
    facts: Bundle,
    model: Model,
    *,
    forecasts: Sequence[Forecast] = (),
) -> Plan:
    """The plan; Refused with the smallest changes that would fit where it does not.

    `forecasts` correct the predicted speed by what former releases measured.

    Only facts that stay the same from one asking to the next go in, so that the same service on
    the same host has the same plan: what is free right now is checked by launch.
    """
    host = inventory.gateway_host
    host_facts = facts.host(host.name)
    device = calibrated_device(
        measured_device(choose_device(host_facts, service), facts),
        forecasts,
        engine="embedded",
        model=service.model.id,
    )
    layout = _fitting_layout(service, host_facts, device, model)
    case = Case(service=service, device=device, manifest=model.manifest, layout=layout)
    return Plan(
        schema=1,
        service=service.name,
        model=PlannedModel(
            id=model.manifest.id,
            manifest_sha256=model.manifest.digest,
            shape=model.shape,
            weights_bytes=model.manifest.weights_bytes,
        ),
        replicas=(Replica(name="r0", host=host.name, serve=_serve(service, device, layout)),),
        core_slots=device.core_slots,
        ports=inventory.ports,
        state_root=inventory.state_root,
        model_store=inventory.model_store,
        data_address=host.data_address,
        python=inventory.python_of(host),
        workload=service.workload,
        objectives=service.objectives,
        gateway=service.gateway,
        release=service.release,
        promises=Promises(
            kv_cache_tokens=layout.kv_tokens,
            max_concurrency=layout.batch,
            output_tokens_per_s=float(f"{layout.tokens_per_s:.4g}"),
        ),
        figures=figures(case),
        notes=notes(case),
    )


def _fitting_layout(
    service: Service, host_facts: HostFacts, device: Device, model: Model
) -> Layout:
    """The layout of one replica that carries the peak alone; Refused with what would fit."""
    check_rules(service, device, model.shape)
    layout = lay_out(service, device, model.manifest)
    if isinstance(layout, Shortfall):
        raise refusal.does_not_fit(layout, service, host_facts, model.manifest)
    asked = service.engine.max_num_seqs
    if asked is not None and asked > layout.batch_in_kv:
        raise refusal.too_many(asked, layout, host_facts)
    if layout.pace.tpot_s(1) > service.objectives.tpot_p95_s:
        raise refusal.too_slow(layout, service, host_facts)
    needed = replicas(
        service.workload,
        tokens_per_s=layout.tokens_per_s,
        utilisation_ratio=service.objectives.utilisation_ratio,
    )
    if needed > 1:
        raise refusal.no_room(layout, needed, service, host_facts, model.manifest)
    return layout


def _serve(service: Service, device: Device, layout: Layout) -> ServeSpec:
    engine = service.engine
    return ServeSpec(
        engine="embedded",
        served_name=service.model.id,
        device=device.kind,
        dtype=layout.numerics.dtype,
        quantization=layout.numerics.quantization,
        tensor_parallel=layout.ranks,
        data_parallel=layout.workers,
        threads_per_worker=layout.threads,
        max_model_len=engine.max_model_len,
        max_num_seqs=layout.batch,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        max_queue=service.gateway.max_queue,
        kv_cache_tokens=layout.kv_tokens,
        batch_window_s=engine.batch_window_s,
        request_timeout_s=engine.request_timeout_s,
        drain_timeout_s=engine.drain_timeout_s,
        log_level=engine.log_level,
        drill=_drill(engine.drill) if engine.drill else None,
    )


def _drill(drill: Drill) -> DrillSpec:
    return DrillSpec(
        slowdown=drill.slowdown,
        error_ratio=drill.error_ratio,
        garbage_ratio=drill.garbage_ratio,
        after_requests=drill.after_requests,
    )

"""What to change when a service does not fit, tried out: each change with its numbers."""

from collections.abc import Iterator
from typing import Any

from llmdeploy.errors import LlmDeployError, Refused
from llmdeploy.facts.bundle import HostFacts
from llmdeploy.plan.device import choose_device
from llmdeploy.plan.layout import Layout, Shortfall, check_rules, lay_out
from llmdeploy.plan.load import needed_tokens_per_s
from llmdeploy.service import Service
from llmdeploy.store import Manifest
from llmdeploy.units import show_bytes, show_number


def does_not_fit(
    short: Shortfall, service: Service, facts: HostFacts, manifest: Manifest
) -> Refused:
    """The refusal of a model that leaves no room for one request, with what would fit."""
    needed, allowed = show_bytes(short.needed_bytes), show_bytes(short.allowed_bytes)
    changes = list(_smaller(short, service, facts, manifest))
    return Refused(
        f"host {facts.host}: {manifest.id} with one request of {service.engine.max_model_len}"
        f" tokens needs {needed}, a release may use {allowed}",
        fix="; or ".join(changes)
        or f"use a host where a release may use {needed}, or a smaller model",
    )


def too_slow(layout: Layout, service: Service, facts: HostFacts) -> Refused:
    """The refusal of a model that breaks the promised time per token even alone."""
    alone_s, promised_s = layout.pace.tpot_s(1), service.objectives.tpot_p95_s
    return Refused(
        f"host {facts.host}: one request alone takes {alone_s:.3g} s per token (predicted),"
        f" objectives/tpot_p95 is {promised_s:g} s",
        fix=f"set objectives.tpot_p95 to {alone_s * 1.1:.2g}s or more, or use a faster host",
    )


def too_many(batch: int, layout: Layout, facts: HostFacts) -> Refused:
    """The refusal of more requests at once than the KV cache can hold at their mean length."""
    return Refused(
        f"host {facts.host}: engine/max_num_seqs: {batch} requests of mean length need more KV"
        f" cache than the {show_bytes(layout.kv_budget_bytes)} there are: room for"
        f" {layout.batch_in_kv}",
        fix=f"set engine.max_num_seqs to {layout.batch_in_kv} or less",
    )


def no_room(
    layout: Layout, replicas: int, service: Service, facts: HostFacts, manifest: Manifest
) -> Refused:
    """The refusal of a workload that needs more replicas than the host has room for."""
    needed = needed_tokens_per_s(service.workload)
    usable = layout.tokens_per_s * service.objectives.utilisation_ratio
    fitting = int(service.workload.requests_per_day * usable / needed)
    changes = [
        f"set workload.requests_per_day to {fitting}",
        *_wider(needed, service, facts, manifest),
        f"use a host with {replicas} times the cores",
    ]
    return Refused(
        f"host {facts.host}: the peak needs {show_number(needed)} output tokens/s, one replica"
        f" gives {show_number(usable)} (predicted {show_number(layout.tokens_per_s)} x"
        f" {service.objectives.utilisation_ratio:g} utilisation): {replicas} replicas,"
        " and the host has room for 1",
        fix="; or ".join(changes),
    )


def changed(service: Service, part: str, **values: Any) -> Service:
    """The service with some keys of one part changed."""
    return service.model_copy(update={part: getattr(service, part).model_copy(update=values)})


def _smaller(
    short: Shortfall, service: Service, facts: HostFacts, manifest: Manifest
) -> Iterator[str]:
    mean = service.workload.input_tokens.mean + service.workload.output_tokens.mean
    if mean <= short.longest_tokens < service.engine.max_model_len:
        yield from _tried(
            f"set engine.max_model_len to {short.longest_tokens}",
            changed(service, "engine", max_model_len=short.longest_tokens),
            facts,
            manifest,
        )
    if service.engine.max_num_seqs is not None:
        yield from _tried(
            "leave engine.max_num_seqs out ({batch} then)",
            changed(service, "engine", max_num_seqs=None),
            facts,
            manifest,
        )
    for format in ("int8", "nf4"):
        if service.model.quantization in ("auto", "none"):
            yield from _tried(
                f"set model.quantization to {format}",
                changed(service, "model", quantization=format),
                facts,
                manifest,
            )
    if service.release.side_by_side:
        yield from _tried(
            "set release.side_by_side to false (old and new then share the device)",
            changed(service, "release", side_by_side=False),
            facts,
            manifest,
        )


def _tried(words: str, service: Service, facts: HostFacts, manifest: Manifest) -> Iterator[str]:
    layout = _layout(service, facts, manifest)
    if layout is not None:
        needed, allowed = show_bytes(layout.memory_bytes), show_bytes(layout.allowed_bytes)
        yield f"{words.format(batch=layout.batch)}: needs {needed} of {allowed}"


def _wider(needed: float, service: Service, facts: HostFacts, manifest: Manifest) -> Iterator[str]:
    if not service.release.side_by_side:
        return
    layout = _layout(changed(service, "release", side_by_side=False), facts, manifest)
    usable = layout.tokens_per_s * service.objectives.utilisation_ratio if layout else 0.0
    if usable >= needed:
        yield (
            "set release.side_by_side to false: one release on all cores gives"
            f" {show_number(usable)} tokens/s, and old and new then share them during a release"
        )


def _layout(service: Service, facts: HostFacts, manifest: Manifest) -> Layout | None:
    try:
        device = choose_device(facts, service)
        check_rules(service, device, manifest.shape)
    except LlmDeployError:  # a change that breaks another rule is no advice
        return None
    found = lay_out(service, device, manifest)
    return found if isinstance(found, Layout) else None

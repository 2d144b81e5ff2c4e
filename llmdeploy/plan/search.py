"""Looks at every layout on every pool: which carry the service, and what rejects the others."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from llmdeploy.catalog.types import Engine
from llmdeploy.model import ModelShape
from llmdeploy.plan.load import needed_tokens_per_s, peak_requests_per_s
from llmdeploy.plan.peak import at_rate, broken_objective, carried
from llmdeploy.plan.pool import Pool
from llmdeploy.plan.proposal import Proposal, proposals
from llmdeploy.plan.rank import Option, Part, Rejected
from llmdeploy.plan.rules import Broken, first_broken
from llmdeploy.plan.size import Estimators, Sized, size
from llmdeploy.service import Service


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """All layouts that were looked at."""

    options: tuple[Option, ...]
    rejected: tuple[Rejected, ...]
    fitting: tuple[Sized, ...]
    """Layouts whose memory fits, whether or not they carry the peak."""
    looked_at: int


def search(
    service: Service,
    shape: ModelShape,
    pools: Sequence[Pool],
    *,
    engine: Engine,
    using: Estimators,
) -> Found:
    """Every proposal, carried or rejected by a rule; mixes of pools where none carries it alone."""
    options, rejected, fitting, looked_at = [], [], [], 0
    for pool in pools:
        runs = engine_for(pool, engine, kind=service.engine.kind)
        for proposal in proposals(service, shape, pool, engine=runs):
            looked_at += 1
            sized = _sized(proposal, service, shape, using=using)
            if isinstance(sized, Broken):
                rejected.append(Rejected(layout=proposal.name, broken=sized))
                continue
            fitting.append(sized)
            option = _option(sized, service)
            if isinstance(option, Broken):
                rejected.append(Rejected(layout=proposal.name, broken=option))
            else:
                options.append(option)
    if len(pools) > 1:
        least = min((option.loss for option in options), default=math.inf)
        options += [mix for mix in mixes(fitting, service) if mix.loss < least]
    return Found(
        options=tuple(options),
        rejected=tuple(rejected),
        fitting=tuple(fitting),
        looked_at=looked_at,
    )


def engine_for(pool: Pool, engine: Engine, *, kind: str) -> Engine:
    """The engine on that pool: as the service says; where it leaves it open, a CPU has the embedded
    one."""
    if pool.device.vendor == "cpu" and kind == "auto":
        return Engine(name="embedded", version=None)
    return engine


def mixes(fitting: Iterable[Sized], service: Service) -> list[Option]:
    """For each quality the pools together, the one with most tokens a second and device first,
    as many as the peak needs."""
    found: list[Option] = []
    candidates = list(fitting)
    for loss in sorted({sized.proposal.weights.loss for sized in candidates}):
        best: dict[int, Sized] = {}
        for sized in candidates:
            key = id(sized.proposal.pool)
            known = best.get(key)
            if sized.proposal.weights.loss <= loss and (
                known is None or _whole_pool_tokens_per_s(sized) > _whole_pool_tokens_per_s(known)
            ):
                best[key] = sized
        option = _mixed(sorted(best.values(), key=_per_device, reverse=True), service)
        if option is not None:
            found.append(option)
    return found


def _sized(
    proposal: Proposal, service: Service, shape: ModelShape, *, using: Estimators
) -> Sized | Broken:
    broken = first_broken(proposal, shape)
    return broken if broken is not None else size(proposal, service, shape, using=using)


def _option(sized: Sized, service: Service) -> Option | Broken:
    room = sized.proposal.replicas_that_fit
    found = carried(sized, service, most=room)
    if isinstance(found, Broken):
        return found
    replicas, peak = found
    part = Part(
        sized=sized,
        replicas=replicas,
        spares=1 if room > replicas else 0,
        rate_per_s=peak_requests_per_s(service.workload),
        peak=peak,
    )
    return Option(parts=(part,))


def _mixed(chosen: Sequence[Sized], service: Service) -> Option | None:
    """Whole pools one after the other until the peak is carried; None where all are too few."""
    needed = needed_tokens_per_s(service.workload) / service.objectives.utilisation_ratio
    counts: list[tuple[Sized, int]] = []
    for sized in chosen:
        if needed <= 1e-9:
            break
        room = sized.proposal.replicas_that_fit
        count = min(room, math.ceil(needed / sized.tokens_per_s - 1e-9))
        counts.append((sized, count))
        needed -= count * sized.tokens_per_s
    if needed > 1e-9 or len(counts) < 2:
        return None
    total = sum(count * sized.tokens_per_s for sized, count in counts)
    rate, parts = peak_requests_per_s(service.workload), []
    spare = next((s for s, n in reversed(counts) if s.proposal.replicas_that_fit > n), None)
    for sized, count in counts:
        share = rate * count * sized.tokens_per_s / total
        seen = at_rate(sized, service, rate_per_s=share, replicas=count)
        if broken_objective(seen, service) is not None:
            return None
        spares = 1 if sized is spare else 0
        parts.append(Part(sized=sized, replicas=count, spares=spares, rate_per_s=share, peak=seen))
    return Option(parts=tuple(parts))


def _whole_pool_tokens_per_s(sized: Sized) -> float:
    return sized.tokens_per_s * sized.proposal.replicas_that_fit


def _per_device(sized: Sized) -> float:
    return sized.tokens_per_s / sized.proposal.devices

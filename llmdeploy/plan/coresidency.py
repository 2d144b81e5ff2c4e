"""Whether the next release can run beside this one, and what a new release does to the peak."""

from dataclasses import replace

from llmdeploy.model import ModelShape
from llmdeploy.plan.cluster import Coresidency
from llmdeploy.plan.peak import at_rate, broken_objective
from llmdeploy.plan.rank import Option, Part
from llmdeploy.plan.rules import Broken
from llmdeploy.plan.size import Estimators, size
from llmdeploy.service import Service

HALF = 0.5


def coresidency(
    option: Option, service: Service, shape: ModelShape, *, using: Estimators
) -> Coresidency:
    """Side by side on free devices or with half of each device's memory, else one replica after
    the other, else not without a gap."""
    free = [_free_replicas(part) for part in option.parts]
    if all(room >= part.replicas for room, part in zip(free, option.parts, strict=True)):
        count = sum(part.replicas for part in option.parts)
        devices = sum(part.replicas * part.sized.proposal.devices for part in option.parts)
        return Coresidency(
            kind="side by side",
            words=f"{devices} of the free devices hold the next release's {_counted(count)}",
        )
    halves = [_half(part, service, shape, using=using) for part in option.parts]
    if all(half is None for half in halves):
        return Coresidency(
            kind="side by side",
            words="each release fits half of the devices' memory and keeps the objectives there",
        )
    why = next(half for half in halves if half is not None)
    if any(part.spares or part.replicas > 1 for part in option.parts):
        keeps = all(part.spares for part in option.parts)
        words = (
            f"one replica after the other: with half of the memory {why};"
            + (" the spare goes first, so the peak stays carried" if keeps else "")
            + ("" if keeps else " without a spare, do it away from the peak")
        )
        return Coresidency(kind="rolling", words=words)
    return Coresidency(
        kind="not possible",
        words=f"one replica on all devices: with half of the memory {why}; the old release has to"
        " stop before the new one starts",
    )


def _counted(replicas: int) -> str:
    return "one replica" if replicas == 1 else f"{replicas} replicas"


def _free_replicas(part: Part) -> int:
    """Replicas of that kind that the pool has room for beside those planned."""
    return part.sized.proposal.replicas_that_fit - part.replicas - part.spares


def _half(part: Part, service: Service, shape: ModelShape, *, using: Estimators) -> str | None:
    """Why a replica with half of the memory does not do; None where it does."""
    ratio = service.engine.memory_ratio * HALF
    engine = service.engine.model_copy(update={"memory_ratio": ratio})
    halved = service.model_copy(update={"engine": engine})
    sized = size(part.sized.proposal, halved, shape, using=using)
    if isinstance(sized, Broken):
        return f"it does not run: {sized.words.partition(';')[0]}"
    smaller = replace(part, sized=sized)
    seen = at_rate(
        smaller.sized, halved, rate_per_s=part.rate_per_s, replicas=max(1, part.replicas)
    )
    broken = broken_objective(seen, halved)
    return None if broken is None else f"it misses the objectives: {broken.words}"

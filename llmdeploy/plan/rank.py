"""Which of the layouts that carry the service is best, and which are worth knowing beside it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from llmdeploy.plan.rules import Broken
from llmdeploy.plan.size import Sized
from llmdeploy.simulate import Peak


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Equal replicas on one pool, with what their clients see."""

    sized: Sized
    replicas: int
    """That carry the peak."""
    spares: int
    """More of them, for the loss of one."""
    rate_per_s: float
    """Requests of the peak that come here."""
    peak: Peak

    @property
    def devices(self) -> int:
        return (self.replicas + self.spares) * self.sized.proposal.devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A way to carry the whole service."""

    parts: tuple[Part, ...]

    @property
    def name(self) -> str:
        """Such as `5 x rtx4090 bf16 tp2`, the spare included."""
        return " + ".join(
            f"{part.replicas + part.spares} x {part.sized.proposal.name}" for part in self.parts
        )

    @property
    def devices(self) -> int:
        return sum(part.devices for part in self.parts)

    @property
    def spares(self) -> int:
        return sum(part.spares for part in self.parts)

    @property
    def price_per_hour(self) -> float | None:
        """None where the inventory has no price for one of its devices."""
        total = 0.0
        for part in self.parts:
            price = part.sized.proposal.pool.price_per_hour
            if price is None:
                return None
            total += price * part.devices
        return total

    @property
    def power_w(self) -> float | None:
        """At the devices' limits; None where one's is not published."""
        total = 0.0
        for part in self.parts:
            power = part.sized.proposal.pool.device.power_w
            if power is None:
                return None
            total += power * part.devices
        return total

    @property
    def cost(self) -> float:
        """What is compared: money an hour, else watts, else devices."""
        price = self.price_per_hour
        if price is not None:
            return price
        power = self.power_w
        return power if power is not None else float(self.devices)

    @property
    def loss(self) -> int:
        return max(part.sized.proposal.weights.loss for part in self.parts)

    @property
    def ttft_p95_s(self) -> float:
        return max(part.peak.ttft_p95_s for part in self.parts)

    @property
    def tpot_p95_s(self) -> float:
        return max(part.peak.tpot_p95_s for part in self.parts)

    @property
    def hosts_per_replica(self) -> int:
        return max(part.sized.proposal.hosts for part in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A layout that was looked at and is not used, with the rule that decided."""

    layout: str
    broken: Broken


def best(options: Iterable[Option]) -> Option:
    """The one to run: no fewer bits than needed, a spare where there is room, then the least cost,
    the fewest hosts a replica, the best of TTFT and TPOT together (their product)."""
    return min(options, key=_order)


def pareto(options: Sequence[Option]) -> tuple[Option, ...]:
    """Those that no other beats in cost, spare, quality, TTFT and TPOT together; cheapest first."""
    kept: list[Option] = []
    for option in sorted(options, key=lambda option: (*_criteria(option), option.name)):
        if not any(_dominates(other, option) for other in kept):
            kept.append(option)
    return tuple(kept)


def dominated(options: Sequence[Option], front: Sequence[Option]) -> tuple[Rejected, ...]:
    """The others, each with one of the front that is no worse in anything."""
    out = []
    for option in options:
        if option in front:
            continue
        better = next(other for other in front if _dominates(other, option))
        words = f"{better.name} is no worse in cost, spare, quality, TTFT and TPOT"
        out.append(Rejected(layout=option.name, broken=Broken(rule="dominated", words=words)))
    return tuple(out)


def _order(option: Option) -> tuple[float | int | str, ...]:
    return (
        option.loss,
        option.spares == 0,
        round(option.cost, 6),
        option.devices,
        option.hosts_per_replica,
        option.ttft_p95_s * option.tpot_p95_s,
        option.name,
    )


def _criteria(option: Option) -> tuple[float, ...]:
    """What is compared, the smaller the better; times to two digits: less is no difference."""
    return (
        round(option.cost, 6),
        float(option.spares == 0),
        float(option.loss),
        float(f"{option.ttft_p95_s:.2g}"),
        float(f"{option.tpot_p95_s:.2g}"),
    )


def _dominates(one: Option, other: Option) -> bool:
    return all(a <= b for a, b in zip(_criteria(one), _criteria(other), strict=True))

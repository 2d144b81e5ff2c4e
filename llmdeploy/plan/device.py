"""The device of a host that a release may use: its memory, cores and speeds, out of the facts."""

from dataclasses import dataclass
from typing import Literal

from llmdeploy.errors import Refused
from llmdeploy.facts.bundle import HostFacts
from llmdeploy.facts.device import Accelerator
from llmdeploy.facts.processor import BFLOAT16_FLAGS
from llmdeploy.plan.cards import card
from llmdeploy.plan.document import Origin
from llmdeploy.service import Service

CORE_READ_BYTES_PER_S = 13e9
HOST_READ_BYTES_PER_S = 60e9
CORE_MATMUL_FLOPS_PER_S = 200e9
"""What a CPU core and a CPU host are assumed to do where no speed was measured.

Source: measured on two Zen 4 cores: 26 GB/s read by both, 206 GFLOP/s bf16 product on one thread
(torch 2.13, 2048 x 2048); the host's cap is 80 % of two channels of DDR5-4800, 76.8 GB/s.
"""
MEASURED_DIGITS = 2
"""Digits kept of a measured speed, so that two measurements of one machine seldom differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """What one core (CPU) or one card (CUDA) does, and where that is known from."""

    read_bytes_per_s: float
    matmul_flops_per_s: float
    origin: Origin
    source: str
    """In words, for the plan's figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """What one release may plan with on its host."""

    host: str
    kind: Literal["cpu", "cuda"]
    memory_bytes: int
    """All of the device's, before it is shared between releases."""
    memory_source: str
    core_ids: tuple[int, ...]
    """Cores of the host that its processes may use."""
    slots: int
    """Releases that run side by side; each has one of `memory_bytes / slots`."""
    speed: Speed
    fast_bfloat16: bool
    """Whether its products of bf16 are at least as fast as those of fp32."""
    quantizations: tuple[str, ...]
    """Formats of bitsandbytes that work here."""
    disk_read_bytes_per_s: float | None = None
    """Of the model store's disk, where it was measured."""

    @property
    def core_slots(self) -> tuple[tuple[int, ...], ...]:
        """Cores of each release; a core left over by an odd count stays free for the gateway."""
        if self.kind == "cuda":
            return ()
        each = max(1, len(self.core_ids) // self.slots)
        if len(self.core_ids) < self.slots:
            return (self.core_ids,)
        return tuple(self.core_ids[i * each : (i + 1) * each] for i in range(self.slots))

    @property
    def cores(self) -> int:
        """Cores of one release; 1 for a card, whose parts the plan does not tell apart."""
        return len(self.core_slots[0]) if self.kind == "cpu" else 1


def choose_device(facts: HostFacts, service: Service) -> Device:
    """The host's device that the service runs on; Refused where the facts do not carry it."""
    cards = _cuda_cards(facts)
    wanted = service.engine.device
    if wanted == "cuda" and not cards:
        raise Refused(
            f"host {facts.host}: engine/device: found no CUDA card that torch can use, needed one",
            fix="set engine.device to cpu, or mend the driver (llmdeploy preflight shows it)",
        )
    if cards and wanted != "cpu":
        return _cuda(facts, service, cards)
    return _cpu(facts, service)


def _cpu(facts: HostFacts, service: Service) -> Device:
    total_bytes = _known(facts, "memory_total_bytes", facts.memory_total_bytes)
    limit_bytes = facts.memory_limit_bytes
    limited = limit_bytes is not None and limit_bytes < total_bytes
    return Device(
        host=facts.host,
        kind="cpu",
        memory_bytes=min(total_bytes, limit_bytes or total_bytes),
        memory_source="the cgroup's limit" if limited else "the host's memory",
        core_ids=_core_ids(facts),
        slots=2 if service.release.side_by_side else 1,
        speed=_cpu_speed(facts, cores=len(_core_ids(facts))),
        fast_bfloat16=facts.cpu_flags is None or bool(BFLOAT16_FLAGS & set(facts.cpu_flags)),
        quantizations=_quantizations(facts, "cpu"),
    )


def _cuda(facts: HostFacts, service: Service, cards: tuple[Accelerator, ...]) -> Device:
    first = cards[0]
    ranks = service.engine.tensor_parallel or 1
    if ranks > len(cards):
        raise Refused(
            f"host {facts.host}: engine/tensor_parallel: found {len(cards)} CUDA cards,"
            f" needed {ranks}",
            fix=f"set engine.tensor_parallel to {len(cards)} or less",
        )
    peaks = card(first.name)
    if peaks is None:
        raise Refused(
            f"host {facts.host}: {first.name} is in no table of speeds, needed one to predict",
            fix="set engine.device to cpu, or add the card to plan/cards.py with its data sheet",
        )
    return Device(
        host=facts.host,
        kind="cuda",
        memory_bytes=_known(facts, "accelerators", first.memory_total_bytes) * ranks,
        memory_source=f"{ranks} x {first.name}",
        core_ids=_core_ids(facts),
        slots=2 if service.release.side_by_side else 1,
        speed=Speed(
            read_bytes_per_s=peaks.read_bytes_per_s,
            matmul_flops_per_s=peaks.matmul_flops_per_s,
            origin=Origin.TABLE,
            source=f"data sheet of {first.name}",
        ),
        fast_bfloat16=True,
        quantizations=_quantizations(facts, "cuda"),
    )


def _cuda_cards(facts: HostFacts) -> tuple[Accelerator, ...]:
    usable = facts.torch_cuda_devices or 0
    cards = [card for card in facts.accelerators or () if card.vendor == "nvidia"]
    return tuple(cards[:usable])


def _core_ids(facts: HostFacts) -> tuple[int, ...]:
    cores = _known(facts, "cpu_cores", facts.cpu_cores)
    ids = facts.cpu_ids or tuple(range(cores))
    quota = facts.cpu_quota_cores
    return ids if quota is None else ids[: max(1, int(quota))]


def _cpu_speed(facts: HostFacts, *, cores: int) -> Speed:
    read, matmul = facts.memory_read_bytes_per_s, facts.core_matmul_flops_per_s
    if read is not None and matmul is not None:
        return Speed(
            read_bytes_per_s=_rounded(read / cores),
            matmul_flops_per_s=_rounded(matmul),
            origin=Origin.MEASURED,
            source="measured by preflight",
        )
    return Speed(
        read_bytes_per_s=min(CORE_READ_BYTES_PER_S, HOST_READ_BYTES_PER_S / cores),
        matmul_flops_per_s=CORE_MATMUL_FLOPS_PER_S,
        origin=Origin.ASSUMED,
        source="a Zen 4 core's, not measured here",
    )


def _rounded(value: float) -> float:
    return float(f"{value:.{MEASURED_DIGITS}g}")


def _quantizations(facts: HostFacts, kind: str) -> tuple[str, ...]:
    return ("int8", "nf4") if kind in (facts.bitsandbytes_devices or ()) else ()


def _known(facts: HostFacts, name: str, value: int | None) -> int:
    if value is None:
        raise Refused(
            f"host {facts.host}: {name} is unknown: {facts.problem(name) or 'the host says none'};"
            " needed it to plan",
            fix="mend what llmdeploy preflight shows for it, then plan again",
        )
    return value

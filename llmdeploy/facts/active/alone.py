"""Tests of each host by itself: its clock against the controller's, its disk, its devices."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llmdeploy.edge import Clock, Shell
from llmdeploy.errors import LlmDeployError
from llmdeploy.facts.active.measured import (
    ClockOffset,
    DiskRate,
    Pattern,
    PeerCopy,
    Product,
    Untested,
)
from llmdeploy.facts.active.send import Answer, Seat, ask
from llmdeploy.facts.active.tasks import side_by_side
from llmdeploy.facts.bundle import HostFacts

CLOCK_TRIES = 5
"""Source: check catalogue `time.offset`."""
CLOCK_TIMEOUT_S = 10.0
"""Of one host's answer. Source: own choice."""
CLOCKS_AT_ONCE = 4
"""Few, since a busy controller makes round trips long and the answer vague. Source: own choice."""
DISK_BYTES = 1 << 30
"""Read at most. Source: own choice: past the cache of a RAID controller."""
DISK_READ_S = 3.0
"""Reading ends by then, whatever was read. Source: own choice."""
COMPUTE_LIMIT_S = 900.0
"""For all devices of a host: 8 cards with patterns over 80 GB each and 56 copies.

Source: own estimate, not yet run on hardware."""
SIZES = {"size": 8192, "cpu_size": 1024}
"""Rows of the matrices: large enough for a card's full rate, small enough for one core."""
CPU_BYTES = 1 << 30
"""Host memory that patterns go through; never more than a quarter of what is free.

Source: own choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """What the hosts' own devices did."""

    products: tuple[Product, ...] = ()
    patterns: tuple[Pattern, ...] = ()
    copies: tuple[PeerCopy, ...] = ()
    untested: tuple[Untested, ...] = ()


def clocks(
    seats: Sequence[Seat], *, clock: Clock
) -> tuple[tuple[ClockOffset, ...], tuple[Untested, ...]]:
    """Each host's clock against this machine's, as exactly as several round trips tell."""

    def one(seat: Seat) -> ClockOffset | Untested:
        try:
            tries = [_clock(seat.shell, clock) for _ in range(CLOCK_TRIES)]
        except LlmDeployError as error:
            reason = str(error).removeprefix(f"{seat.host}: ")
            return Untested(test="time.skew", host=seat.host, reason=reason)
        except ValueError as error:
            return Untested(test="time.skew", host=seat.host, reason=f"date says {error}")
        least_s, most_s = max(low for low, _ in tries), min(high for _, high in tries)
        return ClockOffset(
            host=seat.host,
            offset_s=(least_s + most_s) / 2,
            uncertainty_s=max(0.0, most_s - least_s) / 2,
            at_s=clock.now_s(),
        )

    found = side_by_side(one, seats, at_once=CLOCKS_AT_ONCE)
    return (
        tuple(answer for answer in found if isinstance(answer, ClockOffset)),
        tuple(answer for answer in found if isinstance(answer, Untested)),
    )


def _clock(shell: Shell, clock: Clock) -> tuple[float, float]:
    """Least and greatest possible offset, in seconds. The wall clock of this machine may be
    stepped, so the round trip is taken from the monotonic one."""
    before_s, begun_s = clock.now_s(), clock.monotonic_s()
    said = shell.run(("date", "+%s.%N"), timeout_s=CLOCK_TIMEOUT_S).stdout.strip()
    after_s = before_s + clock.monotonic_s() - begun_s
    whole, _, fraction = said.partition(".")
    if not whole.isdigit():
        raise ValueError(repr(said[:60]))
    if not fraction.isdigit():  # busybox: somewhere in that second
        return float(whole) - after_s, float(whole) + 1 - before_s
    return float(f"{whole}.{fraction}") - after_s, float(f"{whole}.{fraction}") - before_s


def disks(
    seats: Sequence[Seat], facts: Mapping[str, HostFacts], *, clock: Clock
) -> tuple[tuple[DiskRate, ...], tuple[Untested, ...]]:
    """The read rate of each host's model store."""

    def one(seat: Seat) -> DiskRate | Untested:
        store, largest = _store(facts[seat.host])
        request = {"folder": store, "file": largest, "most_bytes": DISK_BYTES}
        said = ask(seat, "disk", {**request, "read_s": DISK_READ_S}, limit_s=60 + 10 * DISK_READ_S)
        for line in said.of("disk"):
            own = bool(line["own"])
            return DiskRate(
                host=seat.host,
                folder=store,
                read_bytes=line["read_bytes"],
                bytes_per_s=line["read_bytes"] / max(line["duration_s"], 1e-9),
                past_cache=line["past_cache"],
                of="a nameless file" if own else "the model's largest file",
                correct=line["wrong"] == 0 if own else None,
                at_s=clock.now_s(),
            )
        return Untested(test="sto.disk.speed", host=seat.host, reason=said.why or "it said nothing")

    found = side_by_side(one, seats)
    return (
        tuple(answer for answer in found if isinstance(answer, DiskRate)),
        tuple(answer for answer in found if isinstance(answer, Untested)),
    )


def _store(facts: HostFacts) -> tuple[str, str]:
    """The model store's folder, and the model's largest file; empty where it is not there."""
    folder = next((d.nearest for d in facts.disks or () if d.purpose == "model_store"), "")
    files = facts.model.files if facts.model else ()
    there = [file for file in files if file.found_bytes]
    largest = max(there, key=lambda file: file.found_bytes or 0, default=None)
    place = f"{facts.model.folder}/{largest.name}" if facts.model and largest else ""
    return folder or facts.asked.model_store, place


def devices(
    seats: Sequence[Seat], facts: Mapping[str, HostFacts], *, test_s: float, clock: Clock
) -> Devices:
    """Products, memory patterns and copies on every device that torch sees, and the processor."""
    request = {
        "tests": ["product", "pattern", "copy"],
        "cpu": True,
        "test_s": test_s,
        "most_bytes": 1 << 50,
        "cpu_bytes": CPU_BYTES,
        **SIZES,
    }
    said = side_by_side(lambda s: ask(s, "compute", request, limit_s=COMPUTE_LIMIT_S), seats)
    products: list[Product] = []
    patterns: list[Pattern] = []
    copies: list[PeerCopy] = []
    untested: list[Untested] = []
    for seat, answer in zip(seats, said, strict=True):
        here: dict[str, Any] = {"host": seat.host, "at_s": clock.now_s()}
        products += [Product(**here, **_values(line)) for line in answer.of("product")]
        patterns += [Pattern(**here, **_values(line)) for line in answer.of("pattern")]
        copies += [PeerCopy(**here, **_values(line)) for line in answer.of("copy")]
        untested += _untested(seat.host, answer, facts[seat.host])
    return Devices(
        products=tuple(products),
        patterns=tuple(patterns),
        copies=tuple(copies),
        untested=tuple(untested),
    )


def _values(line: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in line.items() if key != "kind"}


_TESTS = {"product": "gpu.compute.golden", "pattern": "gpu.vram.pattern", "copy": "fab.p2p.actual"}
_CPU_TESTS = {"product": "cpu.compute.golden", "pattern": "cpu.memory.pattern"}


def _untested(host: str, said: Answer, facts: HostFacts) -> list[Untested]:
    """What a host's devices did not do: all of it without torch, and cards that torch does not see
    are not passed by what the processor did."""

    def of(test: str, reason: str, *, names: Mapping[str, str] = _TESTS) -> Untested:
        return Untested(test=names[test], host=host, reason=reason)

    def names(place: str) -> Mapping[str, str]:
        return _CPU_TESTS if place == "cpu" else _TESTS

    cards = len(facts.accelerators or ())
    found = [
        of(ln["test"], f"{ln['device']}: {ln['reason']}", names=names(ln["device"]))
        for ln in said.of("error")
    ]
    told = said.of("devices")
    if not told:
        all_names = {**_TESTS, **_CPU_TESTS} if not cards else _TESTS
        tests = [test for test in all_names if test != "copy" or cards > 1]
        return [of(test, said.why or "it said nothing", names=all_names) for test in tests]
    seen = int(told[0]["accelerators"])
    if seen < cards:
        built = f"its torch is built for {told[0]['built']}"
        reason = f"torch sees {seen} of the {cards} cards that the driver shows: {built}"
        tests = [test for test in _TESTS if test != "copy" or cards > 1]
        found += [of(test, reason) for test in tests]
    if said.problem and not said.of("done"):
        last = (said.of("enter") or [{"test": "product", "device": "cpu"}])[-1]
        reason = f"{last['test']} on {last['device']}: {said.problem}"
        found.append(of(last["test"], reason, names=names(last["device"])))
    return found

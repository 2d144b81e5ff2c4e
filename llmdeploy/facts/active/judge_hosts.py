"""Findings about single hosts and their devices: clock, disk, products, memory, copies."""

import statistics
from collections.abc import Iterator, Sequence

from llmdeploy.facts.active.measured import ClockOffset, DiskRate, Measured, PeerCopy, Product
from llmdeploy.facts.active.say import ALL, Saying, finding
from llmdeploy.facts.finding import Finding, Remedy, Status
from llmdeploy.units import show_bytes, show_seconds

SKEW_S, WRONG_CLOCK_S = 0.1, 1.0
"""Warned and failed beyond these. Source: check catalogue `time.offset`."""
SLOW_DISK_RATIO = 0.5
"""Of the median host. Source: own choice; two reads of one disk differ by up to 20 %."""
STRAGGLER_RATIO = 0.85
"""Of the median of equal devices. Source: catalogue `gpu.burnin.straggler` takes 93 % over a minute
at steady clocks; this is two seconds."""
LEAST_PEERS = 3
"""Fewer have no median that tells who is odd."""


def hosts(measured: Measured) -> Iterator[Finding]:
    """One finding a test for all hosts that are well, and one for each that is not."""
    yield from _clocks(measured.clocks)
    yield from _disks(measured.disks)
    yield from _products(measured.products)
    yield from _patterns(measured)
    yield from _copies(measured.copies)


def _clocks(clocks: Sequence[ClockOffset]) -> Iterator[Finding]:
    needed = f"within {show_seconds(SKEW_S)} of this machine's clock"
    fine = []
    for one in clocks:
        say = finding("time.skew", one.host, needed, origin="date, between two readings here")
        away_s = abs(one.offset_s)
        found = f"{_signed(one.offset_s)} ± {show_seconds(one.uncertainty_s)}"
        fix = "chronyc makestep, and let chrony run"
        if away_s - one.uncertainty_s > WRONG_CLOCK_S:
            yield say(Status.FAIL, found, fix=fix)
        elif away_s - one.uncertainty_s > SKEW_S:
            yield say(Status.WARN, found, fix=fix)
        elif one.uncertainty_s > SKEW_S:
            fix = "run preflight again when the way there is quiet, or ask it: chronyc tracking"
            yield say(Status.UNKNOWN, f"{found}: the way there is too slow to tell", fix=fix)
        else:
            fine.append(one)
    if fine:
        worst = max(fine, key=lambda one: abs(one.offset_s))
        words = f"{len(fine)} hosts, at most {_signed(worst.offset_s)} ± "
        yield _for_all("time.skew", fine, needed, origin="date, between two readings here")(
            Status.PASS, f"{words}{show_seconds(worst.uncertainty_s)}"
        )


def _signed(offset_s: float) -> str:
    return f"{'+' if offset_s >= 0 else '-'}{show_seconds(abs(offset_s))}"


def _disks(disks: Sequence[DiskRate]) -> Iterator[Finding]:
    check, needed = "sto.disk.speed", "a model store about as fast as the median host's"
    median = statistics.median(disk.bytes_per_s for disk in disks) if disks else 0.0
    fine = []
    for disk in disks:
        say = finding(check, disk.host, needed, origin=f"read past the cache by {disk.past_cache}")
        rate = f"{show_bytes(disk.bytes_per_s)}/s"
        if disk.correct is False:
            fix = "take the disk out of use and see its log: smartctl -a, dmesg"
            words = f"{disk.folder}: other data came back than was written"
            yield say(Status.FAIL, words, fix=fix, remedy=Remedy.HARDWARE)
        elif len(disks) >= LEAST_PEERS and disk.bytes_per_s < SLOW_DISK_RATIO * median:
            fix = "see what else uses the disk (iostat -x), its health, and whether it is remote"
            yield say(
                Status.WARN,
                f"{disk.folder}: {rate}, median {show_bytes(median)}/s",
                fix=fix,
                remedy=Remedy.HARDWARE,
            )
        else:
            fine.append(disk)
    if fine:
        rates = sorted(disk.bytes_per_s for disk in fine)
        how = ", ".join(sorted({f"{disk.of}, {disk.past_cache}" for disk in fine}))
        words = f"{show_bytes(rates[0])}/s to {show_bytes(rates[-1])}/s"
        words = words if len(fine) > 1 else f"{show_bytes(rates[0])}/s"
        yield _for_all(check, fine, needed, origin=how)(Status.PASS, words)


def _products(products: Sequence[Product]) -> Iterator[Finding]:
    needed = "matrix products with the known answer, as fast as equal devices"
    medians = {
        kind: statistics.median(p.flops_per_s for p in products if (p.name, p.dtype) == kind)
        for kind in {(p.name, p.dtype) for p in products}
    }
    for cpu in (False, True):
        mine = [p for p in products if (p.device == "cpu") == cpu]
        check = "cpu.compute.golden" if cpu else "gpu.compute.golden"
        for host in dict.fromkeys(p.host for p in mine):
            say = finding(check, host, needed, origin="torch matmul")
            yield _product(say, [p for p in mine if p.host == host], medians, equals=mine)


def _product(
    say: Saying,
    own: Sequence[Product],
    medians: dict[tuple[str, str], float],
    *,
    equals: Sequence[Product],
) -> Finding:
    wrong = [f"{p.device} {p.dtype}: {p.wrong} wrong elements" for p in own if p.wrong]
    if wrong:
        fix = "run it again; if it stays, take the device out of service and replace it"
        return say(Status.FAIL, ", ".join(wrong[:4]), fix=fix, remedy=Remedy.HARDWARE)
    slow = [
        f"{p.device} {p.dtype}: {_flops(p.flops_per_s)}, median {_flops(medians[p.name, p.dtype])}"
        for p in own
        if p.device != "cpu"
        and sum((q.name, q.dtype) == (p.name, p.dtype) for q in equals) >= LEAST_PEERS
        and p.flops_per_s < STRAGGLER_RATIO * medians[p.name, p.dtype]
    ]
    if slow:
        fix = "see cooling, power limit and clocks of that card: nvidia-smi -q -d PERFORMANCE"
        return say(Status.WARN, ", ".join(slow[:4]), fix=fix)
    best = {p.dtype: min(q.flops_per_s for q in own if q.dtype == p.dtype) for p in own}
    devices = len({p.device for p in own})
    words = ", ".join(f"{dtype} {_flops(rate)}" for dtype, rate in best.items())
    return say(Status.PASS, f"{devices} x {own[0].name}: {words}")


def _flops(flops_per_s: float) -> str:
    for unit, size in (("TFLOP/s", 1e12), ("GFLOP/s", 1e9)):
        if flops_per_s >= size:
            return f"{flops_per_s / size:.3g} {unit}"
    return f"{flops_per_s / 1e6:.3g} MFLOP/s"


def _patterns(measured: Measured) -> Iterator[Finding]:
    needed = "memory that gives back what was written"
    for cpu in (False, True):
        mine = [p for p in measured.patterns if (p.device == "cpu") == cpu]
        check = "cpu.memory.pattern" if cpu else "gpu.vram.pattern"
        for host in dict.fromkeys(p.host for p in mine):
            own = [p for p in mine if p.host == host]
            say = finding(check, host, needed, origin="torch, constants and own addresses")
            bad = [f"{p.device}: {p.wrong} wrong words" for p in own if p.wrong]
            if bad:
                fix = "take the device out of service; run its maker's memory test, then replace it"
                yield say(Status.FAIL, ", ".join(bad[:4]), fix=fix, remedy=Remedy.HARDWARE)
                continue
            least = min(p.tested_bytes for p in own)
            rate = min(p.read_bytes_per_s or 0.0 for p in own)
            words = f"{show_bytes(least)} of each, read at {show_bytes(rate)}/s"
            yield say(Status.PASS, words if len(own) > 1 else words.replace(" of each", ""))


def _copies(copies: Sequence[PeerCopy]) -> Iterator[Finding]:
    needed = "copies between cards that arrive as they were sent"
    for host in dict.fromkeys(copy.host for copy in copies):
        own = [copy for copy in copies if copy.host == host]
        say = finding("fab.p2p.actual", host, needed, origin="torch, 64 MiB a pair")
        bad = [f"{c.source} to {c.target}: {c.wrong} wrong words" for c in own if c.wrong]
        if bad:
            fix = "turn the IOMMU and ACS off, or set NCCL_P2P_DISABLE=1 for the engine"
            yield say(Status.FAIL, ", ".join(bad[:4]), fix=fix)
            continue
        slowest = min(own, key=lambda copy: copy.bytes_per_s)
        words = f"{len(own)} directions, slowest {slowest.source} to {slowest.target}"
        yield say(Status.PASS, f"{words}: {show_bytes(slowest.bytes_per_s)}/s")


def _for_all(
    check: str, fine: Sequence[ClockOffset] | Sequence[DiskRate], needed: str, *, origin: str
) -> Saying:
    subject = fine[0].host if len(fine) == 1 else ALL
    return finding(check, subject, needed, origin=origin)

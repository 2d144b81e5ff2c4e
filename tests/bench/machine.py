"""Whether the machine is quiet enough to measure, and how much others took of it meanwhile."""

import contextlib
import sys
import time
from collections.abc import Callable
from typing import TypeVar

import psutil

T = TypeVar("T")
_QUIET_CORES = 0.2


def wait_until_quiet(*, limit_s: float) -> None:
    """Waits, at most this long, until everything together uses less than 0.2 cores for 3 s."""
    deadline_s = time.monotonic() + limit_s
    while time.monotonic() < deadline_s:
        if psutil.cpu_percent(interval=3.0) / 100 * (psutil.cpu_count() or 1) < _QUIET_CORES:
            return
    if limit_s:
        print(f"  not quiet after {limit_s:g} s: measuring all the same", file=sys.stderr)


def with_other_cores(pid: int, measure: Callable[[], T]) -> tuple[T, float]:
    """What `measure` gives, and the mean cores used by anything but it and `pid`'s processes."""
    began_s, busy_s, own_s = time.monotonic(), _busy_s(), _own_s(pid)
    result = measure()
    wall_s = time.monotonic() - began_s
    others_s = (_busy_s() - busy_s) - (_own_s(pid) - own_s)
    return result, max(0.0, others_s / wall_s)


def _busy_s() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)


def _own_s(pid: int) -> float:
    engine = psutil.Process(pid)
    total = 0.0
    for process in (psutil.Process(), engine, *engine.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total

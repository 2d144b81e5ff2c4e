"""What several hosts do at the same time, and how far the tests are."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

AT_ONCE = 32
"""Hosts asked at the same time where they need not wait for each other."""
S = TypeVar("S")
T = TypeVar("T")
Report = Callable[[str], None]
"""Is told in words what begins."""


def counted(hosts: Sequence[object]) -> str:
    """Their number in words."""
    return "1 host" if len(hosts) == 1 else f"{len(hosts)} hosts"


def side_by_side(
    work: Callable[[S], T], items: Sequence[S], *, at_once: int | None = AT_ONCE
) -> list[T]:
    """The results in the items' order; None: all of them at the same time, as groups need it."""
    if not items:
        return []
    pool = ThreadPoolExecutor(max_workers=at_once or len(items), thread_name_prefix="test")
    try:
        return [future.result() for future in [pool.submit(work, item) for item in items]]
    finally:  # after Ctrl-C nothing further begins; programs on hosts end when nobody reads them
        pool.shutdown(wait=False, cancel_futures=True)

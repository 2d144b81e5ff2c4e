"""The same on several hosts at the same time."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

AT_ONCE = 16
"""Hosts at the same time; the others wait their turn. Source: own choice: each costs a thread."""
S = TypeVar("S")
T = TypeVar("T")


def together(act: Callable[[S], T], items: Sequence[S]) -> tuple[T, ...]:
    """The results in the items' order; the first one's error, where one fails.

    All have ended when it returns or raises, so that what cleans up after it races with nobody.
    """
    with ThreadPoolExecutor(max_workers=AT_ONCE) as threads:
        return tuple(threads.map(act, items))

"""The same on several hosts at the same time; and one thing beside another."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
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


@contextmanager
def beside(act: Callable[[], T]) -> Iterator[Future[T]]:
    """`act` goes on beside the block and has ended after it; Ctrl-C in the block waits for none."""
    threads, wait = ThreadPoolExecutor(max_workers=1), True
    try:
        yield threads.submit(act)
    except KeyboardInterrupt:
        wait = False
        raise
    finally:
        threads.shutdown(wait=wait)

"""Shows on stderr how far each host is: a live table on a terminal, a line an event elsewhere."""

import contextlib
import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import typer

from llmdeploy.facts.collect_all import Phase, Progress
from llmdeploy.units import show_seconds

if TYPE_CHECKING:  # rich is loaded where there is a terminal to draw on
    from rich.live import Live
    from rich.table import Table

_MOST_ROWS = 20
_WORDS = {Phase.ASKED: "asking", Phase.ANSWERED: "answered", Phase.FAILED: "FAIL"}


class HostTable:
    """Told of each host's progress from many threads; a context."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._hosts = tuple(hosts)
        self._lock = threading.Lock()
        self._last: dict[str, Progress] = {}
        self._begun_s: dict[str, float] = {}
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(
                console=Console(stderr=True),
                get_renderable=self._rows,
                refresh_per_second=4,
                transient=True,
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            with contextlib.suppress(Exception):
                self._live.stop()

    def tell(self, progress: Progress) -> None:
        """Takes the host's progress; what is not drawn on a terminal is said in a line."""
        with self._lock:
            self._last[progress.host] = progress
            self._begun_s.setdefault(progress.host, progress.at_s)
            if not (self._live and self._live.is_started) and progress.phase != Phase.ASKED:
                typer.echo(self._line(progress), err=True)

    def _line(self, progress: Progress) -> str:
        took = show_seconds(progress.at_s - self._begun_s[progress.host])
        words = f": {progress.words}" if progress.words else ""
        return f"{progress.host}: {_WORDS[progress.phase]} after {took}{words}"

    def _rows(self) -> "Table":
        """Failed and asked hosts first; of many, the rest is counted."""
        from rich.table import Table

        with self._lock:
            last = dict(self._last)
            begun_s = dict(self._begun_s)
        now_s = time.monotonic()
        table = Table(box=None, pad_edge=False, show_header=False)
        order = {Phase.FAILED: 0, Phase.ASKED: 1, Phase.ANSWERED: 2}
        for progress in sorted(last.values(), key=lambda p: order[p.phase])[:_MOST_ROWS]:
            until_s = now_s if progress.phase == Phase.ASKED else progress.at_s
            took = show_seconds(until_s - begun_s[progress.host])
            table.add_row(progress.host, _WORDS[progress.phase], took, progress.words[:80])
        counts = [sum(p.phase == phase for p in last.values()) for phase in _WORDS]
        waiting = len(self._hosts) - len(last)
        table.add_row(
            f"{len(self._hosts)} hosts",
            f"{counts[1]} answered, {counts[2]} failed, {counts[0]} asked, {waiting} waiting",
        )
        return table

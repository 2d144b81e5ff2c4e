"""Whether an engine's tokens move: its health page may answer 200 long after they stopped."""

import re
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass

ANSWER_TIMEOUT_S = 8.0
"""Of one look at the metrics. Source: own choice: below the 10 s between two looks."""


@dataclass(frozen=True)
class Watched:
    """What of an engine's metrics tells that it works, and that it gets on."""

    url: str
    running: tuple[str, ...]
    """Requests that it works on."""
    moving: tuple[str, ...]
    """Counters that grow while it does."""
    look_s: float
    looks: int
    """So many looks in a row without a change, while requests run, are a standstill."""


class Pulse:
    """Looks at the metrics every `look_s`, beside the program."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)
        self.frozen: str | None = None
        """What it found, once the engine stands still."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()

    def _go_on(self) -> None:
        still, before, served = 0, None, False
        while not self._ended.wait(self._watched.look_s):
            seen = self._look()
            served = served or seen is not None
            if not served:
                continue  # it still starts
            stuck = seen is None or (seen[0] > 0 and seen[1] == before)
            still = still + 1 if stuck else 0
            before = seen[1] if seen is not None else before
            if still >= self._watched.looks:
                self.frozen = self._words(seen, still)
                return

    def _look(self) -> tuple[float, float] | None:
        """Requests that run and the sum of the counters; None without an answer."""
        try:
            with urllib.request.urlopen(self._watched.url, timeout=ANSWER_TIMEOUT_S) as answer:
                text = answer.read().decode(errors="replace")
        except (OSError, urllib.error.URLError, ValueError):
            return None
        return total(text, self._watched.running), total(text, self._watched.moving)

    def _words(self, seen: tuple[float, float] | None, looks: int) -> str:
        took_s = looks * self._watched.look_s
        if seen is None:
            return f"{self._watched.url} did not answer for {took_s:.0f} s"
        return f"{seen[0]:.0f} requests run and no token came for {took_s:.0f} s"


def total(text: str, names: tuple[str, ...]) -> float:
    """The sum of these series in a Prometheus text; 0 where there are none."""
    found = re.findall(r"^([A-Za-z_:][\w:]*)(?:\{.*\})? (\S+)", text, flags=re.MULTILINE)
    return sum(float(value) for name, value in found if name in names)

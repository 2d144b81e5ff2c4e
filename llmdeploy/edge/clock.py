"""The real clock."""

import time


class SystemClock:
    """Implements Clock with the operating system's time."""

    def now_s(self) -> float:
        return time.time()

    def monotonic_s(self) -> float:
        return time.monotonic()

    def sleep(self, duration_s: float) -> None:
        time.sleep(max(0.0, duration_s))

"""Head of every program that active tests send to a host: its answer, and its certain end.

A program ends by itself at its deadline, whatever hangs in it, and as soon as nobody reads its
answer any more (the connection or the command line ended). It is Python 3.8 or newer.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import threading
import time
from typing import Any

PR_SET_PDEATHSIG = 1  # Source: linux/prctl.h
END_S = [float("inf")]  # of the whole program
LOOK_MS = 500
SIGN_S = 5.0
"""Between two empty lines. Source: own choice: a host that was cut off learns only from what it
sends that its connection has ended."""


def show(kind: str, **values: Any) -> None:
    """One line of the answer."""
    sys.stdout.write(json.dumps({"kind": kind, **values}) + "\n")
    sys.stdout.flush()


def arm(limit_s: float) -> None:
    """From now on this process ends within the limit: SIGALRM's default needs no Python to run."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    END_S[0] = time.perf_counter() + limit_s
    threading.Thread(target=_until_unread, daemon=True).start()


def hurry(limit_s: float) -> None:
    """What is done now has this much time of its own; the whole deadline stays."""
    left_s = END_S[0] - time.perf_counter()
    signal.setitimer(signal.ITIMER_REAL, max(0.01, min(limit_s, left_s)))


def end_with_parent() -> None:
    """Ends this process with the one that forked it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _until_unread() -> None:
    poll = select.poll()
    poll.register(1, 0)  # hang-ups are always told
    signed_s = time.perf_counter()
    while True:
        if any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(LOOK_MS)):
            os._exit(3)
        if time.perf_counter() - signed_s > SIGN_S:
            signed_s = time.perf_counter()
            try:
                os.write(1, b"\n")
            except OSError:
                os._exit(3)

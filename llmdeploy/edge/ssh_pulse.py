"""Whether a peer's sshd still answers, asked on the connection itself."""

import contextlib
import threading
import time
from typing import Self

import paramiko
from paramiko.ssh_exception import SSHException

_BEAT_S = 2.0


class Pulse:
    """Asks again and again while a command runs; needed where the peer's TCP is not ours.

    Behind a jump host our own TCP connection ends at that host: the kernel cannot notice that the
    link beyond it was cut.
    """

    def __init__(self, transport: paramiko.Transport, *, silence_s: float) -> None:
        self._transport, self._silence_s = transport, silence_s
        self._stop = threading.Event()
        self._heard_s = time.monotonic()

    def __enter__(self) -> Self:
        threading.Thread(target=self._beat, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()

    def alive(self) -> bool:
        """False once the peer was silent for a beat and `silence_s`."""
        return time.monotonic() - self._heard_s < _BEAT_S + self._silence_s

    def _beat(self) -> None:
        while not self._stop.wait(_BEAT_S) and _ask(self._transport):
            self._heard_s = time.monotonic()


def answers(transport: paramiko.Transport, *, timeout_s: float) -> bool:
    """Whether sshd itself, not just its host's kernel, answers in time."""
    said: list[bool] = []
    thread = threading.Thread(target=lambda: said.append(_ask(transport)), daemon=True)
    thread.start()  # one that gets no answer ends with the connection
    thread.join(timeout_s)
    return said == [True]


def _ask(transport: paramiko.Transport) -> bool:
    with contextlib.suppress(SSHException, EOFError, OSError):
        transport.global_request("keepalive@openssh.com", wait=True)  # "denied" is an answer too
        return transport.is_active()
    return False

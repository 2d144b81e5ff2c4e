"""Kept connections: one for each host, at most a pool of them open, jump hosts shared."""

import contextlib
import itertools
import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

import paramiko

from llmdeploy.edge.ssh_config import Config, Route, Target
from llmdeploy.edge.ssh_connect import LIMITS, Limits, open_transport
from llmdeploy.edge.ssh_keys import KeyRing

POOL = 32
"""Connections kept open; more hosts than that take turns."""
MOST_CHANNELS = 8
"""Commands at once on one connection: sshd's MaxSessions is 10 by default."""


@dataclass
class _Slot:
    lock: threading.Lock = field(default_factory=threading.Lock)
    channels: threading.Semaphore = field(
        default_factory=lambda: threading.Semaphore(MOST_CHANNELS)
    )
    transport: paramiko.Transport | None = None
    users: int = 0
    used: int = 0


class Connections:
    """A pool, safe for use by many threads; closes all its connections at the end."""

    def __init__(
        self, *, config: Config | None = None, limits: Limits = LIMITS, most: int = POOL
    ) -> None:
        log = logging.getLogger("paramiko")
        if not log.handlers:  # else Python prints its tracebacks of errors that are told in words
            log.addHandler(logging.NullHandler())
        self.limits = limits
        self._config = config or Config()
        self._most = most
        self._keys = KeyRing()
        self._lock = threading.Lock()
        self._slots: dict[Route, _Slot] = {}
        self._turns = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def route(self, target: Target) -> Route:
        """The way to a host; InputError where ~/.ssh/config cannot be used."""
        return self._config.route(target)

    @contextlib.contextmanager
    def use(self, name: str, route: Route) -> Iterator[paramiko.Transport]:
        """A live connection, opened if there is none; kept afterwards."""
        slot = self._enter(route)
        try:
            with slot.channels:
                with slot.lock:
                    if slot.transport is None or not slot.transport.is_active():
                        slot.transport = self._open(name, route)
                    transport = slot.transport
                yield transport
        finally:
            self._leave(slot)

    def drop(self, route: Route) -> None:
        """Closes the connection: it answers no more, and the next use opens a new one."""
        with self._lock:
            slot = self._slots.get(route)
            transport = slot.transport if slot else None
            if slot:
                slot.transport = None
        if transport:
            transport.close()

    def close(self) -> None:
        """Closes all; hosts that are reached through others first."""
        with self._lock:
            slots = sorted(self._slots.items(), key=lambda entry: entry[0].via is None)
            self._slots = {}
        for _, slot in slots:
            if slot.transport:
                slot.transport.close()

    def _open(self, name: str, route: Route) -> paramiko.Transport:
        if route.via is None:
            return open_transport(name, route, keys=self._keys, jump=None, limits=self.limits)
        with self.use(name, route.via) as jump:
            return open_transport(name, route, keys=self._keys, jump=jump, limits=self.limits)

    def _enter(self, route: Route) -> _Slot:
        with self._lock:
            slot = self._slots.setdefault(route, _Slot())
            slot.users += 1
            return slot

    def _leave(self, slot: _Slot) -> None:
        """Closes the idle connections that were used longest ago while there are too many."""
        with self._lock:
            slot.users -= 1
            slot.used = next(self._turns)
            surplus = [transport for transport in self._surplus() if transport]
        for transport in surplus:
            transport.close()

    def _surplus(self) -> Iterator[paramiko.Transport | None]:
        jumps = {route.via for route, slot in self._slots.items() if slot.transport and route.via}
        opened = [route for route, slot in self._slots.items() if slot.transport]
        idle = [r for r in opened if self._slots[r].users == 0 and r not in jumps]
        idle.sort(key=lambda route: self._slots[route].used)
        for route in idle[: max(0, len(opened) - self._most)]:
            yield self._slots.pop(route).transport

"""How the ranks of a group know of each other: each follower holds a line to the head."""

import contextlib
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from llmdeploy.onhost import wire

SILENCE_S = 10.0
"""A rank that says nothing for so long is lost: its host is frozen, off or cut off.

Source: own choice: ten pings; a busy host of two cores delays one by seconds."""
PING_S = 1.0
"""Between two words of a rank. Source: own choice."""
RETRY_S = 0.2
"""Before the head's port is tried again. Source: own choice."""


@dataclass(frozen=True)
class End:
    """Why a rank's group ended."""

    kind: str
    """`own`: the rank's engine ended by itself; `peer`: another's did; `lost`: another says nothing
    any more; `late`: others did not come; `frozen`: no token in time; `ordered`: told to stop."""
    position: int
    """The rank that it began with."""
    what: str


class Head:
    """The side of rank 0: it listens, and knows who is there."""

    def __init__(self, address: str, port: int, token: str, *, hosts: int) -> None:
        self._token, self._hosts = token, hosts
        self._server = wire.listen(address, port) if hosts > 1 else None
        self._lines: dict[int, wire.Line] = {}
        self._pinged_s = 0.0

    def gather(self, deadline_s: float, halted: Callable[[], bool]) -> End | None:
        """None once all followers are there."""
        while len(self._lines) < self._hosts - 1:
            if halted():
                return End("ordered", 0, "rank 0 was told to stop")
            if time.monotonic() > deadline_s:
                missing = sorted(set(range(1, self._hosts)) - set(self._lines))
                return End("late", missing[0], f"rank {missing[0]} did not come in time")
            self._admit()
            end = self.look()
            if end is not None:
                return end
        return None

    def go(self) -> None:
        """The followers may start their engines."""
        for line in self._lines.values():
            line.send(go=True)

    def look(self) -> End | None:
        """Why the group ended, None while it stands."""
        if time.monotonic() - self._pinged_s > PING_S:
            self._pinged_s = time.monotonic()
            for position, line in self._lines.items():
                try:
                    line.send(ping=True)
                except wire.Gone as gone:
                    return End("lost", position, f"rank {position} is lost: {gone}")
        for position, line in self._lines.items():
            end = _hear(line, position)
            if end is not None:
                return end
        return None

    def tell(self, end: End) -> None:
        """Every follower knows why; the lines are closed."""
        for line in self._lines.values():
            _say_end(line, end)
        self._lines = {}

    def close(self) -> None:
        for line in self._lines.values():
            line.close()
        if self._server:
            self._server.close()

    def _admit(self) -> None:
        assert self._server is not None, "only a group of several hosts has followers"
        if not select.select([self._server], [], [], 0.2)[0]:
            return
        plug: socket.socket | None = None
        try:
            plug, _ = self._server.accept()
            line, hello = wire.admit(plug, self._token)
        except (OSError, wire.Gone):
            if plug is not None:
                plug.close()
            return
        former = self._lines.pop(int(hello["position"]), None)
        if former is not None:
            former.close()
        self._lines[int(hello["position"])] = line


class Follower:
    """The side of every other rank: a line to the head."""

    def __init__(self, address: str, port: int, token: str, *, position: int) -> None:
        self._place, self._token, self._position = (address, port), token, position
        self._line: wire.Line | None = None
        self._pinged_s = 0.0
        self._may_go = False

    def gather(self, deadline_s: float, halted: Callable[[], bool]) -> End | None:
        """None once the head says go."""
        why = "it was not asked yet"
        while not self._may_go:
            if halted():
                return End("ordered", self._position, f"rank {self._position} was told to stop")
            if time.monotonic() > deadline_s:
                return End("late", 0, f"the head did not let this rank start: {why}")
            try:
                if self._line is None:
                    address, port = self._place
                    self._line = wire.join(address, port, self._token, position=self._position)
            except wire.Gone as gone:
                why = str(gone)
                time.sleep(RETRY_S)
                continue
            end = self.look()
            if end is not None:
                return end
            time.sleep(0.1)
        return None

    def go(self) -> None:
        """Nobody follows a follower."""

    def look(self) -> End | None:
        """Why the group ended, None while it stands."""
        line = self._line
        assert line is not None, "joined before"
        try:
            if time.monotonic() - self._pinged_s > PING_S:
                self._pinged_s = time.monotonic()
                line.send(ping=True)
        except wire.Gone as gone:
            return End("lost", 0, f"the head is lost: {gone}")
        return _hear(line, 0, on_go=self._let_go)

    def tell(self, end: End) -> None:
        """The head knows why; the line is closed."""
        if self._line is not None:
            _say_end(self._line, end)
            self._line = None

    def close(self) -> None:
        if self._line is not None:
            self._line.close()

    def _let_go(self) -> None:
        self._may_go = True


def _hear(
    line: wire.Line,
    position: int,
    *,
    on_go: Callable[[], None] | None = None,
) -> End | None:
    """What the other end said: None unless the group ended with it."""
    try:
        while True:
            said = line.receive(0.0)
            if said is None:
                break
            if said.get("go") and on_go is not None:
                on_go()
            if "end" in said:
                return End("peer", int(said["position"]), str(said["end"]))
    except wire.Gone as gone:
        return End("lost", position, f"rank {position} is lost: {gone}")
    silent_s = time.monotonic() - line.heard_s
    if silent_s > SILENCE_S:
        return End("lost", position, f"rank {position} said nothing for {silent_s:.0f} s")
    return None


def _say_end(line: wire.Line, end: End) -> None:
    with contextlib.suppress(wire.Gone):
        line.send(end=end.what, position=end.position)
    line.close()

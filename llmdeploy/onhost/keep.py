"""Keeps one rank of a group: its engine runs only while the whole group does.

All engines start at the same time, once every rank is there and has cleared what a former start
left: then nobody listens for a group that is gone, and importing is not waited for one by one.
When one rank ends, says nothing or stands still, every rank ends; the supervisor starts them again,
and they meet anew. A lone rank is never left talking to a group that is gone.
"""

import json
import pathlib
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llmdeploy.onhost import group, pulse, stacks, wire
from llmdeploy.onhost.engine import Engine
from llmdeploy.onhost.group import End

LOOK_S = 0.25
"""Between two looks at the engine's process. Source: own choice."""
BROKEN_GRACE_S = 2.0
"""What an engine gets to end by itself when its group is gone: it has nothing left to drain.

Source: own choice."""
_LISTEN = "0A"
"""State TCP_LISTEN. Source: Linux include/net/tcp_states.h, as /proc/net/tcp shows it."""


@dataclass(frozen=True)
class Spec:
    """One rank, as launch wrote it down."""

    name: str
    position: int
    hosts: int
    address: str
    """The head's."""
    group_port: int
    """Where the head listens for the other ranks."""
    token: str
    rendezvous_port: int | None
    """Where the head's engine listens for the others'; None: there are none."""
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    cwd: str
    events: str
    """File that gets a line at each step."""
    start_timeout_s: float
    stop_timeout_s: float
    pulse: dict[str, Any] | None


class Events:
    """What happened to the rank: lines of JSON in a file, and of words in its log."""

    def __init__(self, spec: Spec) -> None:
        self._path, self._position = pathlib.Path(spec.events), spec.position

    def add(self, event: str, **fields: Any) -> None:
        line = {"at_s": time.time(), "event": event, **fields}
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        words = " ".join(f"{name}={value}" for name, value in fields.items())
        print(f"[rank {self._position}] {event} {words}".rstrip(), flush=True)


def main(path: str) -> int:
    """Keeps the rank of the spec in that file: 0 once told to stop, 1 when its group ended."""
    spec = load(pathlib.Path(path).read_text())
    told = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: told.append(True))
    return keep(spec, halted=lambda: bool(told))


def load(text: str) -> Spec:
    """The spec in a JSON text."""
    fields = json.loads(text)
    fields["argv"] = tuple(fields["argv"])
    fields["env"] = tuple((name, value) for name, value in fields["env"])
    return Spec(**fields)


def keep(spec: Spec, *, halted: Callable[[], bool]) -> int:
    """Runs the rank once, from meeting the others to its end."""
    events = Events(spec)
    engine = Engine(list(spec.argv), dict(spec.env), cwd=spec.cwd, name=spec.name)
    left = engine.clear()
    events.add("waits", **({"killed_left": left} if left else {}))
    try:
        ties = _ties(spec)
    except OSError as error:
        events.add("ended", kind="own", position=spec.position, what=f"{spec.address}: {error}")
        time.sleep(group.RETRY_S)
        return 1
    beat = _beat(spec)
    try:
        end = _live(spec, engine, ties, beat, events=events, halted=halted)
    except wire.Gone as gone:
        end = End("lost", 0, str(gone))
    ordered = end.kind == "ordered"
    drains = ordered and spec.position == 0  # a follower's host goes down: nothing is left to drain
    if beat:
        beat.stop()
    if not drains:
        ties.tell(end)
    if end.kind == "frozen":
        events.add("stacks", **stacks.dump(spec.name, spec.argv[0], _stacks_path(spec)))
    killed = engine.stop(
        grace_s=spec.stop_timeout_s if drains else BROKEN_GRACE_S,
        meanwhile=ties.look if drains and engine.started else lambda: None,
    )
    ties.tell(end)
    ties.close()
    events.add("ended", kind=end.kind, position=end.position, what=end.what, killed=killed)
    return 0 if ordered else 1


def _stacks_path(spec: Spec) -> pathlib.Path:
    """Beside the rank's events, as launch names it."""
    return pathlib.Path(spec.events.removesuffix(".events.jsonl") + ".stacks.txt")


def _live(
    spec: Spec,
    engine: Engine,
    ties: "group.Head | group.Follower",
    beat: pulse.Pulse | None,
    *,
    events: Events,
    halted: Callable[[], bool],
) -> End:
    """Returns with the end."""
    deadline_s = time.monotonic() + spec.start_timeout_s
    end = ties.gather(deadline_s, halted)
    if end is not None:
        return end
    ties.go()
    engine.start()
    events.add("started")
    if beat:
        beat.start()
    waits = spec.position == 0 and spec.rendezvous_port is not None and spec.hosts > 1
    while True:
        end = _look(spec, engine, ties, beat, halted=halted)
        if end is not None:
            return end
        if waits and listens(spec.rendezvous_port):
            waits = False
            events.add("met", port=spec.rendezvous_port)
        if waits and time.monotonic() > deadline_s:
            what = f"nothing listens on rendezvous port {spec.rendezvous_port}"
            return End("late", 0, what)
        time.sleep(LOOK_S)


def _look(
    spec: Spec,
    engine: Engine,
    ties: "group.Head | group.Follower",
    beat: pulse.Pulse | None,
    *,
    halted: Callable[[], bool],
) -> End | None:
    if halted():
        return End("ordered", spec.position, f"rank {spec.position} was told to stop")
    ended = engine.ended()
    if ended is not None:
        return End("own", spec.position, f"the engine ended: {ended}")
    lost = engine.lost()
    if lost is not None:
        return End("own", spec.position, f"the engine's {lost}")
    engine.note_segments()
    if beat and beat.frozen:
        return End("frozen", spec.position, beat.frozen)
    return ties.look()


def _ties(spec: Spec) -> "group.Head | group.Follower":
    if spec.position == 0:
        return group.Head(spec.address, spec.group_port, spec.token, hosts=spec.hosts)
    return group.Follower(spec.address, spec.group_port, spec.token, position=spec.position)


def _beat(spec: Spec) -> pulse.Pulse | None:
    if spec.pulse is None:
        return None
    fields = spec.pulse | {name: tuple(spec.pulse[name]) for name in ("running", "moving")}
    return pulse.Pulse(pulse.Watched(**fields))


def listens(port: int | None) -> bool:
    """Whether anything listens on the port: asked of the kernel, since a visit may disturb it."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = pathlib.Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            fields = row.split()
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                return True
    return False

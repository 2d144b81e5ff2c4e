"""One host's part in a transfer of a model: its store, its program, and what that says."""

import contextlib
import json
from dataclasses import dataclass
from typing import Any, Protocol

from llmdeploy import store
from llmdeploy.edge import Clock
from llmdeploy.errors import InputError, Refused, Unreachable
from llmdeploy.release.site import Station
from llmdeploy.store import Manifest, ModelFile, Sealed

POLL_S = 0.1
START_TIMEOUT_S = 60.0
"""For a transfer's program to listen.

Source: own choice: Python starts in seconds on busy hosts."""
OTHERS_S = 120.0
"""How long another service's transfer into the same store is waited for.

Source: own choice: twice what a transfer stays without a byte before it ends by itself."""
_BEGIN = 'nohup setsid "$@" >"$0" 2>&1 </dev/null & echo $!'
_RUNS = 'tr "\\0" " " <"/proc/$1/cmdline" 2>/dev/null || true'
_ROOM = (
    'mkdir -p "$1" && df -Pk "$1" | tail -n 1 && for p in "$1"/*.part; do '
    '[ ! -f "$p" ] || echo "${p##*/} $(wc -c <"$p")"; done'
)


class Parcel(Protocol):
    """What a transfer brings: files known by their hashes. A model's manifest is one."""

    @property
    def id(self) -> str: ...

    @property
    def digest(self) -> str: ...

    @property
    def sealed(self) -> Sealed | None: ...

    @property
    def stored(self) -> tuple[ModelFile, ...]: ...

    def model_dump_json(self, *, by_alias: bool) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """One host's part in the chain."""

    station: Station
    store: str
    """Absolute."""
    state_path: str

    def folder(self, parcel: Parcel) -> str:
        """Its own on that host, by its content: another version lies elsewhere."""
        form = ".sealed" if parcel.sealed is not None else ""
        return f"{self.store}/{parcel.id}@{parcel.digest[:12]}{form}"

    @property
    def objects(self) -> str:
        return f"{self.store}/.objects"


def hop(station: Station) -> Hop:
    """The station's store as a place to bring models to."""
    folder = store.absolute(station.model_store, shell=station.shell)
    return Hop(station=station, store=folder, state_path=f"{folder}/.objects/transfer.json")


def there_already(manifest: Manifest, hop: Hop) -> str | None:
    """The folder on the host that holds this very model, None where none does."""
    shell = hop.station.shell
    for folder in (hop.folder(manifest), f"{hop.store}/{manifest.id}"):
        found = store.find(folder, shell=shell)
        if found is None or found.manifest.digest != manifest.digest:
            continue
        if found.manifest.stored != manifest.stored:  # sealed, or sealed another time
            continue
        if store.broken(store.verify(found, full=False, shell=shell)) is None:
            return folder
    return None


def room(parcel: Parcel, hop: Hop) -> tuple[int, int]:
    """Free bytes of the store's disk, and what lies there of it already, in part too."""
    shell = hop.station.shell
    done = shell.run(("sh", "-c", _ROOM, "sh", hop.objects), timeout_s=20)
    disk, _, parts = done.stdout.partition("\n")
    fields = disk.split()
    if done.exit_code != 0 or len(fields) < 4:
        raise Refused(
            f"{hop.station.name}: {hop.objects}: {done.stderr.strip() or done.stdout!r}",
            fix=f"make {hop.store} writable for the user that llmdeploy logs in as",
        )
    names = shell.entries(hop.objects)
    came = {name: int(size) for name, size in map(str.split, parts.splitlines())}
    there = sum(
        file.size_bytes if file.sha256 in names else came.get(f"{file.sha256}.part", 0)
        for file in parcel.stored
    )
    return int(fields[3]) * 1024, there


def begin(hop: Hop, program: str, orders: dict[str, Any], *, clock: Clock) -> None:
    """The host's program runs, detached; it ends by itself when nothing comes any more.

    One that a killed command of this service left is ended first; another service's is waited for.
    """
    shell = hop.station.shell
    _await_free(hop, owner=str(orders["owner"]), clock=clock)
    path = _spec_path(hop)
    shell.remove(hop.state_path)
    shell.write(path, json.dumps(orders).encode(), mode=0o600)
    python = hop.station.python
    log = f"{hop.objects}/transfer.log"
    shell.run(("sh", "-c", _BEGIN, log, python, "-I", "-S", program, "pass", path), timeout_s=20)


def end(hop: Hop) -> None:
    """The host's program is gone, as far as the host answers; it would end by itself later."""
    with contextlib.suppress(Unreachable, InputError):
        if pid := _running(hop, _state(hop)):
            hop.station.shell.run(("kill", pid), timeout_s=10)


def _await_free(hop: Hop, *, owner: str, clock: Clock) -> None:
    """No program of an earlier transfer runs; Refused where another service's does not end."""
    deadline_s = clock.monotonic_s() + OTHERS_S
    while pid := _running(hop, state := _state(hop)):
        if state.get("owner") == owner:  # one command at a time holds a service: this one is dead
            hop.station.shell.run(("kill", pid), timeout_s=10)
        elif clock.monotonic_s() > deadline_s:
            raise Refused(
                f"{hop.station.name}: {hop.objects}: {state.get('owner')} still copies a model "
                f"there after {OTHERS_S:g} s (process {pid})",
                fix="launch again when that launch is done",
            )
        clock.sleep(POLL_S)


def _running(hop: Hop, state: dict[str, Any]) -> str | None:
    """Process id of the program behind a state, None where it has ended."""
    if not state.get("pid") or state.get("done") or state.get("error"):
        return None
    pid = str(state["pid"])
    done = hop.station.shell.run(("sh", "-c", _RUNS, "sh", pid), timeout_s=10)
    return pid if _spec_path(hop) in done.stdout else None  # the number may be another's by now


def _spec_path(hop: Hop) -> str:
    return f"{hop.objects}/transfer.spec"


def wait_port(hop: Hop, *, clock: Clock) -> int | None:
    """The port on which the host's program listens for the one before it, None where it does not;
    Refused when the program does not say within START_TIMEOUT_S."""
    deadline_s = clock.monotonic_s() + START_TIMEOUT_S
    while True:
        state = _state(hop)
        if "pid" in state:
            port = state["port"]
            return None if port is None else int(port)
        if clock.monotonic_s() > deadline_s:
            raise Refused(
                f"{hop.station.name}: the transfer did not begin: {_log(hop)}",
                fix=f"check that {hop.station.python} is there and runs",
            )
        clock.sleep(POLL_S)


def seen(hop: Hop) -> dict[str, Any]:
    """The host's state; nothing where it does not answer now: the others notice when it stays
    away."""
    try:
        return _state(hop)
    except Unreachable:
        return {}


def last_words(hop: Hop) -> str | None:
    """Of a program that ended without telling how, such as one that was killed; None while it runs,
    where it told, and where the host does not answer."""
    with contextlib.suppress(Unreachable):
        before = _state(hop)
        if before.get("pid") and _running(hop, before) is None:
            now = _state(hop)  # it may have ended well between the two looks
            if not now.get("done") and not now.get("error"):
                return _log(hop)
    return None


def _log(hop: Hop) -> str:
    """The end of what the host's program printed."""
    log = (hop.station.shell.read(f"{hop.objects}/transfer.log") or b"").decode(errors="replace")
    return log.strip()[-300:] or "no word"


def _state(hop: Hop) -> dict[str, Any]:
    text = hop.station.shell.read(hop.state_path)
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}

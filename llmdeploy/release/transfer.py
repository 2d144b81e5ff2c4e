"""Brings a model to the hosts that lack it: sent once to the first, passed on by each to the next.

The bytes leave this machine once, over SSH; the hosts pass them on over the data network while they
still come, so that many hosts take hardly longer than one.
"""

import secrets
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol

from llmdeploy.edge import Clock, Shell
from llmdeploy.errors import Refused, Unreachable
from llmdeploy.release import aboard
from llmdeploy.release import hop as host
from llmdeploy.release.hop import Hop, Parcel
from llmdeploy.release.site import Station
from llmdeploy.release.together import together
from llmdeploy.store import Model
from llmdeploy.units import show_bytes, show_seconds

CHUNK_BYTES = 8 * 2**20
POLL_S = 0.5
TELL_S = 5.0
"""Between two words on how far the hosts are, and two looks for a program that is gone.

Source: own choice."""
TRIES, RETRY_S = 5, 3.0
"""How often a broken connection to the first host is opened again: a link heals in seconds.

Source: own choice."""
AGAIN = "launch again: what has arrived is not copied again"
SPARE_BYTES = 2**30
"""What a store's disk keeps free besides the model. Source: own choice."""


class Cargo(Protocol):
    """A parcel and the folder of this machine where its files lie."""

    @property
    def manifest(self) -> Parcel: ...

    @property
    def folder(self) -> str: ...


def bring(
    model: Model,
    stations: tuple[Station, ...],
    *,
    report: Callable[[str], None],
    go_on: Callable[[], None] = lambda: None,
    here: Shell,
    clock: Clock,
) -> dict[str, str]:
    """By host the folder where the model lies, whole; Refused naming the host where it cannot.

    What `go_on` raises, now and then on the way, ends it.
    """
    hops = together(host.hop, stations)
    there = together(lambda hop: host.there_already(model.manifest, hop), hops)
    folders = {hop.station.name: folder for hop, folder in zip(hops, there, strict=True) if folder}
    missing = tuple(hop for hop in hops if hop.station.name not in folders)
    if missing:
        name = f"model {model.manifest.id}"
        carry(model, missing, name=name, report=report, go_on=go_on, here=here, clock=clock)
    return folders | {hop.station.name: hop.folder(model.manifest) for hop in missing}


def carry(
    cargo: Cargo,
    hops: tuple[Hop, ...],
    *,
    name: str,
    report: Callable[[str], None],
    go_on: Callable[[], None] = lambda: None,
    here: Shell,
    clock: Clock,
) -> None:
    """Every one of the hosts has it in the hop's folder; Refused naming the one that cannot.

    `name` is what reports call it.
    """

    def tell(words: str) -> None:
        report(f"{name}: {words}")

    begun_s = clock.monotonic_s()
    _check_room(cargo.manifest, hops)
    with _all_ended_on_failure(hops):
        copied_bytes = _chain(cargo, hops, report=tell, go_on=go_on, here=here, clock=clock)
    took_s = clock.monotonic_s() - begun_s
    tell(f"{show_bytes(copied_bytes)} copied to {len(hops)} host(s) in {show_seconds(took_s)}")


@contextmanager
def _all_ended_on_failure(hops: tuple[Hop, ...]) -> Iterator[None]:
    """No program and no port is left where the block fails, Ctrl-C included."""
    try:
        yield
    except BaseException:
        for hop in hops:
            host.end(hop)
        raise


def _chain(
    cargo: Cargo,
    hops: tuple[Hop, ...],
    *,
    report: Callable[[str], None],
    go_on: Callable[[], None],
    here: Shell,
    clock: Clock,
) -> int:
    """Bytes copied, over all hosts; every one of them has the model when this returns."""
    content, token = aboard.archive(), secrets.token_hex(32)
    source: tuple[str, int] | None = None
    for number, hop in enumerate(hops):
        guests = 1 if number + 1 < len(hops) else 0
        path = aboard.bring(hop.station, content)
        orders = spec(cargo.manifest, hop, token=token, source=source, guests=guests)
        host.begin(hop, path, orders, clock=clock)
        port = host.wait_port(hop, clock=clock)
        source = (hop.station.address, port) if port is not None else None
    ended = threading.Event()

    def goes_on() -> None:
        go_on()
        if ended.is_set():
            raise Refused("the transfer failed elsewhere", fix=AGAIN)

    with ThreadPoolExecutor(max_workers=1) as threads:
        sending = threads.submit(send, cargo, hops[0], goes_on, here=here, clock=clock)
        try:
            states = _wait_whole(cargo.manifest, hops, sending=sending, report=report, clock=clock)
        except BaseException:
            ended.set()  # nothing more is sent
            raise
        sending.result()
    return sum(int(state["copied_bytes"]) for state in states)


def spec(
    parcel: Parcel, hop: Hop, *, token: str, source: tuple[str, int] | None, guests: int
) -> dict[str, Any]:
    """The orders of a host's program, as `llmdeploy.onhost.pass_on.Spec` reads them."""
    return {
        "owner": hop.station.layout.root,
        "objects": hop.objects,
        "folder": hop.folder(parcel),
        "manifest": parcel.model_dump_json(by_alias=True),
        "files": [file.model_dump() for file in parcel.stored],
        "token": token,
        "address": hop.station.address,
        "guests": guests,
        "source": source,
        "state": hop.state_path,
        "bytes_per_s": hop.station.staging_bytes_per_s,
    }


def _check_room(parcel: Parcel, hops: tuple[Hop, ...]) -> None:
    needed_bytes = sum(file.size_bytes for file in parcel.stored)
    rooms = together(lambda hop: host.room(parcel, hop), hops)
    for hop, (free_bytes, there_bytes) in zip(hops, rooms, strict=True):
        lacking_bytes = needed_bytes - there_bytes
        if free_bytes < lacking_bytes + min(SPARE_BYTES, needed_bytes // 10):
            raise Refused(
                f"{hop.station.name}: {hop.store}: its disk has {show_bytes(free_bytes)} free, "
                f"needed {show_bytes(lacking_bytes)} for {parcel.id}",
                fix=f"free space there (du -sh {hop.store}/*), or let cluster.yaml name a "
                "larger disk",
            )


def _wait_whole(
    parcel: Parcel,
    hops: tuple[Hop, ...],
    *,
    sending: Future[None],
    report: Callable[[str], None],
    clock: Clock,
) -> tuple[dict[str, Any], ...]:
    """Every host's last state; Refused with the first host that could not go on, or what ended
    the sending."""
    total, told_s = sum(file.size_bytes for file in parcel.stored), clock.monotonic_s()
    while True:
        if sending.done():
            sending.result()
        states = together(host.seen, hops)
        if any(state.get("error") for state in states):
            raise _first_failed(hops, states, clock=clock)
        if all(state.get("done") for state in states):
            return states
        if clock.monotonic_s() - told_s > TELL_S:
            told_s = clock.monotonic_s()
            for hop, words in zip(hops, together(host.last_words, hops), strict=True):
                if words is not None:
                    raise Refused(
                        f"{hop.station.name}: the program that takes the model is gone: {words}",
                        fix=AGAIN,
                    )
            shown = ", ".join(
                f"{hop.station.name} "
                f"{(state.get('there_bytes', 0) + state.get('copied_bytes', 0)) / total:.0%}"
                for hop, state in zip(hops, states, strict=True)
            )
            report(shown)
        clock.sleep(POLL_S)


def _first_failed(
    hops: tuple[Hop, ...], states: tuple[dict[str, Any], ...], *, clock: Clock
) -> Refused:
    """The first of the chain that failed, from one more look: who broke off, or passed on what is
    damaged, may tell it later than the one behind it."""
    clock.sleep(POLL_S)
    now = zip(hops, states, together(host.seen, hops), strict=True)
    last = ((hop, after if after.get("error") else before) for hop, before, after in now)
    hop, state = next((hop, state) for hop, state in last if state.get("error"))
    first = ""
    if state.get("full"):
        first = f"free space there (df -h {hop.store}), then "
    elif state.get("damaged"):
        first = "see whether this machine's copy is whole (llmdeploy models verify), then "
    return Refused(f"{hop.station.name}: {state['error']}", fix=f"{first}{AGAIN}")


def send(cargo: Cargo, hop: Hop, go_on: Callable[[], None], *, here: Shell, clock: Clock) -> None:
    """The first host's missing bytes from this machine, each file from where it stopped.

    A broken connection is opened again: what arrived stays.
    """
    for tries_left in reversed(range(TRIES)):
        try:
            _send_once(cargo, hop, go_on, here=here, clock=clock)
        except Unreachable:
            if tries_left == 0:
                raise
            clock.sleep(RETRY_S)
        else:
            break


def _send_once(
    cargo: Cargo, hop: Hop, go_on: Callable[[], None], *, here: Shell, clock: Clock
) -> None:
    shell, begun_s, sent_bytes = hop.station.shell, clock.monotonic_s(), 0
    most_bytes_per_s = hop.station.staging_bytes_per_s
    chunk_bytes = CHUNK_BYTES
    if most_bytes_per_s is not None:  # what a second takes, so that hosts see it come
        chunk_bytes = max(1, min(CHUNK_BYTES, int(most_bytes_per_s)))
    there = set(shell.entries(hop.objects))
    for file in cargo.manifest.stored:
        if file.sha256 in there:
            continue
        part = f"{hop.objects}/{file.sha256}.part"
        offset = _size_bytes(part, shell)
        path = f"{cargo.folder}/{file.name}"
        while block := here.read_from(path, offset_bytes=offset, limit_bytes=chunk_bytes):
            go_on()
            shell.append(part, block)
            offset += len(block)
            sent_bytes += len(block)
            if most_bytes_per_s is not None:
                ahead_s = sent_bytes / most_bytes_per_s - (clock.monotonic_s() - begun_s)
                clock.sleep(max(0.0, ahead_s))


def _size_bytes(path: str, shell: Shell) -> int:
    done = shell.run(("sh", "-c", 'wc -c <"$1" 2>/dev/null || echo 0', "sh", path), timeout_s=20)
    return int(done.stdout.strip() or 0)

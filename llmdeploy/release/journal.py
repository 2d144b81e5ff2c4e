"""The service's journal: what was done, by whom, in a hash chain that shows any later change."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pydantic import ValidationError

from llmdeploy.edge import Clock, Shell
from llmdeploy.errors import Refused
from llmdeploy.release.entry import Entry, parse_lines, sealed
from llmdeploy.release.fold import PHASE, STANDING
from llmdeploy.release.fold import fold as fold
from llmdeploy.release.layout import ServiceLayout
from llmdeploy.release.owner import Owner, is_alive, whoami
from llmdeploy.release.state import Phase, ServiceState, Standing

_WRITER_PATIENCE_S = 10.0
_WRITER_POLL_S = 0.02


def append(
    event: str,
    data: Mapping[str, str] | None = None,
    *,
    release: str | None = None,
    layout: ServiceLayout,
    shell: Shell,
    clock: Clock,
) -> Entry:
    """Adds one entry, on disk when this returns; Refused when the chain before it is broken."""
    with sole_writer(f"{layout.journal}.writer", shell=shell, clock=clock) as writer:
        text = shell.read(layout.journal) or b""
        whole = text[: text.rfind(b"\n") + 1]
        if whole != text:  # a writer was cut off by a crash or a full disk
            shell.write(layout.journal, whole)
        entries = parse_lines(whole, place=layout.journal)
        entry = sealed(
            event,
            data or {},
            release=release,
            actor=writer.actor,
            at_s=clock.now_s(),
            before=entries[-1] if entries else None,
        )
        shell.append(layout.journal, f"{entry.model_dump_json()}\n".encode())
    return entry


def read(layout: ServiceLayout, shell: Shell) -> tuple[Entry, ...]:
    """All entries, oldest first; Refused naming the line where the chain is broken."""
    text = shell.read(layout.journal) or b""
    return parse_lines(text[: text.rfind(b"\n") + 1], place=layout.journal)


def state(layout: ServiceLayout, *, shell: Shell) -> ServiceState:
    """All releases of the service as the journal has them."""
    return fold(layout.root.rpartition("/")[2], read(layout, shell))


def mark_phase(
    release: str,
    phase: Phase,
    *,
    reason: str = "",
    layout: ServiceLayout,
    shell: Shell,
    clock: Clock,
) -> None:
    """Journals that a release came to `phase`; `reason` is for people."""
    data = {"phase": phase.value} | ({"reason": reason} if reason else {})
    append(PHASE, data, release=release, layout=layout, shell=shell, clock=clock)


def mark_standings(
    standings: Mapping[str, Standing],
    *,
    release: str,
    layout: ServiceLayout,
    shell: Shell,
    clock: Clock,
) -> None:
    """Journals new standings of releases, all at once; `release` is the one it is about."""
    data = {name: standing.value for name, standing in standings.items()}
    append(STANDING, data, release=release, layout=layout, shell=shell, clock=clock)


@contextmanager
def sole_writer(path: str, *, shell: Shell, clock: Clock) -> Iterator[Owner]:
    """This process as the only one that holds the file `path`; the dead hold nothing."""
    me = whoami(shell=shell)
    deadline_s = clock.monotonic_s() + _WRITER_PATIENCE_S
    while not shell.create(path, me.model_dump_json().encode(), mode=0o600):
        _drop_dead(path, shell)
        if clock.monotonic_s() > deadline_s:
            raise Refused(
                f"{path}: held by another process for {_WRITER_PATIENCE_S:g} s, needed it free",
                fix=f"end the process named in {path}, then run the command again",
            )
        clock.sleep(_WRITER_POLL_S)
    try:
        yield me
    finally:
        shell.remove(path)


def _drop_dead(path: str, shell: Shell) -> None:
    text = shell.read(path)
    try:
        alive = text is None or is_alive(Owner.model_validate_json(text), shell=shell)
    except ValidationError:
        alive = False
    if not alive:
        shell.remove(path)

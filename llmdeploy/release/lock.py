"""One actor at a time: exclusive files that say who holds them, taken over from the dead."""

from collections.abc import Iterator
from contextlib import contextmanager

from llmdeploy.document import Document, parse
from llmdeploy.edge import Clock, Shell
from llmdeploy.errors import InputError, Refused
from llmdeploy.release import journal
from llmdeploy.release.layout import ServiceLayout
from llmdeploy.release.owner import Owner, is_alive, whoami
from llmdeploy.units import show_seconds

LONGEST_HOLD_S = 6 * 3600.0
"""A gray release of four steps of the default 600 s ends well within; a stuck one is taken over."""


class Lock(Document):
    """The content of lock.json."""

    owner: Owner
    reason: str
    taken_s: float
    expires_s: float


def read(layout: ServiceLayout, *, shell: Shell) -> Lock | None:
    """Who holds the service now, None when nobody does (a dead or late holder is nobody)."""
    text = shell.read(layout.lock)
    return _parsed(text, layout) if text else None


@contextmanager
def hold(
    layout: ServiceLayout,
    *,
    reason: str,
    shell: Shell,
    clock: Clock,
    longest_s: float = LONGEST_HOLD_S,
) -> Iterator[Lock]:
    """The service is this process's until the block ends.

    Refused, naming owner, reason and age, while another living process holds it. The lock of a
    dead process, or one past its expiry, is taken over with a journal line.
    """
    now_s = clock.now_s()
    mine = Lock(
        owner=whoami(shell=shell), reason=reason, taken_s=now_s, expires_s=now_s + longest_s
    )
    content = mine.model_dump_json().encode()
    if not shell.create(layout.lock, content, mode=0o600):
        _take_over(mine, layout, shell=shell, clock=clock)
    try:
        yield mine
    finally:
        if shell.read(layout.lock) == content:
            shell.remove(layout.lock)


def _take_over(mine: Lock, layout: ServiceLayout, *, shell: Shell, clock: Clock) -> None:
    with journal.sole_writer(f"{layout.lock}.takeover", shell=shell, clock=clock):
        text = shell.read(layout.lock)
        former = _parsed(text, layout) if text else None
        if former and _holds(former, shell=shell, clock=clock):
            raise _held(former, layout, clock)
        shell.remove(layout.lock)
        if not shell.create(layout.lock, mine.model_dump_json().encode(), mode=0o600):
            raise Refused(
                f"{layout.lock}: another command took the lock just now, needed it free",
                fix="run the command again",
            )
    if former:
        data = {"from": former.owner.actor, "pid": str(former.owner.pid), "was": former.reason}
        journal.append("lock taken over", data, layout=layout, shell=shell, clock=clock)


def _holds(lock: Lock, *, shell: Shell, clock: Clock) -> bool:
    return clock.now_s() < lock.expires_s and is_alive(lock.owner, shell=shell)


def _held(lock: Lock, layout: ServiceLayout, clock: Clock) -> Refused:
    owner, age_s = lock.owner, max(0.0, clock.now_s() - lock.taken_s)
    return Refused(
        f"{layout.lock}: {owner.actor} (process {owner.pid}) has held the service for "
        f"{show_seconds(age_s)} to {lock.reason}, needed it free",
        fix=f"wait until that ends, or end it: kill {owner.pid} (on {owner.host})",
    )


def _parsed(text: bytes, layout: ServiceLayout) -> Lock | None:
    try:
        return parse(text.decode(errors="replace"), Lock, place=layout.lock)
    except InputError:  # written whole by rename, so only a hand can have broken it
        return None

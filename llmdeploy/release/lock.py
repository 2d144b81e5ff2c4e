"""One actor at a time: exclusive files that say who holds them, taken over from the dead."""

from collections.abc import Iterator
from contextlib import contextmanager

from llmdeploy.document import Document, parse
from llmdeploy.edge import Clock, Shell
from llmdeploy.errors import Busy, InputError
from llmdeploy.release import journal
from llmdeploy.release.layout import ServiceLayout
from llmdeploy.release.owner import Owner, is_alive, whoami
from llmdeploy.units import show_seconds

LONGEST_HOLD_S = 6 * 3600.0
"""A gray release of four steps of the default 600 s ends well within; a stuck one is taken over."""


class Lock(Document):
    """The content of a lock's file."""

    owner: Owner
    reason: str
    taken_s: float
    expires_s: float

    @property
    def holder(self) -> str:
        """`user@host (process 41)`."""
        return f"{self.owner.actor} (process {self.owner.pid})"

    def held_s(self, now_s: float) -> float:
        """Seconds since it was taken."""
        return max(0.0, now_s - self.taken_s)


def read(path: str, *, shell: Shell, clock: Clock) -> Lock | None:
    """Who holds the lock file now, None when nobody does (a dead or late holder is nobody)."""
    text = shell.read(path)
    held = _parsed(text, path) if text else None
    return held if held and _holds(held, shell=shell, clock=clock) else None


@contextmanager
def hold(
    layout: ServiceLayout,
    *,
    reason: str,
    shell: Shell,
    clock: Clock,
    longest_s: float = LONGEST_HOLD_S,
    path: str | None = None,
) -> Iterator[Lock]:
    """The service is this process's until the block ends; with `path` another lock file of it.

    Busy, naming owner, reason and age, while another living process holds it. The lock of a
    dead process, or one past its expiry, is taken over with a journal line.
    """
    path = path or layout.lock
    now_s = clock.now_s()
    mine = Lock(
        owner=whoami(shell=shell), reason=reason, taken_s=now_s, expires_s=now_s + longest_s
    )
    content = mine.model_dump_json().encode()
    if not shell.create(path, content, mode=0o600):
        former = _take_over(mine, path, shell=shell, clock=clock)
        if former:
            data = {"from": former.owner.actor, "pid": str(former.owner.pid), "was": former.reason}
            journal.append("lock taken over", data, layout=layout, shell=shell, clock=clock)
    try:
        yield mine
    finally:
        if shell.read(path) == content:
            shell.remove(path)


def _take_over(mine: Lock, path: str, *, shell: Shell, clock: Clock) -> Lock | None:
    """The lock that a dead or late process left there; Busy while a living one holds it."""
    with journal.sole_writer(f"{path}.takeover", shell=shell, clock=clock):
        text = shell.read(path)
        former = _parsed(text, path) if text else None
        if former and _holds(former, shell=shell, clock=clock):
            raise _held(former, path, clock)
        shell.remove(path)
        if not shell.create(path, mine.model_dump_json().encode(), mode=0o600):
            raise Busy(
                f"{path}: another command took the lock just now, needed it free",
                fix="run the command again",
            )
    return former


def _holds(lock: Lock, *, shell: Shell, clock: Clock) -> bool:
    return clock.now_s() < lock.expires_s and is_alive(lock.owner, shell=shell)


def _held(lock: Lock, path: str, clock: Clock) -> Busy:
    return Busy(
        f"{path}: {lock.holder} has held the service for "
        f"{show_seconds(lock.held_s(clock.now_s()))} to {lock.reason}, needed it free",
        fix=f"wait until that ends, or end it: kill {lock.owner.pid} (on {lock.owner.host})",
    )


def _parsed(text: bytes, path: str) -> Lock | None:
    try:
        return parse(text.decode(errors="replace"), Lock, place=path)
    except InputError:  # written whole by rename, so only a hand can have broken it
        return None

"""How findings of active tests are written."""

from collections.abc import Sequence
from dataclasses import dataclass

from llmdeploy.facts.finding import Finding, Remedy, Status

ALL = "all hosts"
_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Saying:
    """A finding that lacks its answer."""

    check: str
    subject: str
    needed: str
    origin: str

    def __call__(
        self, status: Status, found: str, *, fix: str = "", remedy: Remedy = Remedy.CONFIG
    ) -> Finding:
        return Finding(
            check=self.check,
            status=status,
            subject=self.subject,
            found=found,
            needed=self.needed,
            fix=fix,
            remedy=remedy if fix else None,
            origin=f"measured: {self.origin}",
        )


def finding(check: str, subject: str, needed: str, *, origin: str) -> Saying:
    """A finding about a subject, to be called with status and what was found."""
    return Saying(check, subject, needed, origin)


def hosts_in_words(hosts: Sequence[str]) -> str:
    """A few by name, the rest counted."""
    more = f" and {len(hosts) - _SHOWN} more" if len(hosts) > _SHOWN else ""
    return ", ".join(hosts[:_SHOWN]) + more

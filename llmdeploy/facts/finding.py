"""A finding: one check's answer about one subject, with what to do."""

from enum import StrEnum

from llmdeploy.document import Document


class Status(StrEnum):
    """UNKNOWN and SKIP never pass a gate."""

    PASS = "PASS"
    WARN = "WARN"
    FAIL = "FAIL"
    UNKNOWN = "UNKNOWN"
    SKIP = "SKIP"


class Remedy(StrEnum):
    """What kind of work the fix is."""

    CONFIG = "config"
    """Settings, packages, files: while the host runs."""
    REBOOT = "reboot"
    """A reset of the card, or a reboot of the host."""
    HARDWARE = "hardware"
    """Cables, slots, cooling, a new part."""


class Finding(Document):
    """One check's answer. `found` and `needed` are words with both values in them."""

    check: str
    """Dotted id such as `os.memory` or `accept.stream`."""
    status: Status
    subject: str
    """The host, release or endpoint it is about."""
    found: str
    needed: str
    fix: str = ""
    """A command or an edit; empty where nothing is wrong."""
    remedy: Remedy | None = None
    """None where nothing is wrong."""
    origin: str = ""
    """The tools and files that said what was found."""
    waived: str | None = None
    """Why a finding does not count, and until when; None: it counts."""

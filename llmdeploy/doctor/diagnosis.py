"""What the doctor says: suspects in order, each with evidence, checks and the fix (JSON)."""

from enum import StrEnum

from llmdeploy.document import Document
from llmdeploy.facts.finding import Status


class Verdict(StrEnum):
    """How sure a cause is."""

    PROVEN = "proven"
    """A log line says it, or a check of it fails."""
    LIKELY = "likely"
    """A line that several causes share, or a check that warns."""
    OPEN = "open"
    """Nothing at hand proves or excludes it."""
    EXCLUDED = "excluded"
    """Every check of it was run and is content."""


class Evidence(Document):
    """One line that says it."""

    source: str
    """The log; its file and line is `source:line_number`."""
    line_number: int
    line: str
    at_s: float | None = None
    """Seconds since 1970 by the log's own stamps, in UTC; None: it has none."""
    rank: str | None = None


class Proof(Document):
    """One check that proves or excludes a cause."""

    check: str
    status: Status | None = None
    """None: it could not be run here."""
    found: str = ""
    needed: str = ""
    run: str
    """The command that runs it."""


class Suspect(Document):
    """One cause, with all that speaks for and against it."""

    id: str
    verdict: Verdict
    cause: str
    symptoms: tuple[str, ...]
    evidence: tuple[Evidence, ...] = ()
    proofs: tuple[Proof, ...] = ()
    by_hand: str = ""
    """How a person makes sure, in one step."""
    fix: str


class Consequence(Document):
    """Something that was said because of a suspect; never the cause."""

    id: str
    cause: str
    evidence: tuple[Evidence, ...]


class Block(Document):
    """The last error of a log in which nothing is known."""

    source: str
    first_line: int
    lines: tuple[str, ...]


class Diagnosis(Document):
    """The answer."""

    symptoms: tuple[str, ...]
    """Ids of those that were asked about; else those of the first suspect."""
    suspects: tuple[Suspect, ...]
    """The first cause first."""
    consequences: tuple[Consequence, ...] = ()
    unknown: tuple[Block, ...] = ()
    looked_at: tuple[str, ...]
    """Logs, facts and services that were read."""
    notes: tuple[str, ...] = ()

    @property
    def decided(self) -> bool:
        """Whether anything is known of what was asked, or nothing is wrong."""
        return bool(self.suspects) or not self.unknown

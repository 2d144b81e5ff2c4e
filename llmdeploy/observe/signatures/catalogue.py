"""The catalogue: one entry a known failure, one file a kind, beside this module."""

import functools
import importlib.resources
from enum import StrEnum
from typing import Literal

from pydantic import Field

from llmdeploy.document import Document, parse

FILES = ("memory", "communication", "device", "weights", "operators", "host", "engine")


class Severity(StrEnum):
    """What a match means for the release."""

    FATAL = "fatal"
    WARNING = "warning"
    """Worth telling; no cause of a death."""
    CONSEQUENCE = "consequence"
    """A wrapper or an after-effect: its cause stands elsewhere, so it is never the answer."""


class Kind(StrEnum):
    """What kind of harm a signature is: the gray release has hard guards for some."""

    MEMORY = "memory"
    COMMUNICATION = "communication"
    DEVICE = "device"
    WEIGHTS = "weights"
    OPERATOR = "operator"
    HOST = "host"
    ENGINE = "engine"


class Signature(Document):
    """One known failure: how its line looks, what it means, how to be sure and what to do."""

    id: str
    kind: Kind
    severity: Severity
    specificity: Literal["specific", "generic"] = "specific"
    """A generic line names a symptom that many causes share: any specific one wins over it."""
    echo: bool = False
    """Whether healthy ranks say it too when another rank died: any other failure wins over it."""
    repeats: int = Field(default=1, ge=1)
    """How often the line must come, without one of `resets` between, to mean anything."""
    resets: str | None = None
    silence_s: float | None = None
    """The line itself is normal; the failure is that nothing follows for so long."""
    pattern: str
    symptoms: tuple[str, ...]
    """Ids of the symptoms (doctor/symptoms.yaml) that this failure shows as, the likeliest
    first."""
    explains: tuple[str, ...] = ()
    """Ids of failures that this one, found before them, is the cause of."""
    cause: str
    checks: tuple[str, ...]
    """Checks that prove or exclude it: ids of preflight's, and `live.…` of a running service."""
    proof: str
    """How a person makes sure, in one step."""
    fix: str
    match: str
    """Lines that the pattern must find; a test holds it to that."""
    variants: tuple[str, ...] = ()
    """The same failure in the words of other versions and engines."""
    no_match: str
    """Similar lines that are healthy or another failure's; a test holds the pattern off them."""


class Catalogue(Document):
    """One file of the catalogue."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    signatures: tuple[Signature, ...]


@functools.cache
def catalogue() -> tuple[Signature, ...]:
    """Every signature the product knows."""
    folder = importlib.resources.files("llmdeploy.observe.signatures")
    return tuple(
        one
        for name in FILES
        for one in parse(
            folder.joinpath(f"{name}.yaml").read_text(encoding="utf-8"),
            Catalogue,
            place=f"{name}.yaml",
        ).signatures
    )


def signature(id: str) -> Signature:
    """The signature of that id, which must be there."""
    return next(one for one in catalogue() if one.id == id)

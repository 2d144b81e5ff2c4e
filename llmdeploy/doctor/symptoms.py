"""The table of symptoms: how people name them, what may be behind each, and how to tell."""

import functools
import importlib.resources
import re
from typing import Literal

from pydantic import Field

from llmdeploy.document import Document, parse
from llmdeploy.errors import InputError

SAME_RATIO = 0.6
"""Share of a name's words that must be in the question. Source: own choice: two of three."""


class PossibleCause(Document):
    """One cause that may be behind a symptom."""

    id: str
    cause: str
    signatures: tuple[str, ...]
    """Log lines that prove it: ids of the catalogue of signatures."""
    checks: tuple[str, ...]
    """Checks that prove or exclude it: ids of preflight's, and `live.…` of a running service."""
    proof: str
    """How a person makes sure, in one step."""
    fix: str


class Symptom(Document):
    """One thing that people see go wrong."""

    id: str
    title: str
    words: tuple[str, ...]
    causes: tuple[PossibleCause, ...]


class Symptoms(Document):
    """symptoms.yaml."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    symptoms: tuple[Symptom, ...]


@functools.cache
def symptoms() -> tuple[Symptom, ...]:
    """Every symptom, in the order of the table."""
    name = "symptoms.yaml"
    text = importlib.resources.files("llmdeploy.doctor").joinpath(name).read_text(encoding="utf-8")
    return parse(text, Symptoms, place=name).symptoms


def named(question: str) -> tuple[Symptom, ...]:
    """The symptoms that the question names, the best match first; InputError where it names none.

    A name that stands in the question as it is wins over one of which only most words do.
    """
    rated = [(_likeness(question, one), one) for one in symptoms()]
    best = max(rating for rating, _ in rated)
    if best < SAME_RATIO:
        known = "; ".join(f"{one.id} ({one.words[0]}, {one.words[-1]})" for one in symptoms())
        raise InputError(
            f"{question}: no log file and no known symptom; known: {known}",
            fix="name one of them, or give a log file that exists",
        )
    return tuple(one for rating, one in rated if rating == best)


def _likeness(question: str, symptom: Symptom) -> float:
    """From 0 to 2: 1 and more where a whole name is in the question, longer names more."""
    asked = _plain(question)
    return max(_rating(asked, _plain(name)) for name in (symptom.id, symptom.title, *symptom.words))


def _rating(asked: str, name: str) -> float:
    if asked == name:
        return 2.0
    if _holds(asked, name) or (len(asked) > 3 and _holds(name, asked)):
        return 1.0 + min(len(name), len(asked)) / 100
    words = set(name.split())
    if len(words) < 2:
        return 0.0
    return len(words & set(asked.split())) / len(words) * 0.9


def _holds(text: str, part: str) -> bool:
    """Whether the part stands in the text: as whole words where it is written in Latin letters."""
    if part.isascii():
        return f" {part} " in f" {text} "
    return part in text


def _plain(text: str) -> str:
    lower = text.lower().replace("utiliz", "utilis")
    return " ".join(re.sub(r"[_\W]+", " ", lower).split())

"""One fact as it was read from a section, and what every reader of sections shares."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from llmdeploy.facts.section import TIMED_OUT, Section, Unknown

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One fact as it was read: `value` may be Unknown."""

    fact: str
    value: object
    tool: str
    at_s: float


@dataclass(frozen=True, slots=True)
class Reader:
    """Which facts a section gives; `parse` returns the one value, or a dataclass of all."""

    section: str
    facts: tuple[str, ...]
    parse: Callable[[Section], object]
    raw: bool = False
    """Whether `parse` also takes a section that ended with an error."""


def read(sections: Mapping[str, Section], reader: Reader) -> Iterator[Reading]:
    """The reader's facts; Unknown with the reason where the section is missing or unreadable."""
    section = sections.get(reader.section)
    value: object = unusable(section, raw=reader.raw)
    if value is None:
        value = parsed(section, reader.parse)
    yield from spread(section, reader.facts, value)


def spread(section: Section | None, facts: tuple[str, ...], value: object) -> Iterator[Reading]:
    """One reading for each fact: the value itself, or its attribute of that name."""
    tool, at_s = (section.tool, section.at_s) if section else ("the probe", 0.0)
    for fact in facts:
        part = getattr(value, fact) if len(facts) > 1 and not isinstance(value, Unknown) else value
        yield Reading(fact=fact, value=part, tool=tool, at_s=at_s)


def unusable(section: Section | None, *, raw: bool = False) -> Unknown | None:
    """Why nothing can be read from the section; None where it can be tried."""
    if section is None:
        return Unknown(reason="the probe ended before it was asked")
    if section.exit_code in TIMED_OUT:
        return Unknown(reason=f"{section.tool} {section.ended}")
    if section.exit_code and not raw:
        said = section.text.splitlines()[-1] if section.text else "it said nothing"
        return Unknown(reason=f"{section.tool} {section.ended}: {said[:200]}")
    return None


def parsed(section: Section | None, parse: Callable[[Section], T]) -> T | Unknown:
    """What `parse` makes of the section; Unknown where it cannot read it."""
    assert section is not None, "an absent section is unusable"
    try:
        return parse(section)
    except (ValueError, LookupError, TypeError) as error:
        detail = f"{type(error).__name__}: {error}"
        return Unknown(reason=f"the answer of {section.tool} cannot be read: {detail[:200]}")

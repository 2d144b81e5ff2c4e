"""One line of the journal, sealed by the hash of itself and of the line before it."""

import hashlib
import json
import shlex
from collections.abc import Mapping

from pydantic import ValidationError

from llmdeploy.document import Document
from llmdeploy.errors import Refused

FIRST = "0" * 64
"""What the first entry has as `previous`."""


class Entry(Document):
    """One line of journal.jsonl."""

    seq: int
    at_s: float
    actor: str
    event: str
    release: str | None
    data: dict[str, str]
    previous: str
    """`sha256` of the entry before."""
    sha256: str
    """Of this entry's other fields as JSON with sorted keys."""


def sealed(
    event: str,
    data: Mapping[str, str],
    *,
    release: str | None,
    actor: str,
    at_s: float,
    before: Entry | None,
) -> Entry:
    """The entry that follows `before` (None: the first), with its hash."""
    draft = Entry(
        seq=before.seq + 1 if before else 1,
        at_s=at_s,
        actor=actor,
        event=event,
        release=release,
        data=dict(data),
        previous=before.sha256 if before else FIRST,
        sha256="",
    )
    return draft.model_copy(update={"sha256": _digest(draft)})


def parse_lines(text: bytes, *, place: str) -> tuple[Entry, ...]:
    """Entries of whole lines whose chain holds; Refused naming the first line that does not."""
    entries: list[Entry] = []
    previous = FIRST
    for number, line in enumerate(text.splitlines(), start=1):
        entry = _parsed(line, place=place, number=number)
        expected = _digest(entry)
        if entry.previous != previous or entry.sha256 != expected or entry.seq != number:
            found, needed = entry.sha256[:12], expected[:12]
            if found == needed:
                found, needed = f"seq {entry.seq} after {entry.previous[:12]}", previous[:12]
            raise Refused(
                f"{place}: line {number}: the hash chain is broken: found {found}, needed {needed}",
                fix=_mend(place, number),
            )
        entries.append(entry)
        previous = entry.sha256
    return tuple(entries)


def _mend(place: str, number: int) -> str:
    kept = f"sed -i.damaged '{number},$d' {shlex.quote(place)}"
    return (
        f"the journal was changed by hand: restore {place} from a backup; or keep what stands"
        f" before that line, and see what the service then knows: {kept}; llmdeploy status"
    )


def _parsed(line: bytes, *, place: str, number: int) -> Entry:
    try:
        return Entry.model_validate_json(line)
    except ValidationError as error:
        raise Refused(
            f"{place}: line {number}: found {line[:60].decode(errors='replace')!r},"
            " needed a journal entry",
            fix=_mend(place, number),
        ) from error


def _digest(entry: Entry) -> str:
    content = entry.model_dump(mode="json", exclude={"sha256"})
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()

"""When a log line was written, in whatever form its program stamps lines."""

import datetime
import re
from collections.abc import Sequence

NO_YEAR = 2000
"""Stands for the year of stamps that have none; a leap year, so that February 29th is a date."""
_LOOK_BACK = 200
"""Lines above one without a stamp that may lend theirs."""
_DATE = r"(?P<y>\d{4})[-/.](?P<mo>\d{1,2})[-/.](?P<d>\d{1,2})"
_CLOCK = r"(?P<h>\d{2}):(?P<mi>\d{2}):(?P<s>\d{2})(?P<f>[.,]\d+)?"
_MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec"
_FORMS = (
    re.compile(r'"at_s": ?(?P<epoch>\d{9,}(?:\.\d+)?)'),  # this product's engine
    re.compile(r"^(?P<epoch>\d{9,}\.\d+) "),  # journalctl -o short-unix
    re.compile(rf"{_DATE}[T \-:]{_CLOCK}(?P<zone>Z|[+-]\d\d:?\d\d)?"),  # SGLang, Python, ISO, HCCL
    re.compile(rf"\b[A-Z]{{4,8}} (?P<mo>\d\d)-(?P<d>\d\d) {_CLOCK}"),  # vLLM
    re.compile(rf"\[?\b[IWEF](?P<mo>\d\d)(?P<d>\d\d) {_CLOCK}"),  # glog: torch's C++ parts
    re.compile(rf"^(?P<mon>{_MONTHS.replace(' ', '|')}) +(?P<d>\d+) {_CLOCK}"),  # syslog
)


def stamp_s(line: str, *, year: int = NO_YEAR) -> float | None:
    """Seconds since 1970 that the line states, None where it states no time.

    `year` is for stamps that have none; without a zone a stamp is read as UTC: within one host's
    logs only differences count.
    """
    start = line[:200]
    for form in _FORMS:
        found = form.search(start)
        if found:
            return _seconds(found.groupdict(), year)
    return None


def line_time_s(lines: Sequence[str], index: int, *, year: int = NO_YEAR) -> float | None:
    """The time of the line or of the nearest stamped one above it (a traceback has one stamp)."""
    for line in reversed(lines[max(0, index - _LOOK_BACK) : index + 1]):
        at_s = stamp_s(line, year=year)
        if at_s is not None:
            return at_s
    return None


def year_of(lines: Sequence[str]) -> int | None:
    """The year of the first stamp that has one."""
    for line in lines:
        at_s = stamp_s(line)
        if at_s is not None:
            year = datetime.datetime.fromtimestamp(at_s, tz=datetime.UTC).year
            if year != NO_YEAR:
                return year
    return None


def _seconds(parts: dict[str, str | None], year: int) -> float | None:
    if parts.get("epoch"):
        return float(parts["epoch"] or 0)
    month = _month(parts)
    second = int(parts["s"] or 0)
    try:
        moment = datetime.datetime(
            int(parts.get("y") or year),
            month,
            int(parts["d"] or 0),
            int(parts["h"] or 0),
            int(parts["mi"] or 0),
            min(second, 59),
            tzinfo=_zone(parts.get("zone")),
        )
    except ValueError:  # digits that look like a date and are none
        return None
    fraction = (parts.get("f") or "").replace(",", ".")
    return moment.timestamp() + (float(fraction) if len(fraction) > 1 else 0.0)


def _month(parts: dict[str, str | None]) -> int:
    name = parts.get("mon")
    return _MONTHS.split().index(name) + 1 if name else int(parts["mo"] or 0)


def _zone(text: str | None) -> datetime.tzinfo:
    if text is None or text == "Z":
        return datetime.UTC
    digits = text[1:].replace(":", "")
    offset = datetime.timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return datetime.timezone(-offset if text.startswith("-") else offset)

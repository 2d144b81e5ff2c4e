"""A CSV of requests, read with the line of every mistake."""

import csv
import io

from llmdeploy.errors import InputError
from llmdeploy.simulate.request import Request

COLUMNS = ("arrival_s", "input_tokens", "output_tokens")


def requests_of(text: str, *, place: str) -> tuple[Request, ...]:
    """The requests in a CSV with the columns of COLUMNS, in order of arrival, the first at 0 s.

    InputError names the line, what was found and what was needed.
    """
    rows = _rows(text.removeprefix("\ufeff"), place)  # spreadsheets write the mark
    if not rows:
        raise InputError(
            f"{place}: found no request below the header", fix="add one line a request"
        )
    rows.sort(key=lambda request: request.arrival_s)
    first_s = rows[0].arrival_s
    return tuple(
        Request(
            arrival_s=r.arrival_s - first_s,
            input_tokens=r.input_tokens,
            output_tokens=r.output_tokens,
        )
        for r in rows
    )


def _rows(text: str, place: str) -> list[Request]:
    reader = csv.reader(io.StringIO(text))
    try:
        header = [name.strip() for name in next(reader, [])]
        missing = [name for name in COLUMNS if name not in header]
        if missing:
            found = ", ".join(header) or "none"
            raise InputError(
                f"{place}:1: found columns {found}, needed {', '.join(COLUMNS)}",
                fix=f"write the header line {','.join(COLUMNS)}",
            )
        places = [header.index(name) for name in COLUMNS]
        return [_request(row, places, f"{place}:{reader.line_num}") for row in reader if any(row)]
    except csv.Error as error:
        raise InputError(
            f"{place}:{max(1, reader.line_num)}: cannot be read as CSV: {error}",
            fix="write one request a line: its values with commas between them",
        ) from error


def _request(row: list[str], places: list[int], place: str) -> Request:
    if len(row) <= max(places):
        raise InputError(
            f"{place}: found {len(row)} values, needed {max(places) + 1}",
            fix="give every column of the header a value",
        )
    arrival, prompt, output = (row[i].strip() for i in places)
    return Request(
        arrival_s=_seconds(arrival, place),
        input_tokens=_tokens(prompt, "input_tokens", place),
        output_tokens=_tokens(output, "output_tokens", place),
    )


def _seconds(text: str, place: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e12:
        raise InputError(
            f"{place}: arrival_s: found {text!r}, needed seconds of 0 or more, such as 12.5",
            fix="write the arrival as seconds since the first request or since 1970",
        )
    return value


def _tokens(text: str, column: str, place: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 10**9:
        raise InputError(
            f"{place}: {column}: found {text!r}, needed a whole number of at least 1",
            fix=f"write the request's {column.replace('_', ' ')} as a number like 512",
        )
    return int(text)

"""Words for quantities: parses `80GiB`, `2s`, `5%`, `20/s`; shows bytes and seconds to people."""

import re
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer

MOST = 1e18
"""Largest quantity that is read, in bytes, seconds or events a second: 1 EB, or nobody's time."""
_NUMBER = r"\s*([0-9]+(?:\.[0-9]+)?)\s*"
_BYTES = {
    "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip
_SECONDS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_PER = {"s": 1.0, "min": 60.0, "h": 3600.0, "day": 86400.0}


def _parse(value: object, *, scale: dict[str, float], unit_pattern: str, example: str) -> float:
    if isinstance(value, str):
        match = re.fullmatch(_NUMBER + unit_pattern, value)
        if match and match[2] in scale:
            return _finite(float(match[1]) * scale[match[2]], value)
    raise ValueError(
        f"found {value!r}, needed a number with its unit, like {example} "
        f"(units: {', '.join(scale)})"
    )


def _finite(number: float, value: str) -> float:
    if number > MOST:
        raise ValueError(f"found {value[:40]!r}, needed at most {MOST:g} in the base unit")
    return number


def parse_bytes(value: object) -> int:
    """Bytes of a string such as `80GiB` (2^30) or `80GB` (10^9); ValueError without a unit."""
    scale = {unit: float(size) for unit, size in _BYTES.items()}
    return round(_parse(value, scale=scale, unit_pattern="([A-Za-z]+)", example="80GiB"))


def parse_seconds(value: object) -> float:
    """Seconds of a string such as `250ms`, `2s`, `5min`, `90d`; ValueError without a unit."""
    return _parse(value, scale=_SECONDS, unit_pattern="([a-z]+)", example="2s")


def parse_rate_per_s(value: object) -> float:
    """Events per second of a string such as `20/s` or `100000/day`."""
    if isinstance(value, str):
        match = re.fullmatch(_NUMBER + r"/\s*([a-z]+)", value)
        if match and match[2] in _PER:
            return _finite(float(match[1]) / _PER[match[2]], value)
    raise ValueError(f"found {value!r}, needed a rate like 20/s (per: {', '.join(_PER)})")


def parse_bytes_per_s(value: object) -> float:
    """Bytes per second of a string such as `200MB/s`; ValueError for bits, and without a unit."""
    if isinstance(value, str) and value.rstrip().endswith("/s"):
        return float(parse_bytes(value.rstrip().removesuffix("/s").rstrip()))
    raise ValueError(f"found {value!r}, needed bytes per second, like 200MB/s")


def parse_ratio(value: object) -> float:
    """A share between 0 and 1 of a string such as `5%`; ValueError outside or without a unit."""
    ratio = _parse(value, scale={"%": 0.01}, unit_pattern="(%)", example="5%")
    if ratio > 1:
        raise ValueError(f"found {value!r}, needed at most 100%")
    return round(ratio, 9)


def _written(unit: str, scale: float = 1) -> PlainSerializer:
    """Writes a value back the way people write it, so that a dumped document loads again."""
    return PlainSerializer(lambda value: f"{value * scale:.12g}{unit}", when_used="json")


Bytes = Annotated[int, BeforeValidator(parse_bytes), _written("B"), Field(ge=0)]
Seconds = Annotated[float, BeforeValidator(parse_seconds), _written("s"), Field(ge=0)]
BytesPerS = Annotated[float, BeforeValidator(parse_bytes_per_s), _written("B/s"), Field(gt=0)]
RatePerS = Annotated[float, BeforeValidator(parse_rate_per_s), _written("/s"), Field(gt=0)]
Ratio = Annotated[float, BeforeValidator(parse_ratio), _written("%", 100)]


def show_bytes(size_bytes: float) -> str:
    """Bytes for people, in binary units with three digits: `269.1 MiB`."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def show_seconds(duration_s: float) -> str:
    """Seconds for people: `12 ms`, `1.25 s`, `3 min 20 s`, `2 h 5 min`."""
    if duration_s < 1:
        return f"{duration_s * 1e3:.3g} ms"
    if duration_s < 60:
        return f"{duration_s:.3g} s"
    minutes, seconds = divmod(round(duration_s), 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def show_number(value: float) -> str:
    """Four significant digits, never with an exponent: `14.3`, `903.6`, `15060`, `0.00012`."""
    rounded = f"{value:.4g}"
    if "e" not in rounded:
        return rounded
    return f"{float(rounded):.12f}".rstrip("0").rstrip(".")


def show_ratio(value_ratio: float) -> str:
    """A ratio for people, in per cent: `5 %`, `0.1 %`."""
    return f"{value_ratio * 100:.3g} %"

"""Words that the vendors' tools share: absent values, numbers with units, JSON after warnings."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from llmdeploy.facts.device import Accelerator, Vendor, short_address

ABSENT = frozenset({
    "", "-", "n/a", "na", "[n/a]", "none", "unknown", "[not supported]", "not supported",
    "[unknown error]", "[gpu is lost]", "not available", "[insufficient permissions]", "/",
})  # fmt: skip
_MIB = 2**20
_UNITS = {
    "b": 1, "kb": 2**10, "kib": 2**10, "mb": _MIB, "mib": _MIB, "gb": 2**30, "gib": 2**30,
}  # fmt: skip
"""Vendors write MB and mean MiB. Source: 65536 MB of an Ascend 910B, 196592 MB of an MI300X."""


def word(value: object) -> str | None:
    """The value as text; None where it says that there is none."""
    text = str(value).strip() if value is not None else ""
    return None if text.lower() in ABSENT else text


def number(value: object) -> float | None:
    """The first number of `97.5W`, `+41.0 C`, `{"value": 5, "unit": "W"}`; None without one."""
    if isinstance(value, Mapping):
        value = value.get("value")
    if isinstance(value, bool) or word(value) is None:
        return None
    match = re.search(r"-?\d+(?:\.\d+)?", str(value))
    return float(match[0]) if match else None


def integer(value: object) -> int | None:
    """`number` without its fraction."""
    found = number(value)
    return None if found is None else int(found)


def size_bytes(value: object, *, unit: str = "MiB") -> int | None:
    """Bytes of `81920MiB`, `{"value": 196592, "unit": "MB"}` or a bare number of `unit`."""
    if isinstance(value, Mapping):
        unit = str(value.get("unit") or unit)
    match = re.search(r"\d\s*([KMG]i?B)\b", str(value), re.IGNORECASE)
    found = number(value)
    if found is None:
        return None
    return round(found * _UNITS[(match[1] if match else unit).lower()])


def free_bytes(total_bytes: int | None, used_bytes: int | None) -> int | None:
    """What is left of the total; None where one of them is unknown."""
    return None if total_bytes is None or used_bytes is None else total_bytes - used_bytes


def pair_bytes(text: str) -> tuple[int | None, int | None]:
    """Used and total of `858/65536 MiB`, `0MiB / 98304MiB` or `0MiB(81920MiB)`, in bytes."""
    parts = re.split(r"[/(]", text.strip().rstrip(")"), maxsplit=1)
    if len(parts) != 2:
        return None, None
    return size_bytes(parts[0]), size_bytes(parts[1])


def ratio(value: object) -> float | None:
    """A share of 1 from per cents."""
    found = number(value)
    return None if found is None else found / 100


def yes(value: object) -> bool | None:
    """Whether `Yes`, `Enabled`, `Active`, `On` or 1; None where neither that nor its opposite."""
    text = (word(value) or "").lower()
    if text in ("yes", "enabled", "active", "on", "true", "1"):
        return True
    return False if text in ("no", "disabled", "not active", "off", "false", "0") else None


def documents(text: str) -> Iterator[Any]:
    """JSON values that begin at the start of a line, whatever a tool prints before and between."""
    decoder, at = json.JSONDecoder(), 0
    while match := re.compile(r"^\s*[\[{]", re.MULTILINE).search(text, at):
        try:
            value, at = decoder.raw_decode(text, match.end() - 1)
        except ValueError:  # a log line such as `[INFO] …`
            at = match.end()
            continue
        yield value


def program(name: str) -> str:
    """A program's own name, without its folder and its arguments."""
    words = name.strip().split()
    if name.strip().startswith("["):  # `[Not Found]`
        return name.strip()[:64]
    return words[0].rsplit("/", 1)[-1][:64] if words else "?"


def rows(text: str) -> Iterator[tuple[str, ...]]:
    """Cells of each `| a | b |` row of a drawn table."""
    for line in text.splitlines():
        if line.lstrip().startswith("|"):
            yield tuple(cell.strip() for cell in line.strip().strip("|").split("|"))


def complaints(text: str) -> tuple[str, ...]:
    """Lines outside of a drawn table that tell of an error."""
    said = (line.strip() for line in text.splitlines() if line.strip()[:1] not in ("|", "+", "="))
    return tuple(line[:300] for line in said if _TROUBLE.search(line))


_TROUBLE = re.compile(
    r"fail|error|unable|cannot|can't|not found|not available|no device|lost|denied|permission"
    r"|couldn't|corrupt|timed? ?out|exception|not initiali[sz]ed",
    re.IGNORECASE,
)


_MAKERS = {"amd": "AMD", "moore-threads": "Moore Threads", "metax": "MetaX"}
_UNSAID = (
    "uuid", "memory_total_bytes", "memory_free_bytes", "compute_capability", "driver_version",
    "uncorrected_errors",
)  # fmt: skip


def accelerator(
    vendor: Vendor, index: int, name: str | None, *, address: str | None = None, **said: Any
) -> Accelerator:
    """A card of which the tool may leave much unsaid."""
    unsaid = dict.fromkeys(_UNSAID)
    return Accelerator(
        vendor=vendor,
        index=index,
        name=name or f"{_MAKERS.get(vendor, vendor.title())} card without a name",
        pci_address=short_address(address),
        **{**unsaid, **said},
    )

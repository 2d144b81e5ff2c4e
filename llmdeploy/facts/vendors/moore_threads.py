"""Moore Threads: mthreads-gmi's JSON (`-q --json`) and its table."""

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from llmdeploy.facts.card import CardProcess, CardState, VendorAnswer
from llmdeploy.facts.device import Accelerator, short_address
from llmdeploy.facts.vendors.words import (
    accelerator,
    complaints,
    documents,
    free_bytes,
    integer,
    number,
    pair_bytes,
    program,
    ratio,
    size_bytes,
    word,
)

Record = Mapping[str, Any]


def parse_gmi(text: str) -> VendorAnswer:
    """Cards of the JSON, else of the table; every value in the JSON is text with its unit."""
    for value in documents(text):
        if isinstance(value, dict) and isinstance(value.get("GPU"), list):
            driver = word(value.get("Driver Version"))
            found = [_trimmed(entry) for entry in value["GPU"] if isinstance(entry, dict)]
            return VendorAnswer(
                cards=tuple(_card(i, entry, driver=driver) for i, entry in enumerate(found)),
                states=tuple(_state(i, entry) for i, entry in enumerate(found)),
            )
    return _table(text)


def _trimmed(record: Record) -> dict[str, Any]:
    """The record with trimmed keys: one is `Power Draw ` with a space behind it."""
    return {
        str(key).strip(): _trimmed(value) if isinstance(value, Mapping) else value
        for key, value in record.items()
    }


def _card(at: int, entry: Record, *, driver: str | None) -> Accelerator:
    memory = entry.get("FB Memory Usage") or {}
    return accelerator(
        "moore-threads",
        _index(at, entry),
        word(entry.get("Product Name")),
        address=word((entry.get("PCI") or {}).get("Bus ID")),
        uuid=word(entry.get("GPU UUID")),
        memory_total_bytes=size_bytes(memory.get("Total")),
        memory_free_bytes=size_bytes(memory.get("Free")),
        driver_version=driver,
    )


def _index(at: int, entry: Record) -> int:
    found = integer(entry.get("Index"))
    return at if found is None else found


def _state(at: int, entry: Record) -> CardState:
    power, link = entry.get("Power Readings") or {}, entry.get("PCI") or {}
    return CardState(
        vendor="moore-threads",
        index=_index(at, entry),
        pci_address=short_address(word(link.get("Bus ID"))),
        firmware=word(entry.get("MTBios Version")),
        temperature_c=number((entry.get("Temperature") or {}).get("GPU Current Temp")),
        power_w=number(power.get("Power Draw")),
        power_limit_w=number(power.get("Current Power Limit")),
        busy_ratio=ratio((entry.get("Utilization") or {}).get("Gpu")),
        ecc=word(entry.get("ECC Mode")),
    )


def _table(text: str) -> VendorAnswer:
    """Rows of three lines: `ID Name|address|busy memory`, then lanes and temperature, then ECC."""
    version = re.search(r"Driver Version:\s*(\S+)", text)
    cards, states = [], []
    for name, address, lanes, used, heat in _blocks(text):
        index, _, model = name.partition(" ")
        busy, _, memory = used.strip().partition(" ")
        used_bytes, total_bytes = pair_bytes(memory)
        cards.append(
            accelerator(
                "moore-threads",
                int(index),
                model.strip(),
                address=address,
                memory_total_bytes=total_bytes,
                memory_free_bytes=free_bytes(total_bytes, used_bytes),
                driver_version=version[1] if version else None,
            )
        )
        now, _, most = lanes.partition("(")
        states.append(
            CardState(
                vendor="moore-threads",
                index=int(index),
                pci_address=short_address(address),
                temperature_c=number(heat.split()[0] if heat.split() else None),
                busy_ratio=ratio(busy),
                pcie_lanes=integer(now),
                pcie_lanes_max=integer(most),
            )
        )
    return VendorAnswer(
        cards=tuple(cards), states=tuple(states), processes=tuple(_processes(text)),
        errors=complaints(_outside(text)),
    )  # fmt: skip


def _blocks(text: str) -> Iterator[tuple[str, str, str, str, str]]:
    lines = [line.split("|") for line in text.splitlines()]
    for upper, lower in itertools.pairwise(lines):
        if len(upper) == 3 and len(lower) == 3 and re.match(r"\d+\s+\S", upper[0]):
            yield upper[0].strip(), upper[1].strip(), lower[1].strip(), upper[2], lower[2]


def _processes(text: str) -> Iterator[CardProcess]:
    for line in text.partition("Processes:")[2].splitlines():
        if match := re.match(r"(\d+)\s+(\d+)\s+(\S.*?)\s{2,}(\d+\s*MiB)", line):
            yield CardProcess(
                vendor="moore-threads",
                card=match[1],
                pid=int(match[2]),
                name=program(match[3]),
                memory_bytes=size_bytes(match[4]),
            )


def _outside(text: str) -> str:
    return text.replace("No running processes found", "")

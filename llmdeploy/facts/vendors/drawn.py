"""Iluvatar's ixsmi and Kunlun's xpu-smi: tables drawn like nvidia-smi's, 2 or 3 rows a card."""

import re
from collections.abc import Iterator

from llmdeploy.facts.card import CardProcess, CardState, VendorAnswer
from llmdeploy.facts.device import Vendor, short_address
from llmdeploy.facts.vendors.words import (
    accelerator,
    complaints,
    free_bytes,
    integer,
    number,
    pair_bytes,
    program,
    ratio,
    rows,
    size_bytes,
    word,
)

_PROCESS = re.compile(r"(\d+)\s+(?:N/A\s+N/A\s+)?(\d+)\s+(?:[CG+]+\s+)?(\S.*?)\s+(\d+)(?:MiB)?")
_ADDRESS = re.compile(r"\b([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d)\b")


def parse_ixsmi(text: str) -> VendorAnswer:
    """Iluvatar's cards: of the table, or of `--query-gpu=index,name,memory.total,memory.used,…`."""
    answer = _parse(text, vendor="iluvatar")
    if answer.cards:
        return answer
    cards, states = [], []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) < 6 or not cells[0].isdigit():
            continue
        total_bytes, used_bytes = size_bytes(cells[2]), size_bytes(cells[3])
        cards.append(
            accelerator(
                "iluvatar",
                int(cells[0]),
                word(cells[1]),
                memory_total_bytes=total_bytes,
                memory_free_bytes=free_bytes(total_bytes, used_bytes),
            )
        )
        states.append(
            CardState(
                vendor="iluvatar",
                index=int(cells[0]),
                busy_ratio=ratio(cells[4]),
                temperature_c=number(cells[5]),
            )
        )
    return VendorAnswer(cards=tuple(cards), states=tuple(states), errors=complaints(text))


def parse_kunlun(text: str) -> VendorAnswer:
    """Kunlun's cards; its tool has the same name as Intel's, and `XPU-RT` in its head."""
    return _parse(text, vendor="kunlun")


def _parse(text: str, *, vendor: Vendor) -> VendorAnswer:
    """Rows of three cells: `index name | address | …`, `fan heat power | memory | busy …`."""
    driver = re.search(r"Driver Version:\s*(\S+)", text)
    cards, states = [], []
    for upper, lower in _pairs(text):
        index, _, name = upper[0].partition(" ")
        address = _ADDRESS.search(upper[1])
        used_bytes, total_bytes = pair_bytes(lower[1])
        ecc = upper[2].split()
        cards.append(
            accelerator(
                vendor,
                int(index),
                _name(name, vendor),
                address=address[1] if address else None,
                memory_total_bytes=total_bytes,
                memory_free_bytes=free_bytes(total_bytes, used_bytes),
                driver_version=driver[1] if driver else None,
                uncorrected_errors=integer(ecc[0]) if len(ecc) == 1 else None,
            )
        )
        power = re.search(r"([\d.]+)W / ([\d.]+)W", lower[0])
        heat = re.search(r"(\d+)C\b", lower[0])
        busy = lower[2].split()
        states.append(
            CardState(
                vendor=vendor,
                index=int(index),
                pci_address=short_address(address[1] if address else None),
                temperature_c=number(heat[1]) if heat else None,
                power_w=number(power[1]) if power else None,
                power_limit_w=number(power[2]) if power else None,
                busy_ratio=ratio(busy[0]) if busy else None,
                compute_mode=word(" ".join(busy[1:])),
            )
        )
    return VendorAnswer(
        cards=tuple(cards),
        states=tuple(states),
        processes=tuple(_processes(text, vendor=vendor)),
        errors=complaints(text),
    )


def _name(name: str, vendor: Vendor) -> str:
    """The model without the persistence column that stands behind it."""
    model = re.split(r"\s{2,}", name.strip())[0]
    return f"Kunlun {model}" if vendor == "kunlun" and not model.startswith("Kunlun") else model


def _pairs(text: str) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    upper: tuple[str, ...] | None = None
    for row in rows(text):
        if len(row) == 3 and _ADDRESS.search(row[1]) and re.match(r"\d+\s", row[0]):
            upper = row
        elif upper is not None and len(row) == 3:
            yield upper, row
            upper = None


def _processes(text: str, *, vendor: Vendor) -> Iterator[CardProcess]:
    """`GPU [GI CI] PID [Type] Process name Usage` in one cell."""
    below = text.partition("Processes:")[2]
    for row in rows(below):
        if match := _PROCESS.fullmatch(row[0]) if len(row) == 1 else None:
            yield CardProcess(
                vendor=vendor,
                card=match[1],
                pid=int(match[2]),
                name=program(match[3]),
                memory_bytes=size_bytes(match[4]),
            )

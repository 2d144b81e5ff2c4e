"""Cambricon: cnmon's table of version 4 and 5, and the text of `cnmon info`."""

import re

from llmdeploy.facts.card import CardProcess, CardState, VendorAnswer
from llmdeploy.facts.device import Accelerator, short_address
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

_PROCESS = re.compile(r"(\d+)\s+\S+\s+(\d+)\s+(\S.*?)\s+(\d+ MiB)$")


def parse_cnmon(text: str) -> VendorAnswer:
    """Cards of the table, else of the text of `cnmon info`.

    Version 5 has the bus address in the middle cell, where 4 has `Inited Driver`.
    """
    if re.search(r"^Card \d+\s*$", text, re.MULTILINE):
        return _info(text)
    version = re.search(r"Driver\s+(v[\d.]+)", text)
    cards: list[Accelerator] = []
    states: list[CardState] = []
    processes: list[CardProcess] = []
    upper: tuple[str, ...] | None = None
    for row in rows(text):
        if len(row) != 3:
            upper = None
            if process := _process(row):
                processes.append(process)
        elif re.match(r"\d+\s+\S+\s+\S", row[0]):
            upper = row
        elif upper is not None:
            cards.append(_card(upper, row, driver=version[1] if version else None))
            states.append(_state(upper, row))
            upper = None
    return VendorAnswer(
        cards=tuple(cards), states=tuple(states), processes=tuple(processes),
        errors=complaints(text),
    )  # fmt: skip


def _card(upper: tuple[str, ...], lower: tuple[str, ...], *, driver: str | None) -> Accelerator:
    index, _slash, name, *_ = upper[0].split()
    middle = upper[1].split()
    old = re.fullmatch(r"v[\d.]+", middle[-1]) if middle else None
    used_bytes, total_bytes = pair_bytes(lower[1])
    return accelerator(
        "cambricon",
        int(index),
        f"Cambricon {name}",
        address=middle[0] if middle and ":" in middle[0] else None,
        memory_total_bytes=total_bytes,
        memory_free_bytes=free_bytes(total_bytes, used_bytes),
        driver_version=old[0] if old else driver,
        uncorrected_errors=integer(upper[2].split()[-1]),
    )


def _state(upper: tuple[str, ...], lower: tuple[str, ...]) -> CardState:
    index, _slash, _name, *firmware = upper[0].split()
    heat = re.search(r"(\d+)C", lower[0])
    power = re.search(r"(\d+) W/\s*(\d+) W", lower[0])
    address = upper[1].split()[0] if upper[1] else ""
    last = lower[2].split()
    return CardState(
        vendor="cambricon",
        index=int(index),
        pci_address=short_address(address),
        firmware=firmware[0] if firmware else None,
        temperature_c=number(heat[1]) if heat else None,
        power_w=number(power[1]) if power else None,
        power_limit_w=number(power[2]) if power else None,
        busy_ratio=ratio(upper[2].split()[0]),
        compute_mode=word(last[-1]) if ":" in address and last else None,
        health=None if ":" in address else {"On": "Inited", "Off": "not inited"}.get(address),
    )


def _process(row: tuple[str, ...]) -> CardProcess | None:
    """`Card VF PID Command Line MLU Memory Usage` in one cell."""
    match = _PROCESS.match(row[0]) if len(row) == 1 else None
    if match is None:
        return None
    return CardProcess(
        vendor="cambricon",
        card=match[1],
        pid=int(match[2]),
        name=program(match[3]),
        memory_bytes=size_bytes(match[4]),
    )


def _info(text: str) -> VendorAnswer:
    """Blocks `Card N` of indented `Key : value` lines, two levels deep."""
    cards, states = [], []
    for block in re.split(r"^Card (?=\d+\s*$)", text, flags=re.MULTILINE)[1:]:
        said, part = {}, ""
        for line in block.splitlines()[1:]:
            key, colon, value = line.strip().partition(":")
            if colon and len(line) - len(line.lstrip()) <= 4:
                part = key.strip()
            if colon:
                name = key.strip() if part == key.strip() else f"{part}/{key.strip()}"
                said[name] = value.strip()
        index = int(block.split()[0])
        model = word(said.get("Product Name"))
        address = word(said.get("PCI/Bus ID") or said.get("PCI/Bus-Id"))
        cards.append(
            accelerator(
                "cambricon",
                index,
                f"Cambricon {model}" if model else None,
                address=address,
                uuid=word(said.get("UUID")),
                memory_total_bytes=size_bytes(said.get("Physical Memory Usage/Total")),
                memory_free_bytes=size_bytes(said.get("Physical Memory Usage/Free")),
                driver_version=word(said.get("Driver")),
            )
        )
        states.append(
            CardState(
                vendor="cambricon",
                index=index,
                pci_address=short_address(address),
                health=word(said.get("Health State/Device")),
                firmware=word(said.get("Firmware")),
                temperature_c=number(said.get("Temperature/Chip")),
                power_w=number(said.get("Power/Usage")),
                power_limit_w=number(said.get("Power/Cap")),
                busy_ratio=ratio(said.get("Utilization/MLU Average")),
            )
        )
    return VendorAnswer(cards=tuple(cards), states=tuple(states), errors=complaints(text))

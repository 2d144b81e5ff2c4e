"""AMD: amd-smi's and rocm-smi's JSON of several versions, their text, and CPX partitions."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from llmdeploy.facts.card import CardState, VendorAnswer
from llmdeploy.facts.device import Accelerator, Vendor, short_address
from llmdeploy.facts.vendors.words import (
    accelerator,
    complaints,
    documents,
    free_bytes,
    integer,
    number,
    ratio,
    size_bytes,
    word,
)

Record = Mapping[str, Any]
_ROW = re.compile(
    r"^(\d+)\s+(?:.*?\s+)??(N/A|[\d.]+\u00b0?[cC])\s+(N/A|[\d.]+W)\s+"
    r"(?:(\S+), (\S+?)(?:, \d+)?\s+)?\S+\s+\S+\s+\S+\s+\S+\s+"
    r"(N/A|[\d.]+W)\s+(N/A|\d+%)\s+(N/A|\d+%)\s*$"
)
"""Device, temperature, power, partitions (memory, compute), power cap, VRAM %, GPU % of the concise
table; between them stand model, clocks, fan and level. Source: rocm-smi 5.4, 6.2, 6.4."""


def parse_amd_smi(text: str) -> VendorAnswer:
    """Cards of `amd-smi static --json` and `metric --json` together, or of the static text.

    Older versions print a list, newer ones `{"gpu_data": […]}`; the two calls may follow each
    other in one text. In CPX mode every partition is an entry, and all but the first of a card
    may say N/A for what the card has once.
    """
    merged: dict[int, dict[str, Any]] = {}
    for record in _entries(text):
        gpu = integer(record.get("gpu"))
        if gpu is not None:
            merged.setdefault(gpu, {}).update(record)
    if not merged:
        merged = _from_text(text)
    cards: list[Accelerator] = []
    for gpu, record in sorted(merged.items()):
        cards.append(_card(gpu, record, before=cards[-1] if cards else None))
    states = tuple(_state(gpu, record) for gpu, record in sorted(merged.items()))
    return VendorAnswer(cards=tuple(cards), states=states, errors=complaints(_outside(text)))


def _entries(text: str) -> Iterator[Record]:
    for value in documents(text):
        found = value.get("gpu_data", [value]) if isinstance(value, dict) else value
        yield from (entry for entry in found if isinstance(entry, dict))


def _outside(text: str) -> str:
    """The lines that are no JSON: warnings, errors."""
    return "\n".join(ln for ln in text.splitlines() if not re.match(r'\s*["\[\]{}]', ln))


def _from_text(text: str) -> dict[int, dict[str, Any]]:
    """The same records from the indented `GPU: 0` / `KEY: value` form."""
    found: dict[int, dict[str, Any]] = {}
    gpu, part = -1, ""
    for line in text.splitlines():
        key, colon, value = line.strip().partition(":")
        if not colon:
            continue
        if key == "GPU" and value.strip().isdigit():
            gpu = int(value)
            found[gpu] = {}
        elif gpu >= 0 and not value.strip():
            part = key.lower()
            found[gpu].setdefault(part, {})
        elif gpu >= 0 and part:
            found[gpu][part].setdefault(key.lower(), value.strip())
    return found


def _card(gpu: int, record: Record, *, before: Accelerator | None) -> Accelerator:
    asic, bus, memory = (_part(record, key) for key in ("asic", "bus", "mem_usage"))
    address = short_address(word(bus.get("bdf")))
    same = before if before and before.pci_address == address else None
    total_bytes = size_bytes(_part(record, "vram").get("size")) or size_bytes(
        memory.get("total_vram")
    )
    errors = integer(_part(record, "ecc").get("total_uncorrectable_count"))
    return accelerator(
        "amd",
        gpu,
        word(asic.get("market_name")) or (same.name if same else None),
        address=address,
        uuid=word(asic.get("asic_serial")),
        memory_total_bytes=total_bytes,
        memory_free_bytes=size_bytes(memory.get("free_vram")),
        driver_version=word(_part(record, "driver").get("version"))
        or word(_part(record, "driver").get("driver_version"))
        or (same.driver_version if same else None),
        uncorrected_errors=errors,
    )


def _state(gpu: int, record: Record) -> CardState:
    asic, bus, power, heat, split = (
        _part(record, key) for key in ("asic", "bus", "power", "temperature", "partition")
    )
    limit = _part(record, "limit")
    pcie = _part(record, "pcie")
    return CardState(
        vendor="amd",
        index=gpu,
        pci_address=short_address(word(bus.get("bdf"))),
        architecture=word(asic.get("target_graphics_version")),
        firmware=word(_part(record, "vbios").get("version")),
        temperature_c=_first(heat, "hotspot", "junction", "edge"),
        power_w=_first(power, "socket_power", "average_socket_power", "current_socket_power"),
        power_limit_w=_first(limit, "socket_power", "max_power", "power_limit"),
        busy_ratio=ratio(_part(record, "usage").get("gfx_activity")),
        pcie_lanes=integer(pcie.get("width")),
        pcie_lanes_max=integer(bus.get("max_pcie_width")),
        partition=word(split.get("accelerator_partition", split.get("compute_partition"))),
        memory_partition=word(split.get("memory_partition")),
        corrected_errors=integer(_part(record, "ecc").get("total_correctable_count")),
    )


def _part(record: Record, key: str) -> Record:
    value = record.get(key)
    return value if isinstance(value, Mapping) else {}


def _first(part: Record, *keys: str) -> float | None:
    return next((found for key in keys if (found := number(part.get(key))) is not None), None)


def parse_rocm_smi(text: str, *, vendor: Vendor = "amd") -> VendorAnswer:
    """Cards of `rocm-smi … --json` (Hygon's hy-smi prints the same), or of the concise table.

    Keys differ in case and unit: `VRAM Total Memory (B)`, `vram Total Memory (MiB)`.
    """
    records: dict[str, dict[str, Any]] = {}
    for value in documents(text):
        for key, entry in value.items() if isinstance(value, dict) else ():
            if isinstance(entry, dict):
                lowered = {str(name).lower(): said for name, said in entry.items()}
                records.setdefault(key, {}).update(lowered)
    driver = word(records.pop("system", {}).get("driver version"))
    found = {int(key[4:]): said for key, said in records.items() if re.fullmatch(r"card\d+", key)}
    if not found:
        return _concise(text, vendor=vendor)
    return VendorAnswer(
        cards=tuple(_rocm_card(i, found[i], vendor=vendor, driver=driver) for i in sorted(found)),
        states=tuple(_rocm_state(i, found[i], vendor=vendor) for i in sorted(found)),
        errors=complaints(_outside(text)),
    )


def _rocm_card(index: int, said: Record, *, vendor: Vendor, driver: str | None) -> Accelerator:
    total_bytes, used_bytes = _memory_bytes(said, "total memory"), _memory_bytes(said, "used")
    return accelerator(
        vendor,
        index,
        word(said.get("card series")) or word(said.get("device name")),
        address=word(said.get("pci bus")),
        uuid=word(said.get("unique id")),
        memory_total_bytes=total_bytes,
        memory_free_bytes=free_bytes(total_bytes, used_bytes),
        driver_version=driver,
    )


def _memory_bytes(said: Record, what: str) -> int | None:
    key = next((k for k in said if k.startswith("vram total") and what in k), None)
    unit = re.search(r"\((\w+)\)", key or "")
    return size_bytes(said[key], unit=unit[1] if unit else "B") if key else None


def _rocm_state(index: int, said: Record, *, vendor: Vendor) -> CardState:
    def first(*starts: str) -> float | None:
        keys = (key for start in starts for key in said if key.startswith(start))
        return next((found for key in keys if (found := number(said[key])) is not None), None)

    busy = first("gpu use", "hcu use", "dcu use")
    return CardState(
        vendor=vendor,
        index=index,
        pci_address=short_address(word(said.get("pci bus"))),
        architecture=word(said.get("gfx version")),
        firmware=word(said.get("vbios version")),
        temperature_c=first("temperature (sensor junction)", "temperature (sensor edge)"),
        power_w=first("average graphics package power", "current socket graphics package power"),
        power_limit_w=first("max graphics package power"),
        busy_ratio=None if busy is None else busy / 100,
        partition=word(said.get("compute partition")),
        memory_partition=word(said.get("memory partition")),
    )


def _concise(text: str, *, vendor: Vendor) -> VendorAnswer:
    """The table that rocm-smi draws without options; names stand on a line of their own."""
    cards, states, lines = [], [], text.splitlines()
    for at, line in enumerate(lines):
        match = _ROW.match(line)
        if match is None:
            continue
        below = lines[at + 1].strip() if at + 1 < len(lines) else ""
        name = below if re.match(r"[A-Za-z]", below) else None
        index = int(match[1])
        cards.append(accelerator(vendor, index, name))
        states.append(
            CardState(
                vendor=vendor,
                index=index,
                temperature_c=number(match[2]),
                power_w=number(match[3]),
                power_limit_w=number(match[6]),
                partition=word(match[5]),
                memory_partition=word(match[4]),
                memory_used_ratio=ratio(match[7]),
                busy_ratio=ratio(match[8]),
            )
        )
    return VendorAnswer(cards=tuple(cards), states=tuple(states), errors=complaints(text))

"""Intel: xpu-smi's (or xpumcli's) JSON: the list of devices, then the details of each."""

import re
from collections.abc import Mapping
from typing import Any

from llmdeploy.facts.card import CardState, VendorAnswer
from llmdeploy.facts.device import Accelerator, short_address
from llmdeploy.facts.vendors.words import (
    accelerator,
    complaints,
    documents,
    integer,
    rows,
    size_bytes,
    word,
)

Record = Mapping[str, Any]
_TABLE_KEYS = {
    "Device Name": "device_name", "UUID": "uuid", "PCI BDF Address": "pci_bdf_address",
    "Driver Version": "driver_version", "Firmware Version": "gfx_firmware_version",
    "Memory Physical Size": "memory_physical_size", "ECC State": "memory_ecc_state",
    "PCIe Generation": "pcie_generation", "PCIe Max Link Width": "pcie_max_link_width",
}  # fmt: skip
"""Lines of the table and the JSON keys they are. Source: XPU Manager's guide of xpu-smi."""


def parse_xpu_smi(text: str) -> VendorAnswer:
    """Devices of `discovery -j` and `discovery -d ID -j`, or of the table of either."""
    found: dict[int, dict[str, Any]] = {}
    for value in documents(text):
        if not isinstance(value, dict):
            continue
        listed = value.get("device_list") or value.get("devices") or [value]
        for entry in listed if isinstance(listed, list) else ():
            index = integer(entry.get("device_id")) if isinstance(entry, dict) else None
            if index is not None:
                found.setdefault(index, {}).update(entry)
    if not found:
        found = _table(text)
    errors = tuple(str(v["error"])[:300] for v in documents(text) if _is_error(v))
    plain = "\n".join(ln for ln in text.splitlines() if not re.match(r'\s*["\[\]{}]', ln))
    return VendorAnswer(
        cards=tuple(_card(i, found[i]) for i in sorted(found)),
        states=tuple(_state(i, found[i]) for i in sorted(found)),
        errors=(*errors, *complaints(plain)),
    )


def _is_error(value: object) -> bool:
    return isinstance(value, dict) and "error" in value


def _table(text: str) -> dict[int, dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    index = -1
    for row in rows(text):
        if len(row) != 2:
            continue
        if row[0].isdigit():
            index = int(row[0])
        key, colon, value = row[1].partition(":")
        if index >= 0 and colon and key.strip() in _TABLE_KEYS:
            found.setdefault(index, {})[_TABLE_KEYS[key.strip()]] = value.strip()
    return found


def _card(index: int, said: Record) -> Accelerator:
    return accelerator(
        "intel",
        index,
        word(said.get("device_name")),
        address=word(said.get("pci_bdf_address")),
        uuid=word(said.get("uuid")),
        memory_total_bytes=size_bytes(said.get("memory_physical_size_byte"), unit="B")
        or size_bytes(said.get("memory_physical_size")),
        memory_free_bytes=size_bytes(said.get("memory_free_size_byte"), unit="B"),
        driver_version=word(said.get("driver_version")),
    )


def _state(index: int, said: Record) -> CardState:
    return CardState(
        vendor="intel",
        index=index,
        pci_address=short_address(word(said.get("pci_bdf_address"))),
        firmware=word(said.get("gfx_firmware_version")),
        pcie_generation_max=integer(said.get("pcie_generation")),
        pcie_lanes_max=integer(said.get("pcie_max_link_width")),
        ecc=word(said.get("memory_ecc_state")),
    )

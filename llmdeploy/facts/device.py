"""Accelerators: the PCI scan, and what pynvml or nvidia-smi answers, as typed values."""

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from llmdeploy.document import Document

Vendor = Literal[
    "nvidia", "amd", "ascend", "hygon", "moore-threads", "cambricon", "metax", "intel",
    "iluvatar", "kunlun", "thead", "enflame",
]  # fmt: skip
VENDORS: dict[str, Vendor] = dict(
    zip(
        [
            "10de",
            "1002",
            "19e5",
            "1d94",
            "1ed5",
            "cabc",
            "9999",
            "8086",
            "1e3e",
            "1d22",
            "1ded",
            "1e36",
        ],
        get_args(Vendor),
        strict=True,
    )
)
"""PCI vendor ids. Source: the PCI ID repository, 2026-05; T-Head and Enflame by their drivers."""
CLASSES = {"0300", "0302", "0380", "1200"}
"""VGA, 3D, other display, processing accelerator. Source: PCI code and ID assignment 1.16."""
NOT_FOR_MODELS = {("amd", "radeon")}
"""Display drivers of old cards."""
IN_PROCESSOR = {"1002:13c0", "1002:15bf", "1002:15c8", "1002:1636", "1002:1638", "1002:164e"}
"""Graphics inside AMD's desktop processors. Source: the PCI ID repository, 2026-05."""
INTEL_GRAPHICS = "00:02.0"
"""Where Intel's processors keep their own graphics; cards sit on other buses."""
NVIDIA_FIELDS = (
    "index", "name", "uuid", "pci.bus_id", "memory.total", "memory.free", "compute_cap",
    "driver_version", "ecc.errors.uncorrected.volatile.total",
)  # fmt: skip
"""What the probe asks nvidia-smi for, in this order."""
_ADDRESS = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])")
_ABSENT = {
    "",
    "N/A",
    "[N/A]",
    "[Not Supported]",
    "Not Supported",
    "[Unknown Error]",
    "[GPU is lost]",
}


class PciDevice(Document):
    """A card on the bus; it needs no driver to be seen."""

    address: str
    vendor: Vendor
    device: str
    """PCI device id, four hex digits."""
    driver: str | None
    """The kernel driver that has it."""


class Accelerator(Document):
    """A card that its driver answers for; None: the card or driver does not say."""

    vendor: Vendor
    index: int
    name: str
    uuid: str | None
    pci_address: str | None
    memory_total_bytes: int | None
    memory_free_bytes: int | None
    compute_capability: str | None
    driver_version: str | None
    uncorrected_errors: int | None
    """ECC errors since the driver was loaded; None: the card counts none."""


def parse_pci(text: str) -> tuple[PciDevice, ...]:
    """Accelerators among lines `address vendor device class driver`; a BMC's graphics is none."""
    found = []
    for line in text.splitlines():
        words = line.replace("0x", "").split()
        if len(words) != 5:
            continue
        address, vendor_id, device, pci_class, driver = words
        vendor = VENDORS.get(vendor_id.lower())
        if vendor is None or pci_class[:4] not in CLASSES or (vendor, driver) in NOT_FOR_MODELS:
            continue
        if f"{vendor_id}:{device}".lower() in IN_PROCESSOR:
            continue
        if vendor == "intel" and address.endswith(INTEL_GRAPHICS):
            continue
        found.append(
            PciDevice(
                address=address,
                vendor=vendor,
                device=device,
                driver=None if driver == "-" else driver,
            )
        )
    return tuple(found)


def parse_nvidia_csv(text: str) -> tuple[tuple[Accelerator, ...], tuple[str, ...]]:
    """Cards and error lines of `nvidia-smi --query-gpu=… --format=csv,noheader,nounits`.

    Memory is in MiB there. A line that is no row of NVIDIA_FIELDS is what the tool has to
    complain about: it writes its errors to stdout, between the rows of the cards that work.
    """
    cards, errors = [], []
    for line in text.splitlines():
        if not line.strip():
            continue
        cells = [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True))]
        if len(cells) != len(NVIDIA_FIELDS) or not cells[0].isdigit():
            errors.append(line.strip())
            continue
        index, name, uuid, address, total, free, capability, driver, ecc = (
            None if cell in _ABSENT else cell for cell in cells
        )
        cards.append(
            Accelerator(
                vendor="nvidia",
                index=int(index or 0),
                name=name or "NVIDIA card without a name",
                uuid=uuid,
                pci_address=short_address(address),
                memory_total_bytes=_mib(total),
                memory_free_bytes=_mib(free),
                compute_capability=capability,
                driver_version=driver,
                uncorrected_errors=int(ecc) if ecc and ecc.isdigit() else None,
            )
        )
    return tuple(cards), tuple(errors)


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """NVIDIA's loaded kernel module; None: not loaded."""

    nvidia_module_version: str | None
    nvidia_module_open: bool | None


def parse_module(text: str) -> Module:
    """Version and flavour in /proc/driver/nvidia/version, such as `550.127.05`."""
    match = re.search(r"Kernel Module(?: for \S+)?\s+([0-9.]+)", text)
    return Module(
        nvidia_module_version=match[1] if match else None,
        nvidia_module_open="Open Kernel Module" in text if match else None,
    )


def same_card(address: str | None, devices: Iterable[PciDevice]) -> bool:
    """Whether a card's address is one of those on the bus, whatever the length of its domain."""
    return short_address(address) in {short_address(device.address) for device in devices}


def short_address(address: str | None) -> str | None:
    """A PCI address with a domain of four digits, as sysfs writes it: `0000:4f:00.0`."""
    match = _ADDRESS.fullmatch(address.lower()) if address else None
    return f"{int(match[1] or '0', 16):04x}:{match[2]}" if match else None


def _mib(cell: str | None) -> int | None:
    return int(cell) * 2**20 if cell and cell.isdigit() else None

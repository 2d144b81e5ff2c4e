"""NVIDIA: what nvidia-smi says beside the cards: state, processes, links, topology, slices."""

import csv
import re
from collections.abc import Iterator, Mapping

from llmdeploy.facts.card import CardProcess, CardState, Link, PeerAccess, Slice, Topology
from llmdeploy.facts.device import Vendor, short_address
from llmdeploy.facts.vendors.words import integer, number, program, size_bytes, word, yes

THROTTLES = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")
"""Power capping is normal work; these are not. Source: check catalogue `gpu.throttle`."""
_UNDERLINE = re.compile(r"\x1b\[[0-9;]*m")
"""The header of a matrix is underlined even in a pipe."""
_MIG = re.compile(r"^\s+MIG (\S+)\s+Device\s+\d+: \(UUID: (MIG-[^)]+)\)")


def parse_states(text: str) -> tuple[CardState, ...]:
    """States from a line `#fields a,b,…` and the CSV rows under it.

    The probe leaves out what this version of nvidia-smi does not know, so the fields differ.
    """
    return tuple(_state(row) for row in _table(text))


def _table(text: str) -> Iterator[Mapping[str, str]]:
    fields: list[str] = []
    for line in text.splitlines():
        if line.startswith("#fields "):
            fields = line.removeprefix("#fields ").split(",")
            continue
        if not fields or not line.strip():
            continue
        cells = [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True))]
        if len(cells) == len(fields):
            yield dict(zip(fields, cells, strict=True))


def _state(row: Mapping[str, str]) -> CardState:
    known = [name for name in THROTTLES if yes(_reason(row, name)) is not None]
    busy = number(row.get("utilization.gpu"))
    margin_c = number(row.get("temperature.gpu.tlimit"))
    return CardState(
        vendor="nvidia",
        index=integer(row.get("index")) or 0,
        pci_address=short_address(word(row.get("pci.bus_id"))),
        firmware=word(row.get("vbios_version")),
        temperature_c=number(row.get("temperature.gpu")),
        temperature_margin_c=margin_c if margin_c and margin_c > 0 else None,
        power_w=number(row.get("power.draw")),
        power_limit_w=number(row.get("power.limit")),
        power_default_w=number(row.get("power.default_limit")),
        busy_ratio=None if busy is None else busy / 100,
        throttles=tuple(name for name in known if yes(_reason(row, name))) if known else None,
        pcie_generation=integer(row.get("pcie.link.gen.current")),
        pcie_generation_max=integer(row.get("pcie.link.gen.max")),
        pcie_lanes=integer(row.get("pcie.link.width.current")),
        pcie_lanes_max=integer(row.get("pcie.link.width.max")),
        persistent=yes(row.get("persistence_mode")),
        compute_mode=word(row.get("compute_mode")),
        partition=word(row.get("mig.mode.current")),
        partition_pending=word(row.get("mig.mode.pending")),
        ecc=word(row.get("ecc.mode.current")),
        ecc_pending=word(row.get("ecc.mode.pending")),
        sram_errors=integer(row.get("ecc.errors.uncorrected.aggregate.sram")),
        corrected_errors=integer(row.get("ecc.errors.corrected.volatile.total")),
        pages_double=integer(row.get("retired_pages.dbe")),
        pages_single=integer(row.get("retired_pages.sbe")),
        pages_pending=yes(row.get("retired_pages.pending")),
        fabric=word(row.get("fabric.state")),
    )


def _reason(row: Mapping[str, str], name: str) -> str | None:
    """Driver 535 renamed the throttle reasons to event reasons."""
    return row.get(f"clocks_event_reasons.{name}", row.get(f"clocks_throttle_reasons.{name}"))


def add_rows(states: tuple[CardState, ...], text: str) -> tuple[CardState, ...]:
    """The states with the rows of `--query-remapped-rows=gpu_bus_id,…` put in by address."""
    found = {short_address(row.get("gpu_bus_id")): row for row in _table(text)}
    return tuple(
        state
        if (row := found.get(state.pci_address)) is None
        else state.model_copy(
            update={
                "rows_pending": yes(row.get("remapped_rows.pending")),
                "rows_failed": yes(row.get("remapped_rows.failure")),
                "rows_replaced": integer(row.get("remapped_rows.uncorrectable")),
            }
        )
        for state in states
    )


def parse_processes(text: str) -> tuple[CardProcess, ...]:
    """Processes of `--query-compute-apps=gpu_uuid,pid,process_name,used_memory`."""
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(", ")]
        if len(cells) < 4 or not cells[1].isdigit():
            continue
        found.append(
            CardProcess(
                vendor="nvidia",
                card=cells[0],
                pid=int(cells[1]),
                name=program(" ".join(cells[2:-1])),
                memory_bytes=size_bytes(cells[-1]),
            )
        )
    return tuple(found)


def parse_slices(text: str) -> tuple[Slice, ...]:
    """MIG devices of `nvidia-smi -L`, each with the index of its card."""
    found, index = [], 0
    for line in text.splitlines():
        if match := re.match(r"GPU (\d+):", line):
            index = int(match[1])
        elif match := _MIG.match(line):
            found.append(Slice(vendor="nvidia", index=index, profile=match[1], uuid=match[2]))
    return tuple(found)


def parse_topology(text: str, *, vendor: Vendor = "nvidia") -> Topology | None:
    """The matrix of `topo -m`, cards only; tabs or spaces, with or without NICs and NUMA columns.

    None where the tool draws no matrix (one card, or an error).
    """
    text = _UNDERLINE.sub("", text)
    header = next((line for line in text.splitlines() if re.search(r"\bGPU0\b", line)), None)
    if header is None:
        return None
    names = re.findall(r"\b(?:GPU\d+|NIC\d+|mlx5_\w+)\b", header)
    cards = [name for name in names if name.startswith("GPU")]
    links, numa, cpus = [], [], []
    for line in text.splitlines():
        words = line.split()
        if len(words) <= len(names) or words[0] not in cards or line == header:
            continue
        links.append(tuple(words[1 : len(cards) + 1]))
        rest = words[len(names) + 1 :]
        near = next((w for w in rest if re.fullmatch(r"[\d,-]*-[\d,-]*|\d+(,\d+)+", w)), None)
        after = rest[rest.index(near) + 1 :] if near else []
        cpus.append(near)
        numa.append(int(after[0]) if after and after[0].isdigit() else None)
    if len(links) != len(cards):
        return None
    return Topology(
        vendor=vendor,
        cards=tuple(int(name[3:]) for name in cards),
        links=tuple(links),
        numa=tuple(numa),
        cpus=tuple(cpus),
    )


def parse_links(text: str) -> tuple[Link, ...]:
    """Every NVLink of `nvlink -s`; an inactive one has no rate."""
    found, index = [], 0
    for line in text.splitlines():
        if match := re.match(r"GPU (\d+):", line):
            index = int(match[1])
        elif match := re.match(r"\s+Link (\d+): (.+)", line):
            rate = re.fullmatch(r"([\d.]+) GB/s", match[2].strip())
            per_s = float(rate[1]) * 1e9 if rate else None
            found.append(Link(index=index, link=int(match[1]), bytes_per_s=per_s))
    return tuple(found)


def parse_peers(text: str) -> PeerAccess | None:
    """The matrix of `topo -p2p r`; None where none is drawn."""
    text = _UNDERLINE.sub("", text)
    rows = [line.split() for line in text.splitlines() if re.match(r"\s*GPU\d+\s+\S", line)]
    rows = [row for row in rows if len(row) > 1 and not row[1].startswith("GPU")]
    if not rows or any(len(row) != len(rows) + 1 for row in rows):
        return None
    return PeerAccess(
        cards=tuple(int(row[0][3:]) for row in rows),
        words=tuple(tuple(row[1:]) for row in rows),
    )

"""Ascend: npu-smi's table of 310, 310P, 910B and A3, and its processes."""

import re

from llmdeploy.facts.card import CardProcess, CardState, VendorAnswer
from llmdeploy.facts.device import Accelerator
from llmdeploy.facts.vendors.words import (
    accelerator,
    complaints,
    free_bytes,
    integer,
    number,
    program,
    ratio,
    rows,
    size_bytes,
    word,
)

_PAIR = re.compile(r"(\d+)\s*/\s*(\d+)")


def parse_npu_smi(text: str) -> VendorAnswer:
    """Chips of `npu-smi info`, numbered as the runtime does, in the table's order.

    Two rows a chip: `NPU Name | Health | Power Temp Hugepages`, then
    `Chip [Device or Phy-ID] | Bus-Id | AICore Memory [HBM]`. HBM counts where there is some. A
    310P card has two chips on one address; an A3 module has two with an address each.
    """
    version = re.search(r"^\|\s*npu-smi\s+\S+\s+Version:\s*(\S+)", text, re.MULTILINE)
    driver = version[1] if version else None
    cards: list[Accelerator] = []
    states: list[CardState] = []
    processes: list[CardProcess] = []
    first: tuple[str, ...] | None = None
    for row in rows(text):
        if len(row) == 4 and row[1].isdigit():
            processes.append(_process(row))
        elif len(row) != 3 or row[0].split()[:1] in (["NPU"], ["Chip"]):
            first = None
        elif first is None:
            first = row
        else:
            index = len(cards)
            cards.append(_card(index, first, row, driver=driver))
            states.append(_state(index, first, row))
            first = None
    return VendorAnswer(
        cards=tuple(cards), states=tuple(states), processes=tuple(processes),
        errors=complaints(text),
    )  # fmt: skip


def _card(
    index: int, first: tuple[str, ...], second: tuple[str, ...], *, driver: str | None
) -> Accelerator:
    name = word(first[0].partition(" ")[2])
    used_bytes, total_bytes = _memory_bytes(second[2])
    return accelerator(
        "ascend",
        index,
        name if not name or name.startswith("Ascend") else f"Ascend {name}",
        address=word(second[1]),
        memory_total_bytes=total_bytes,
        memory_free_bytes=free_bytes(total_bytes, used_bytes),
        driver_version=driver,
    )


def _memory_bytes(cell: str) -> tuple[int | None, int | None]:
    """Used and total of the last pair that has a total: HBM stands after the chip's own memory."""
    pairs = [(used, total) for used, total in _PAIR.findall(cell) if int(total) > 0]
    if not pairs:
        return None, None
    return size_bytes(pairs[-1][0]), size_bytes(pairs[-1][1])


def _state(index: int, first: tuple[str, ...], second: tuple[str, ...]) -> CardState:
    power, heat, *_ = [*first[2].split(), "", ""]
    used = second[2].split()
    return CardState(
        vendor="ascend",
        index=index,
        pci_address=accelerator("ascend", index, None, address=word(second[1])).pci_address,
        health=word(first[1]),
        power_w=number(power),
        temperature_c=number(heat),
        busy_ratio=ratio(used[0]) if used else None,
    )


def _process(row: tuple[str, ...]) -> CardProcess:
    place = row[0].split()
    return CardProcess(
        vendor="ascend",
        card=" chip ".join(place),
        pid=integer(row[1]) or 0,
        name=program(row[2]),
        memory_bytes=size_bytes(row[3]),
    )

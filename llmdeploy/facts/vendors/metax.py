"""MetaX: mx-smi's table and list (`-L`); ht-smi is of the same family."""

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

_LISTED = re.compile(
    r"^GPU#(\d+)\s+(\S+)\s+(\S+)\s+(Available|Not Available)\s*(?:\(([^)]*)\))?", re.MULTILINE
)


def parse_mx_smi(text: str) -> VendorAnswer:
    """Cards of the table, with uuids and faulty cards of the list, which may follow in the text.

    A card that the list calls `Not Available` is no card of the table; its reason is an error.
    """
    driver = re.search(r"Kernel Mode Driver Version:\s*(\S+)", text)
    firmware = re.search(r"BIOS Version:\s*(\S+)", text)
    listed = {int(m[1]): m for m in _LISTED.finditer(text)}
    cards, states, processes = [], [], []
    upper: tuple[str, ...] | None = None
    for row in rows(text):
        if process := _process(row):
            processes.append(process)
        elif len(row) < 3 or row[0].startswith(("GPU ", "Board ", "Temp", "Pwr")):
            upper = None
        elif upper is None and re.match(r"\d+\s+\D", row[0]):
            upper = row
        elif upper is not None:
            index = int(upper[0].split()[0])
            uuid = re.search(r"UUID: (\S+)", listed[index][5] or "") if index in listed else None
            card = _card(index, upper, row, driver=driver[1] if driver else None)
            cards.append(card.model_copy(update={"uuid": uuid[1] if uuid else None}))
            states.append(_state(index, upper, row, firmware=firmware[1] if firmware else None))
            upper = None
    shown = {card.index for card in cards}
    cards += [_listed_card(m) for i, m in listed.items() if i not in shown and m[4] == "Available"]
    faults = tuple(f"GPU#{m[1]} {m[2]}: {m[4]} ({m[5]})" for m in listed.values() if _faulty(m))
    unsaid = "\n".join(line for line in text.splitlines() if not line.startswith("GPU#"))
    return VendorAnswer(
        cards=tuple(cards), states=tuple(states), processes=tuple(processes),
        errors=(*faults, *complaints(unsaid)),
    )  # fmt: skip


def _faulty(match: re.Match[str]) -> bool:
    return match[4] != "Available"


def _listed_card(match: re.Match[str]) -> Accelerator:
    uuid = re.search(r"UUID: (\S+)", match[5] or "")
    return accelerator(
        "metax", int(match[1]), _name(match[2]), address=match[3], uuid=uuid[1] if uuid else None
    )


def _name(model: str) -> str:
    return model if model.startswith(("MetaX", "Mars")) else f"MetaX {model.removeprefix('MX')}"


def _card(
    index: int, upper: tuple[str, ...], lower: tuple[str, ...], *, driver: str | None
) -> Accelerator:
    used_bytes, total_bytes = pair_bytes(next((c for c in lower if "MiB" in c), ""))
    return accelerator(
        "metax",
        index,
        _name(upper[0].split(maxsplit=1)[1]),
        address=next((cell for cell in upper if short_address(cell)), None),
        memory_total_bytes=total_bytes,
        memory_free_bytes=free_bytes(total_bytes, used_bytes),
        driver_version=driver,
    )


def _state(
    index: int, upper: tuple[str, ...], lower: tuple[str, ...], *, firmware: str | None
) -> CardState:
    text, busy = " ".join(lower), upper[-1].split()
    power = re.search(r"(\d+)W / (\d+)W", text)
    heat = re.search(r"(\d+)C\b", text)
    return CardState(
        vendor="metax",
        index=index,
        pci_address=next((a for cell in upper if (a := short_address(cell))), None),
        health=word(lower[-1]),
        firmware=firmware,
        temperature_c=number(heat[1]) if heat else None,
        power_w=number(power[1]) if power else None,
        power_limit_w=number(power[2]) if power else None,
        busy_ratio=ratio(busy[0]) if busy else None,
        partition=word(busy[1]) if len(busy) > 1 else None,
    )


def _process(row: tuple[str, ...]) -> CardProcess | None:
    """`GPU PID Process-Name Memory(MiB)` in one cell."""
    match = re.fullmatch(r"(\d+)\s+(\d+)\s+(\S.*?)\s+(\d+)", row[0]) if len(row) == 1 else None
    if match is None:
        return None
    return CardProcess(
        vendor="metax",
        card=match[1],
        pid=integer(match[2]) or 0,
        name=program(match[3]),
        memory_bytes=size_bytes(match[4]),
    )

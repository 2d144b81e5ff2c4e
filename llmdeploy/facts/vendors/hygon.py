"""Hygon: hy-smi's JSON, which is rocm-smi's, and its table in the older and the newer shape."""

import re

from llmdeploy.facts.card import CardState, VendorAnswer
from llmdeploy.facts.vendors.amd import parse_rocm_smi
from llmdeploy.facts.vendors.words import accelerator, complaints, number, ratio, word


def parse_hy_smi(text: str) -> VendorAnswer:
    """Cards of `hy-smi … --json` with the state from the table; the table alone where it has none.

    The table names no model and gives memory in per cent only. Mode is `Normal`, or `MIG` where
    the card is cut up.
    """
    answer, drawn = parse_rocm_smi(text, vendor="hygon"), _table(text)
    if not answer.cards:
        driver = re.search(r"Driver Version\s*:\s*(\S+)", text)
        version = driver[1] if driver else None
        cards = tuple(
            accelerator("hygon", state.index, "Hygon DCU", driver_version=version)
            for state in drawn
        )
        return VendorAnswer(cards=cards, states=drawn, errors=complaints(text))
    seen = {state.index: state for state in drawn}
    states = tuple(
        state.model_copy(
            update={
                "partition": seen[state.index].partition,
                "power_limit_w": seen[state.index].power_limit_w,
            }
        )
        if state.index in seen
        else state
        for state in answer.states
    )
    return VendorAnswer(cards=answer.cards, states=states, errors=answer.errors)


def _table(text: str) -> tuple[CardState, ...]:
    header: list[str] = []
    found = []
    for line in text.splitlines():
        words = line.split()
        if words[:1] in (["HCU"], ["DCU"]) and "Temp" in words:
            header = words
        elif header and len(words) == len(header) and words[0].isdigit():
            row = dict(zip(header, words, strict=True))
            found.append(
                CardState(
                    vendor="hygon",
                    index=int(words[0]),
                    temperature_c=number(row.get("Temp")),
                    power_w=number(row.get("AvgPwr")),
                    power_limit_w=number(row.get("PwrCap")),
                    memory_used_ratio=ratio(row.get("VRAM%")),
                    busy_ratio=ratio(row.get(f"{header[0]}%")),
                    partition=word(row.get("Mode")),
                )
            )
    return tuple(found)

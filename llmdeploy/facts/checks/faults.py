"""Checks of faults of NVIDIA cards: in the kernel's log, and in the counters of their memory."""

from llmdeploy.facts.check import Check, Outcome, Question, by_need, passed, skipped, warned
from llmdeploy.facts.checks.words import each, events, listed, states, telling
from llmdeploy.facts.finding import Remedy

XID_RESET = frozenset({
    46, 48, 62, 63, 64, 74, 92, 95, 109, 110, 136, 140, 143, 144, 145, 146, 147, 148, 149, 150,
    155, 156, 158,
})  # fmt: skip
"""Xids after which a card must be reset. Source: NVIDIA XID catalogue r570, check catalogue
`gpu.xid.window`; 79 and 154, 119 and 120 have checks of their own."""
XID_HARDWARE = frozenset({54, 64, 74})
"""Auxiliary power, no spare row, NVLink: look at the machine. Source: the same."""
XID_ELSEWHERE = frozenset({79, 119, 120, 154})
SRAM_ERRORS = 4
"""More on-chip errors over a card's life, and it should be replaced. Source: check catalogue
`gpu.ecc.sram.aggregate`."""
ROWS = 512
PAGES_SINGLE = 60
"""Of 64. Source: check catalogue `gpu.retired.pages`."""
RESET = "nvidia-smi --gpu-reset -i INDEX with nothing on it, or reboot"


def bus(question: Question) -> Outcome:
    needed = "no card fallen off the bus in the last day"
    found = events(question, needed, "bus_loss", "xid")
    if isinstance(found, Outcome):
        return found if question.has_accelerators else skipped("no accelerator", needed)
    lost = [e for e in found if e.kind == "bus_loss" or e.code == 79]
    if not lost:
        return (
            passed("none", needed)
            if question.has_accelerators
            else skipped("no accelerator", needed)
        )
    where = listed(sorted({event.address or "a card" for event in lost}))
    fix = "check power cables, riser and slot, then reboot; replace the card if it comes back"
    return by_need(question, f"{where} fell off the bus", needed, fix=fix)


def xids(question: Question) -> Outcome:
    needed = "no Xid that asks for a reset in the last day"
    if not question.cards_of("nvidia"):
        return skipped("no NVIDIA card answers", needed)
    found = events(question, needed, "xid")
    if isinstance(found, Outcome):
        return found
    seen = [e for e in found if e.code is not None and e.code not in XID_ELSEWHERE]
    bad = [e for e in seen if e.code in XID_RESET or e.code in XID_HARDWARE]
    words = listed(sorted({f"Xid {e.code} on {e.address}" for e in bad or seen}))
    if bad:
        hard = any(event.code in XID_HARDWARE for event in bad)
        remedy = Remedy.HARDWARE if hard else Remedy.REBOOT
        fix = "look at power, NVLink bridge and slot" if hard else RESET
        return by_need(question, words, needed, fix=fix, remedy=remedy)
    if seen:
        fix = "look at what ran then: these come from the program, not from the card"
        return warned(words, needed, fix=fix, remedy=Remedy.CONFIG)
    return passed("none", needed)


def recovery(question: Question) -> Outcome:
    needed = "no recovery action that the driver asks for (Xid 154)"
    if not question.cards_of("nvidia"):
        return skipped("no NVIDIA card answers", needed)
    found = events(question, needed, "xid")
    if isinstance(found, Outcome):
        return found
    asked = [e.text for e in found if e.code == 154 and "(None)" not in e.text]
    if not asked:
        return passed("none", needed)
    return by_need(question, asked[-1], needed, fix="do what the message says before the launch")


def gsp(question: Question) -> Outcome:
    needed = "a card processor (GSP) that answers: no Xid 119 or 120"
    if not question.cards_of("nvidia"):
        return skipped("no NVIDIA card answers", needed)
    found = events(question, needed, "xid")
    if isinstance(found, Outcome):
        return found
    bad = [f"Xid {e.code} on {e.address}" for e in found if e.code in (119, 120)]
    if not bad:
        return passed("none", needed)
    return by_need(question, listed(bad), needed, fix=f"{RESET}; then update the driver")


def ecc_mode(question: Question) -> Outcome:
    needed = "ECC as it was set: current and pending mode equal"
    found = states(question, needed, "nvidia")
    if isinstance(found, Outcome):
        return found
    if not any(state.ecc for state in found):
        return skipped("no card has ECC", needed)
    bad = each(
        found,
        lambda s: s.ecc_pending and s.ecc != s.ecc_pending,
        lambda s: f"{s.ecc}, {s.ecc_pending} after a reset",
    )
    return warned(bad, needed, fix=RESET) if bad else passed("equal", needed)


def sram(question: Question) -> Outcome:
    needed = f"at most {SRAM_ERRORS} on-chip errors over a card's life"
    found = telling(question, needed, "nvidia", "sram_errors", untold="no card counts them")
    if isinstance(found, Outcome):
        return found
    bad = each(found, lambda s: (s.sram_errors or 0) > SRAM_ERRORS, lambda s: f"{s.sram_errors}")
    if bad:
        return warned(bad, needed, fix="have the card replaced under its warranty")
    return passed("at most that", needed)


def rows_pending(question: Question) -> Outcome:
    needed = "no memory row that waits for a reset"
    found = telling(question, needed, "nvidia", "rows_pending", untold="no card replaces rows")
    if isinstance(found, Outcome):
        return found
    bad = each(found, lambda s: s.rows_pending, lambda s: "rows wait for a reset")
    return warned(bad, needed, fix=RESET) if bad else passed("none", needed)


def rows_failed(question: Question) -> Outcome:
    needed = f"spare memory rows: no failed replacement, at most {ROWS} replaced"
    found = telling(question, needed, "nvidia", "rows_failed", untold="no card replaces rows")
    if isinstance(found, Outcome):
        return found
    bad = each(
        found,
        lambda s: s.rows_failed or (s.rows_replaced or 0) > ROWS,
        lambda s: "a row could not be replaced" if s.rows_failed else f"{s.rows_replaced} rows",
    )
    if bad:
        return by_need(question, bad, needed, fix="replace the card: no spare row is left")
    return passed("none failed", needed)


def pages(question: Question) -> Outcome:
    needed = f"no page with a double-bit error, fewer than {PAGES_SINGLE} retired"
    found = telling(question, needed, "nvidia", "pages_double", untold="no card retires pages")
    if isinstance(found, Outcome):
        return found
    worn = each(
        found,
        lambda s: s.pages_double or (s.pages_single or 0) >= PAGES_SINGLE,
        lambda s: f"{s.pages_double or 0} double-bit, {s.pages_single or 0} single-bit pages",
    )
    if worn:
        return warned(worn, needed, fix="replace the card", remedy=Remedy.HARDWARE)
    waiting = each(found, lambda s: s.pages_pending, lambda s: "pages wait for a reboot")
    return warned(waiting, needed, fix="reboot") if waiting else passed("none", needed)


def inforom(question: Question) -> Outcome:
    needed = "an infoROM that can be read"
    if not question.cards_of("nvidia"):
        return skipped("no NVIDIA card answers", needed)
    if question.facts.accelerator_errors is None:
        return question.unknown("accelerator_errors", needed)
    bad = [e for e in question.facts.accelerator_errors if "infoROM" in e]
    if not bad:
        return passed("no complaint", needed)
    return warned(bad[0], needed, fix="have the card flashed or replaced: its counters are lost")


_STATE, _LOG = ("accelerators", "card_states"), ("kernel_events",)
CHECKS = (
    Check("gpu.bus.fallen_off", "gpu", "cards on the bus", bus, _LOG, remedy=Remedy.HARDWARE),
    Check("gpu.xid.window", "gpu", "no driver fault", xids, _LOG, remedy=Remedy.REBOOT),
    Check("gpu.xid.154", "gpu", "no asked recovery", recovery, _LOG, remedy=Remedy.REBOOT),
    Check("drv.gsp", "driver", "a card processor that answers", gsp, _LOG, remedy=Remedy.REBOOT),
    Check("gpu.ecc.pending", "gpu", "ECC as set", ecc_mode, _STATE, remedy=Remedy.REBOOT),
    Check("gpu.ecc.sram.aggregate", "gpu", "few chip errors", sram, _STATE, remedy=Remedy.HARDWARE),
    Check("gpu.remap.pending", "gpu", "no row waits", rows_pending, _STATE, remedy=Remedy.REBOOT),
    Check("gpu.remap.failure", "gpu", "spare rows", rows_failed, _STATE, remedy=Remedy.HARDWARE),
    Check("gpu.retired.pages", "gpu", "few retired pages", pages, _STATE, remedy=Remedy.REBOOT),
    Check(
        "gpu.inforom",
        "gpu",
        "a readable infoROM",
        inforom,
        ("accelerator_errors",),
        remedy=Remedy.HARDWARE,
    ),
)

"""Checks of cards at work: heat, power, links, modes, and who else is on them."""

from llmdeploy.facts.card import CardState
from llmdeploy.facts.check import Check, Outcome, Question, by_need, passed, skipped, warned
from llmdeploy.facts.checks.faults import RESET
from llmdeploy.facts.checks.words import each, listed, states, telling
from llmdeploy.facts.finding import Remedy

MARGIN_C = 15.0
HOT_C = 75.0
"""Idle cards above this have too little air, where the card tells no margin. Source: check
catalogue `gpu.temp.margin`: 15 K below the slowdown of 90 °C."""
LIMIT_RATIO = 0.7
IDLE_RATIO = 0.1
FOREIGN_BYTES = 2**30
"""A process that holds less leaves room for the engine."""


def temperature(question: Question) -> Outcome:
    needed = f"idle cards {MARGIN_C:g} °C below the point where they slow down"
    found = states(question, needed)
    if isinstance(found, Outcome):
        return found
    if all(state.temperature_c is None for state in found):
        return skipped("no card tells its temperature", needed)
    bad = each(found, _hot, lambda s: f"{s.temperature_c:.0f} °C with nothing to do")
    if bad:
        fix = "clear the air path, raise the fans, or lower the power limit"
        return warned(bad, needed, fix=fix)
    hottest = max(state.temperature_c or 0 for state in found)
    return passed(f"{hottest:.0f} °C at most", needed)


def _hot(state: CardState) -> bool:
    if state.temperature_c is None or (state.busy_ratio or 0) > IDLE_RATIO:
        return False
    if state.temperature_margin_c is not None:
        return state.temperature_margin_c < MARGIN_C
    return state.temperature_c > HOT_C


def throttle(question: Question) -> Outcome:
    needed = "no hardware slowdown"
    found = telling(question, needed, "nvidia", "throttles", untold="no card tells it")
    if isinstance(found, Outcome):
        return found
    bad = each(found, lambda s: s.throttles, lambda s: " and ".join(s.throttles or ()))
    if bad:
        fix = "check power supply, power cables and cooling of these cards"
        return warned(bad, needed, fix=fix)
    return passed("none", needed)


def power(question: Question) -> Outcome:
    needed = f"one power limit on equal cards, at least {LIMIT_RATIO:.0%} of their default"
    found = states(question, needed)
    if isinstance(found, Outcome):
        return found
    limits = {state.power_limit_w for state in found if state.power_limit_w}
    if not limits:
        return skipped("no card tells its power limit", needed)
    names = {card.name for card in question.facts.accelerators or ()}
    low = each(
        found,
        lambda s: (s.power_limit_w or 0) < LIMIT_RATIO * (s.power_default_w or 0),
        lambda s: f"{s.power_limit_w:g} W of {s.power_default_w:g} W",
    )
    fix = f"nvidia-smi -pl {max(limits):g} on all cards: the slowest one holds all others"
    if low:
        return warned(low, needed, fix=fix)
    if len(limits) > 1 and len(names) == 1:
        return warned(f"limits of {', '.join(f'{w:g} W' for w in sorted(limits))}", needed, fix=fix)
    return passed(", ".join(f"{watts:g} W" for watts in sorted(limits)), needed)


def persistence(question: Question) -> Outcome:
    needed = "a driver that stays ready: persistence mode or nvidia-persistenced"
    found = states(question, needed, "nvidia")
    if isinstance(found, Outcome):
        return found
    if "nvidia-persistenced" in (question.facts.active_services or ()):
        return passed("nvidia-persistenced runs", needed)
    off = each(found, lambda s: s.persistent is False, lambda s: "off")
    if off:
        return warned(off, needed, fix="systemctl enable --now nvidia-persistenced")
    return passed("on", needed)


def compute_mode(question: Question) -> Outcome:
    needed = "compute mode Default: an engine's processes share a card while they start"
    found = states(question, needed, "nvidia", "cambricon", "kunlun", "iluvatar")
    if isinstance(found, Outcome):
        return found
    bad = each(
        found, lambda s: s.compute_mode not in (None, "Default"), lambda s: str(s.compute_mode)
    )
    return warned(bad, needed, fix="nvidia-smi -c 0") if bad else passed("Default", needed)


def slices(question: Question) -> Outcome:
    needed = "whole cards: no MIG, and none that comes with the next reset"
    found = states(question, needed, "nvidia", "hygon")
    if isinstance(found, Outcome):
        return found
    pending = each(
        found,
        lambda s: s.partition_pending and s.partition != s.partition_pending,
        lambda s: f"MIG {s.partition}, {s.partition_pending} after a reset",
    )
    if pending:
        return by_need(question, pending, needed, fix=RESET, remedy=Remedy.REBOOT)
    cut = each(found, lambda s: s.partition in ("Enabled", "MIG"), lambda s: "MIG is on")
    if not cut:
        return passed("no MIG", needed)
    fix = "nvidia-smi -mig 0 with nothing on the card, or plan for its slices"
    shared = question.tensor_parallel > 1
    return by_need(question, cut, needed, fix=fix) if shared else warned(cut, needed, fix=fix)


def foreign(question: Question) -> Outcome:
    needed = "no process of others on the cards"
    facts = question.facts
    if facts.accelerators is None:
        return question.unknown("accelerators", needed)
    if not facts.accelerators:
        return skipped("no card answers", needed)
    if facts.card_processes is None:
        return question.unknown("card_processes", needed)
    ours = {
        w.split("(pid ")[1].rstrip(")") for w in facts.engine_processes or () if w[:4] == "ours"
    }
    others = [p for p in facts.card_processes if str(p.pid) not in ours]
    if not others:
        return passed(f"{len(facts.card_processes)} processes, all of this service", needed)
    found = listed([f"{p.name} (pid {p.pid}) on {p.card}" for p in others])
    fix = (
        f"see whose they are: ps -o user,pid,args -p {others[0].pid}; stop them or use other cards"
    )
    if any(p.memory_bytes is None or p.memory_bytes >= FOREIGN_BYTES for p in others):
        return by_need(question, found, needed, fix=fix)
    return warned(found, needed, fix=fix)


def lanes(question: Question) -> Outcome:
    needed = "all PCIe lanes, and the full generation under load"
    found = states(question, needed)
    if isinstance(found, Outcome):
        return found
    if all(s.pcie_lanes is None or s.pcie_lanes_max is None for s in found):
        return skipped("no card tells its link", needed)
    narrow = each(found, _narrow, lambda s: f"x{s.pcie_lanes} of x{s.pcie_lanes_max}")
    slow = each(found, _slow, lambda s: f"generation {s.pcie_generation} under load")
    if narrow or slow:
        fix = "seat the card again, see the slot's lanes in the manual and bifurcation in the BIOS"
        return warned(narrow or slow, needed, fix=fix)
    return passed("all lanes", needed)


def _narrow(state: CardState) -> bool:
    return bool(
        state.pcie_lanes and state.pcie_lanes_max and state.pcie_lanes < state.pcie_lanes_max
    )


def _slow(state: CardState) -> bool:
    """An idle card saves power on its link: only a busy one must run at full speed."""
    both = state.pcie_generation and state.pcie_generation_max
    busy = (state.busy_ratio or 0) > 0.5
    return bool(both and busy and (state.pcie_generation or 0) < (state.pcie_generation_max or 0))


def alike(question: Question) -> Outcome:
    needed = "cards of one model and memory size in a tensor-parallel group"
    cards = question.facts.accelerators
    if cards is None:
        return question.unknown("accelerators", needed)
    if len(cards) < 2:
        return skipped("fewer than two cards", needed)
    kinds = sorted({f"{c.name} {(c.memory_total_bytes or 0) / 2**30:.0f} GiB" for c in cards})
    if len(kinds) == 1:
        return passed(f"{len(cards)} x {kinds[0]}", needed)
    fix = "let each group use cards of one model (CUDA_VISIBLE_DEVICES by the plan)"
    if question.tensor_parallel > 1:
        return by_need(question, ", ".join(kinds), needed, fix=fix)
    return warned(", ".join(kinds), needed, fix=fix)


_STATE = ("accelerators", "card_states")
CHECKS = (
    Check("gpu.temp.margin", "gpu", "cool cards", temperature, _STATE, remedy=Remedy.HARDWARE),
    Check("gpu.throttle", "gpu", "no slowdown", throttle, _STATE, remedy=Remedy.HARDWARE),
    Check("gpu.power.limit", "gpu", "equal power limits", power, _STATE),
    Check("gpu.persistence", "gpu", "a ready driver", persistence, (*_STATE, "active_services")),
    Check("gpu.compute.mode", "gpu", "shared cards", compute_mode, _STATE),
    Check("gpu.mig.mode", "gpu", "whole cards", slices, _STATE),
    Check(
        "gpu.foreign.processes",
        "gpu",
        "cards of its own",
        foreign,
        ("accelerators", "card_processes", "engine_processes"),
    ),
    Check("gpu.pcie.link", "gpu", "all lanes", lanes, _STATE, remedy=Remedy.HARDWARE),
    Check("gpu.model.homogeneous", "gpu", "equal cards", alike, ("accelerators",)),
)

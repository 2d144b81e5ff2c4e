"""Facts of accelerators from the sections of all vendors' tools."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from llmdeploy.facts import device, runtime
from llmdeploy.facts.card import CardState, VendorAnswer
from llmdeploy.facts.device import Accelerator
from llmdeploy.facts.reading import Reading, parsed, unusable
from llmdeploy.facts.section import Section, Unknown
from llmdeploy.facts.vendors import (
    amd,
    ascend,
    cambricon,
    drawn,
    hygon,
    intel,
    metax,
    moore_threads,
    nvidia,
)

NOT_CALLED = 125
"""Exit code of a call that the probe left out because the tool hung before."""
NOT_THERE = "the probe ended before it was asked"


@dataclass(frozen=True, slots=True)
class Tool:
    """A vendor's tool: the section that holds its answer, and who reads it."""

    section: str
    names: tuple[str, ...]
    """As `command -v` finds them."""
    parse: Callable[[str], VendorAnswer]


def _amd(text: str) -> VendorAnswer:
    """amd-smi's answer, else rocm-smi's."""
    answer = amd.parse_amd_smi(text)
    return answer if answer.cards else amd.parse_rocm_smi(text)


TOOLS = (
    Tool("amd-smi", ("amd-smi", "rocm-smi"), _amd),
    Tool("npu-smi", ("npu-smi",), ascend.parse_npu_smi),
    Tool("hy-smi", ("hy-smi",), hygon.parse_hy_smi),
    Tool("mthreads-gmi", ("mthreads-gmi",), moore_threads.parse_gmi),
    Tool("cnmon", ("cnmon",), cambricon.parse_cnmon),
    Tool("mx-smi", ("mx-smi", "ht-smi"), metax.parse_mx_smi),
    Tool("ixsmi", ("ixsmi",), drawn.parse_ixsmi),
    Tool("kunlun-smi", ("xpu-smi", "xpu_smi"), drawn.parse_kunlun),
    Tool("intel-smi", ("xpu-smi", "xpumcli"), intel.parse_xpu_smi),
)
Sections = Mapping[str, Section]
T = TypeVar("T")


def read_cards(sections: Sections) -> Iterator[Reading]:
    """Cards, their state, processes, slices and links; what tools complain about stands apart."""
    answers = {tool: _answer(sections, tool) for tool in TOOLS if tool.section in sections}
    tool, at_s = _origin(sections, answers)
    cards, errors = _nvidia(sections)
    cards += tuple(card for answer in answers.values() for card in answer.cards)
    errors += tuple(error for answer in answers.values() for error in answer.errors)
    states = tuple(state for answer in answers.values() for state in answer.states)
    processes = tuple(p for answer in answers.values() for p in answer.processes)
    asked = answers or any(name in sections for name in ("runtime", "nvidia-smi"))
    values: dict[str, object] = {
        "accelerators": cards if asked else Unknown(reason=NOT_THERE),
        "accelerator_errors": errors if asked else Unknown(reason=NOT_THERE),
        "card_states": _states(sections, cards, states),
        "card_processes": _joined(sections, "nvidia-apps", processes, nvidia.parse_processes),
        "card_slices": _joined(sections, "nvidia-list", (), nvidia.parse_slices),
        "card_topology": _nvidia_one(sections, "nvidia-topo", nvidia.parse_topology),
        "card_links": _joined(sections, "nvidia-nvlink", (), nvidia.parse_links),
        "peer_access": _nvidia_one(sections, "nvidia-p2p", nvidia.parse_peers),
    }
    for fact, value in values.items():
        own = sections.get(_OWN.get(fact, ""))
        yield Reading(
            fact=fact,
            value=value,
            tool=own.tool if own else tool,
            at_s=own.at_s if own else at_s,
        )


_OWN = {
    "card_topology": "nvidia-topo",
    "card_links": "nvidia-nvlink",
    "peer_access": "nvidia-p2p",
    "card_slices": "nvidia-list",
}


def _answer(sections: Sections, tool: Tool) -> VendorAnswer:
    """What the tool said; how it ended is an error where it ended badly."""
    section = sections[tool.section]
    try:
        answer = tool.parse(section.text)
    except (ValueError, LookupError, TypeError) as error:
        words = f"{type(error).__name__}: {error}"[:200]
        answer = VendorAnswer(errors=(f"the answer of {section.tool} cannot be read: {words}",))
    if not section.exit_code:
        return answer
    ended = f"{section.tool} {section.ended}"
    said = answer.errors or ((section.text.splitlines()[-1][:200],) if section.text else ())
    return VendorAnswer(
        cards=answer.cards,
        states=answer.states,
        processes=answer.processes,
        errors=(ended, *said),
    )


def _origin(sections: Sections, answers: Mapping[Tool, VendorAnswer]) -> tuple[str, float]:
    """The tools that answered, and when the first did."""
    found = [sections[tool.section] for tool in answers]
    program, smi = sections.get("runtime"), sections.get("nvidia-smi")
    if program and runtime.parse_nvml(program)[0]:
        return ", ".join(["pynvml", *(s.tool for s in found)]), program.at_s
    if smi:
        found.insert(0, smi)
    return ", ".join(s.tool for s in found) or "pynvml", found[0].at_s if found else 0.0


def _nvidia(sections: Sections) -> tuple[tuple[Accelerator, ...], tuple[str, ...]]:
    """pynvml's cards, else nvidia-smi's; what either complains about is kept beside them."""
    program, smi = sections.get("runtime"), sections.get("nvidia-smi")
    cards, errors = runtime.parse_nvml(program) if program else ((), ())
    if smi and not cards:
        cards, said = device.parse_nvidia_csv(smi.text)
        errors = (*said, *errors)
    if smi and smi.exit_code:
        errors = (*errors, f"nvidia-smi {smi.ended}")
    return cards, errors


def _states(
    sections: Sections, cards: tuple[Accelerator, ...], others: tuple[CardState, ...]
) -> tuple[CardState, ...] | Unknown:
    health = sections.get("nvidia-health")
    if health is None:
        if any(card.vendor == "nvidia" for card in cards):
            return Unknown(reason="nvidia-smi is not there: pynvml gives no state")
        return others if _asked(sections) else Unknown(reason=NOT_THERE)
    rows = sections.get("nvidia-rows")
    states = parsed(health, lambda s: _with_rows(s, rows))
    if isinstance(states, Unknown):
        return states
    if not states and any(card.vendor == "nvidia" for card in cards):
        return _why(health)
    return (*states, *others)


def _with_rows(health: Section, rows: Section | None) -> tuple[CardState, ...]:
    states = nvidia.parse_states(health.text)
    return nvidia.add_rows(states, rows.text) if rows else states


def _joined(
    sections: Sections, name: str, others: tuple[T, ...], parse: Callable[[str], tuple[T, ...]]
) -> tuple[T, ...] | Unknown:
    """The others' values with NVIDIA's; Unknown where its call failed."""
    section = sections.get(name)
    if section is None:
        return others if _asked(sections) else Unknown(reason=NOT_THERE)
    if section.exit_code and not _unsupported(section):
        return _why(section)
    found = parsed(section, lambda s: parse(s.text))
    return found if isinstance(found, Unknown) else (*found, *others)


def _nvidia_one(
    sections: Sections, name: str, parse: Callable[[str], T | None]
) -> T | Unknown | None:
    """NVIDIA's value; None where there is no such tool or it has nothing to tell."""
    section = sections.get(name)
    if section is None:
        return None if _asked(sections) else Unknown(reason=NOT_THERE)
    if section.exit_code and not _unsupported(section):
        return _why(section)
    return parsed(section, lambda s: parse(s.text))


_NOTHING = ("No devices were found", "Not supported", "not supported", "NVLink")


def _unsupported(section: Section) -> bool:
    """Whether the tool only says that there is nothing of the kind here."""
    return any(word in section.text for word in _NOTHING)


def _asked(sections: Sections) -> bool:
    """Whether the probe came to the vendors' tools."""
    return "vendor-tools" in sections or any(tool.section in sections for tool in TOOLS)


def _why(section: Section) -> Unknown:
    if section.exit_code == NOT_CALLED:
        return Unknown(reason=section.text.splitlines()[-1])
    why = unusable(section)
    return why if why else Unknown(reason=f"{section.tool} said {section.text[:100]!r}")

"""What several checks need: states of cards, events of a window, lists in words."""

from collections.abc import Callable, Iterable, Sequence

from llmdeploy.facts.card import CardState
from llmdeploy.facts.check import Outcome, Question, passed, skipped, warned
from llmdeploy.facts.device import Vendor
from llmdeploy.facts.kernel_log import KernelEvent, Kind

WINDOW_S = 24 * 3600.0
"""How far back the kernel's log counts. Source: check catalogue `fab.ib.flap`, `os.oom.history`."""
_SHOWN = 4


def states(question: Question, needed: str, *vendors: Vendor) -> tuple[CardState, ...] | Outcome:
    """States of the vendors' cards (all without one named), or the outcome that there are none."""
    facts, wanted = question.facts, set(vendors)
    if facts.accelerators is None:
        return question.unknown("accelerators", needed)
    if not any(card.vendor in wanted or not wanted for card in facts.accelerators):
        return skipped(f"no {_names(vendors)}card answers", needed)
    if facts.card_states is None:
        return question.unknown("card_states", needed)
    return tuple(s for s in facts.card_states if s.vendor in wanted or not wanted)


def telling(
    question: Question, needed: str, vendor: Vendor, fact: str, *, untold: str
) -> tuple[CardState, ...] | Outcome:
    """As `states`; skipped with the words of `untold` where no card tells the fact."""
    found = states(question, needed, vendor)
    if not isinstance(found, Outcome) and all(getattr(state, fact) is None for state in found):
        return skipped(untold, needed)
    return found


def _names(vendors: Sequence[Vendor]) -> str:
    shown = {"nvidia": "NVIDIA ", "amd": "AMD ", "ascend": "Ascend "}
    return shown.get(vendors[0], "other maker's ") if vendors else ""


def events(question: Question, needed: str, *kinds: Kind) -> tuple[KernelEvent, ...] | Outcome:
    """Events of those kinds in the last day; one without a time counts as new."""
    if question.facts.kernel_events is None:
        return question.unknown("kernel_events", needed)
    since_s = question.facts.collected_s - WINDOW_S
    return tuple(
        event
        for event in question.facts.kernel_events
        if event.kind in kinds and (event.at_s is None or event.at_s >= since_s)
    )


def unlogged(question: Question, needed: str, *kinds: Kind, fix: str) -> Outcome:
    """Passed where the last day's log has no such event, warned with count and last one else."""
    found = events(question, needed, *kinds)
    if isinstance(found, Outcome):
        return found
    if not found:
        return passed("none", needed)
    return warned(f"{len(found)}, last: {found[-1].text}", needed, fix=fix)


def each(
    found: Iterable[CardState],
    bad: Callable[[CardState], object],
    words: Callable[[CardState], str],
) -> str:
    """`card 0: …, card 3: …` of the bad ones; empty where there is none."""
    return listed([f"card {state.index}: {words(state)}" for state in found if bad(state)])


def listed(words: Sequence[str]) -> str:
    """The first few, and how many more."""
    more = f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    return ", ".join(words[:_SHOWN]) + more

"""Whatever a vendor's tool prints, its parser gives an answer and never raises."""

import pathlib
import random

import pytest
import yaml

from llmdeploy.facts.card import VendorAnswer
from llmdeploy.facts.read import read_facts
from llmdeploy.facts.read_cards import TOOLS, Tool
from llmdeploy.facts.section import split

from .hosts import ASKED

CASES = pathlib.Path(__file__).parents[1] / "cases" / "facts"
NVIDIA = ("nvidia-health", "nvidia-rows", "nvidia-apps", "nvidia-list", "nvidia-topo")
SECTIONS = (*(tool.section for tool in TOOLS), *NVIDIA, "nvidia-p2p", "nvidia-nvlink", "nvidia-smi")
TEXTS = {
    section: [yaml.safe_load(p.read_text())["output"] for p in sorted((CASES / section).iterdir())]
    for section in SECTIONS
}
NOISE = '|+-=: ,/.%()[]{}"0123456789abcMGiBWCN\u00b0\t'


def _damaged(text: str, chance: random.Random) -> str:
    """The answer with lines cut, doubled, dropped or filled with noise."""
    lines = text.splitlines()
    for _ in range(chance.randint(1, 6)):
        if not lines:
            break
        at = chance.randrange(len(lines))
        kind = chance.choice(("cut", "double", "drop", "noise", "cells"))
        if kind == "cut":
            lines[at] = lines[at][: chance.randrange(len(lines[at]) + 1)]
        elif kind == "double":
            lines.insert(at, lines[at])
        elif kind == "drop":
            del lines[at]
        elif kind == "noise":
            lines.insert(at, "".join(chance.choices(NOISE, k=chance.randrange(60))))
        else:
            lines[at] = lines[at].replace(chance.choice("|:,/ "), "", chance.randrange(1, 4))
    return "\n".join(lines)


@pytest.mark.parametrize("section", SECTIONS)
def test_a_damaged_answer_still_gives_facts(section: str) -> None:
    chance = random.Random(section)
    for _ in range(40):
        lines = _damaged(chance.choice(TEXTS[section]), chance).splitlines()
        answer = [f"@begin {section} 5 {section}", *(f"|{line}" for line in lines), "@end 0"]
        sections = split("\n".join(answer))
        facts = read_facts(sections, host="a", asked=ASKED, collected_s=1.0, duration_s=1.0)
        assert facts.known("accelerators") or facts.problem("accelerators")


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.section)
def test_an_answer_of_another_tool_gives_no_card_that_is_not_there(tool: Tool) -> None:
    assert tool.parse("") == VendorAnswer()
    assert tool.parse("bash: tool: command not found").cards == ()

"""What hosts print, one file a case, becomes the facts that the file expects."""

import json
import pathlib
import re
from typing import Any

import pytest
import yaml

from llmdeploy.facts.collect import script
from llmdeploy.facts.read import read_facts
from llmdeploy.facts.section import split

from .hosts import ASKED

CASES = pathlib.Path(__file__).parents[1] / "cases" / "facts"


def _name(path: pathlib.Path) -> str:
    return str(path.relative_to(CASES).with_suffix(""))


def _answer(name: str, output: str, *, exit_code: int = 0) -> list[str]:
    lines = [f"|{line}" for line in output.splitlines()]
    return [f"@begin {name} 1800000000 {name}", *lines, f"@end {exit_code}"]


def _said(value: Any) -> Any:
    """The value without what is unsaid, so that a case names only what its output tells."""
    if isinstance(value, dict):
        return {key: _said(part) for key, part in value.items() if part is not None}
    return [_said(part) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize("path", sorted(CASES.rglob("*.yaml")), ids=_name)
def test_the_hosts_words_become_its_facts(path: pathlib.Path) -> None:
    case: dict[str, Any] = yaml.safe_load(path.read_text())
    answer = _answer(case["section"], case["output"], exit_code=case.get("exit_code", 0))
    for name, output in case.get("beside", {}).items():
        answer += _answer(name, output)
    found = read_facts(
        split("\n".join(answer)),
        host="local",
        asked=ASKED,
        collected_s=1_800_000_000.9,
        duration_s=1.0,
    )
    values = json.loads(found.model_dump_json())
    if found.model and found.model.shape:  # what this config does not state stays out of its case
        values["model"]["shape"] = found.model.shape.model_dump(mode="json", exclude_unset=True)
    expected, unknown = case.get("facts", {}), case.get("unknown", {})
    assert expected or unknown
    assert _said({fact: values[fact] for fact in expected}) == _said(expected)
    assert {fact: found.problem(fact) for fact in expected} == dict.fromkeys(expected)
    assert {fact: found.problem(fact) for fact in unknown} == unknown
    assert all(values[fact] is None for fact in unknown)


def test_every_section_of_the_probe_has_a_case_or_a_test_of_its_own() -> None:
    covered = {path.parent.name for path in CASES.rglob("*.yaml")}
    sections = r"(?:^\s*|then |\) |\|\| )section ([a-z]\S+)|(?:begin|plain)\(\"([a-z-]+)\""
    found = re.findall(sections, script(), re.MULTILINE)
    names = {name for pair in found for name in pair if name} - {"disk-"}
    assert len(names) > 50
    assert names - covered == set()


VENDORS = ("amd-smi", "npu-smi", "hy-smi", "mthreads-gmi", "cnmon", "mx-smi", "ixsmi")


@pytest.mark.parametrize("tool", ["nvidia-smi", *VENDORS, "kunlun-smi", "intel-smi"])
def test_every_vendors_tool_has_at_least_three_cases(tool: str) -> None:
    assert len(list((CASES / tool).glob("*.yaml"))) >= 3

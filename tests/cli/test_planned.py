"""What a plan needs of each host, as preflight's checks ask it."""

import pathlib

import pytest

from llmdeploy.cli.planned import planned_on
from llmdeploy.document import parse
from llmdeploy.facts.bundle import Bundle, Listener
from llmdeploy.plan.document import Plan

from ..plan.cases import facts

PLANS = sorted((pathlib.Path(__file__).parents[2] / "plans").rglob("plan.yaml"))


def read(path: pathlib.Path) -> Plan:
    return parse(path.read_text(), Plan, place=str(path))


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.parent.parent.name)
def test_every_host_of_a_plan_needs_memory_and_cluster_hosts_the_checkpoint(path):
    plan = read(path)
    for one in planned_on(plan).values():
        assert one.ports == ()
        assert (one.host_memory_bytes or 0) > 0
        assert one.disk_bytes == (plan.model.weights_bytes if plan.cluster else None)
    assert (plan.model.weights_bytes or 0) > 0


def test_ports_are_those_of_the_lowest_block_that_nobody_else_listens_on():
    plan = next(plan for plan in map(read, PLANS) if plan.cluster is not None)
    host, ports = plan.replicas[0].host, plan.ports
    taken = Listener(address="0.0.0.0", port=ports.first + 1)
    own = Listener(address="0.0.0.0", port=ports.first + ports.block_size, ours=True)
    asked = facts(listeners=(taken, own)).model_copy(update={"host": host})
    found = planned_on(plan, Bundle(schema=1, llmdeploy="0", hosts=(asked,)))
    first = ports.first + ports.block_size
    assert found[host].ports[:3] == (first, first + 1, first + 2)

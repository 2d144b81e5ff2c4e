"""The all-reduce before a start: what hosts are asked, who is named, and what is left out."""

import json

import pytest

from llmdeploy.edge import Completed
from llmdeploy.errors import Refused
from llmdeploy.plan.document import Plan
from llmdeploy.release import group_proof, groups
from llmdeploy.release.host_environment import Environment
from llmdeploy.release.site import Site
from tests.fakes import FakeClock, FakeShell

from .test_groups import GROUP, cluster_plan, site

WORKS = (
    {"kind": "enter", "stage": "joining the group"},
    {"kind": "leave", "stage": "joining the group"},
    {"kind": "size", "size_bytes": 2**20, "duration_s": 0.002, "times": 9, "wrong": 0},
    {"kind": "done"},
)
ALONE = ({"kind": "enter", "stage": "importing torch"},)
THERE = {
    name: Environment(engine="0.32.0", torch="2.9.0", interface=interface)
    for name, interface in (("h1", "eth0"), ("h2", "ib0"))
}


def answers(
    where: Site, said: dict[str, tuple[dict[str, object], ...]], exit_code: int = 0
) -> None:
    """What the program says on each host; it ends well where it came to its end."""
    for station in where.stations:
        lines = said[station.name]
        code = 0 if lines[-1] == {"kind": "done"} else exit_code
        shell = station.shell
        assert isinstance(shell, FakeShell)
        text = "\n".join(json.dumps(line) for line in lines)
        shell.on_run = lambda argv, stdin, text=text, code=code: Completed(
            argv=argv, exit_code=code, stdout=text, stderr=""
        )


def asked(where: Site) -> dict[str, dict[str, object]]:
    """The program's order on each host that was asked."""
    return {
        station.name: json.loads(station.shell.ran[-1][-1])
        for station in where.stations
        if isinstance(station.shell, FakeShell) and station.shell.ran
    }


def proven(plan: Plan, where: Site, there: dict[str, Environment] = THERE) -> dict[str, str]:
    ranks = groups.ranks(plan, port_block=0, site=where)
    return group_proof.prove(ranks, there, report=lambda line: None, clock=FakeClock())


def on_cards(plan: Plan) -> Plan:
    group = GROUP.model_copy(update={"hosts": 2, "vendor": "nvidia"})
    replica = plan.replicas[0]
    members = tuple(one.model_copy(update={"device_ids": (2, 3)}) for one in replica.members or ())
    serve = replica.serve.model_copy(update={"device": "cuda", "group": group})
    changes = {"serve": serve, "members": members}
    return plan.model_copy(update={"replicas": (replica.model_copy(update=changes),)})


def test_each_host_sums_over_its_own_interface_where_the_engines_ranks_will_meet() -> None:
    where = site("h1", "h2")
    answers(where, {"h1": WORKS, "h2": WORKS})
    told = proven(cluster_plan(("h1", "h2")), where)
    assert told == {"r0": "2 ranks summed 1.0 MiB over gloo in 2 ms"}
    first, second = asked(where)["h1"], asked(where)["h2"]
    assert (first["interface"], second["interface"]) == ("eth0", "ib0")
    assert (first["master"], second["master"]) == ("10.0.0.1", "10.0.0.1")
    assert (first["port"], second["port"]) == (21001, 21001)
    assert (first["rank_first"], second["rank_first"], second["ranks"]) == (0, 1, 2)
    assert second["limit_s"] == group_proof.LIMITS.whole_s(2)


def test_on_cards_the_replicas_own_cards_sum_over_nccl() -> None:
    where = site("h1", "h2")
    answers(where, {"h1": WORKS, "h2": WORKS})
    proven(on_cards(cluster_plan(("h1", "h2"))), where)
    order = asked(where)["h2"]
    assert (order["backend"], order["local"], order["rank_first"]) == ("nccl", 2, 2)
    assert order["env"] == {"CUDA_VISIBLE_DEVICES": "2,3"}


def test_the_host_that_stays_behind_is_named_with_its_interface() -> None:
    where = site("h1", "h2")
    answers(where, {"h1": WORKS[:2], "h2": ALONE}, exit_code=142)
    with pytest.raises(Refused) as failed:
        proven(cluster_plan(("h1", "h2")), where)
    assert str(failed.value) == (
        "r0: all-reduce between its hosts: h2 (ib0 10.0.0.2): ended importing torch: its watchdog "
        "ended it; h1 waited for it; needed the known sum on every host, before the watchdog ends "
        "it"
    )


def test_where_nothing_tells_who_it_was_every_host_is_named_with_its_own_words() -> None:
    where = site("h1", "h2")
    error = {"kind": "error", "reason": "Unable to find address for: ib0"}
    answers(where, {"h1": WORKS[:1], "h2": (WORKS[0], error)}, exit_code=142)
    with pytest.raises(Refused) as failed:
        proven(cluster_plan(("h1", "h2")), where)
    assert (
        "h1 (eth0 10.0.0.1), h2 (ib0 10.0.0.2): h1 joining the group: its watchdog ended it; "
        "h2 joining the group: Unable to find address for: ib0; needed"
    ) in str(failed.value)


def test_wrong_sums_are_refused() -> None:
    where = site("h1", "h2")
    wrong = (*WORKS[:2], {**WORKS[2], "wrong": 3}, WORKS[3])
    answers(where, {"h1": WORKS, "h2": wrong})
    with pytest.raises(Refused, match=r"h2 \(ib0 10.0.0.2\): 3 elements of its sums are wrong"):
        proven(cluster_plan(("h1", "h2")), where)


def test_a_python_without_torch_is_said_and_nothing_is_asked() -> None:
    where, told = site("h1", "h2"), []
    there = {**THERE, "h2": Environment(engine="0.32.0", torch=None, interface="ib0")}
    ranks = groups.ranks(cluster_plan(("h1", "h2")), port_block=0, site=where)
    said = group_proof.prove(ranks, there, report=told.append, clock=FakeClock())
    reason = "no torch in /opt/vllm/bin/python of h2"
    assert said == {"r0": f"no all-reduce: {reason}"}
    assert told == [f"r0: no all-reduce between its hosts: {reason}"]
    assert asked(where) == {}
    assert group_proof.preview(ranks, there) == [f"# {told[0]}"]


def test_one_rank_has_nobody_to_sum_with() -> None:
    where = site("h1")
    assert proven(cluster_plan(("h1",)), where) == {}
    assert asked(where) == {}


def test_the_preview_shows_the_command_and_limit_of_each_host() -> None:
    where = site("h1", "h2")
    ranks = groups.ranks(cluster_plan(("h1", "h2")), port_block=0, site=where)
    lines = group_proof.preview(ranks, THERE)
    assert lines[0].startswith("# r0: all-reduce of 2 ranks over gloo, at most 3 min 1 s")
    assert [line.partition(":")[0] for line in lines[1:]] == ["h1", "h2"]
    assert '"interface": "ib0"' in lines[2]
    assert asked(where) == {}

"""Ranks of a release on a cluster: their ports, programs, orders, and the first cause of an end."""

import json
from dataclasses import replace

import pytest

from llmdeploy.backends.spec import GroupSpec
from llmdeploy.edge import Completed
from llmdeploy.errors import InputError, Refused
from llmdeploy.onhost import keep, pass_on
from llmdeploy.plan.cluster import Cluster, Coresidency, Cost, Member
from llmdeploy.plan.document import Plan, Replica
from llmdeploy.release import aboard, groups, hop, host_environment, transfer
from llmdeploy.release.failure import Reason
from llmdeploy.release.group_evidence import Heard, broken, parse_ended
from llmdeploy.release.launchable import check_launchable
from llmdeploy.release.layout import ServiceLayout
from llmdeploy.release.site import Orders, Site, Station
from llmdeploy.store import Model
from tests.fakes import FakeClock, FakeHttp, FakeShell

from .made import manifest, plan, serve
from .supervision import FakeSupervisor

GROUP = GroupSpec(
    version="0.32.0", vendor="other", hosts=2, pipeline_parallel=1, expert_parallel=False,
    attention_data_parallel=False, kv_cache_dtype="auto", memory_ratio=0.8, start_timeout_s=300.0,
    kv_cache_bytes=2**20,
)  # fmt: skip
CLUSTER = Cluster(
    parts=(), expected=(), cost=Cost(), choices=(), alternatives=(), looked_at=1, rejected=(),
    coresidency=Coresidency(kind="side by side", words="made"),
)  # fmt: skip
ORDERS = Orders(report=print, diagnose=lambda log: None, detach=print)


def cluster_plan(*replicas: tuple[str, ...]) -> Plan:
    """A plan with one vLLM replica for each tuple of hosts."""
    made = []
    for number, hosts in enumerate(replicas):
        members = tuple(
            Member(host=host, position=position, address=f"10.0.0.{host[-1]}", device_ids=(0,))
            for position, host in enumerate(hosts)
        )
        group = GROUP.model_copy(update={"hosts": len(hosts)})
        one = serve(engine="vllm", group=group, tensor_parallel=len(hosts), data_parallel=1)
        made.append(Replica(name=f"r{number}", host=hosts[0], serve=one, members=members, part=0))
    return plan(replicas=tuple(made), cluster=CLUSTER, core_slots=())


def site(*names: str) -> Site:
    """A service on these hosts."""
    stations = tuple(
        Station(
            name=name, address=f"10.0.0.{name[-1]}", python="/opt/vllm/bin/python",
            model_store="/models", layout=ServiceLayout(root="/state/chat"),
            supervisor=FakeSupervisor(), shell=FakeShell(),
        )
        for name in names
    )  # fmt: skip
    return Site(
        layout=ServiceLayout(root="/state/chat"), python="python", supervisor=FakeSupervisor(),
        shell=FakeShell(), http=FakeHttp(), clock=FakeClock(), stations=stations,
    )  # fmt: skip


def started(wanted: Plan, where: Site) -> tuple[tuple[groups.Rank, ...], groups.Start]:
    names = [station.name for station in where.stations]
    start = groups.Start(
        token="t" * 64,
        keeper_paths=tuple((name, "/state/.programs/onhost.pyz") for name in names),
        model_folders=tuple((name, "/models/tiny") for name in names),
        interfaces=tuple((name, "eth0") for name in names),
    )
    return groups.ranks(wanted, port_block=1, site=where), start


def test_replicas_with_one_head_have_ports_of_their_own() -> None:
    taken = groups.replica_ports(cluster_plan(("h1", "h2"), ("h1", "h3"), ("h4", "h5")), 1)
    first = 21000 + 8
    assert taken["r0"] == groups.GroupPorts(http=first, rendezvous=first + 1, group=first + 2)
    assert taken["r1"] == groups.GroupPorts(http=first + 3, rendezvous=first + 4, group=first + 5)
    assert taken["r2"] == taken["r0"]


def test_more_replicas_on_a_head_than_a_block_has_ports_are_refused() -> None:
    with pytest.raises(Refused, match="a block has 8"):
        groups.replica_ports(cluster_plan(*[("h1", "h2")] * 3), 0)


def test_endpoints_are_the_heads() -> None:
    found = groups.endpoints(cluster_plan(("h1", "h2")), port_block=0)
    assert [(one.host, one.address, one.port) for one in found] == [("h1", "10.0.0.1", 21000)]


def test_a_plan_without_a_hosts_address_is_refused() -> None:
    made = cluster_plan(("h1", "h2"))
    members = made.replicas[0].members or ()
    open_one = members[1].model_copy(update={"address": "{h2}"})
    with pytest.raises(Refused, match="no data address of host h2"):
        groups.members(made.replicas[0].model_copy(update={"members": (members[0], open_one)}))


def test_the_keeper_reads_its_orders_and_no_secret_is_in_a_command_line() -> None:
    wanted, where = cluster_plan(("h1", "h2")), site("h1", "h2")
    ranks, start = started(wanted, where)
    head, follower = (keep.load(groups.spec(rank, wanted, start).decode()) for rank in ranks)
    assert (head.position, follower.position) == (0, 1)
    assert head.address == follower.address == "10.0.0.1"
    assert (head.group_port, head.rendezvous_port) == (21010, 21009)
    assert "--headless" in follower.argv
    assert "--headless" not in head.argv
    assert dict(follower.env)["VLLM_HOST_IP"] == "10.0.0.2"
    assert dict(follower.env)["GLOO_SOCKET_IFNAME"] == "eth0"
    assert head.pulse is not None
    assert follower.pulse is None
    program = groups.program(ranks[1], wanted, start)
    assert program.argv == (
        "/opt/vllm/bin/python", "-I", "-S", "/state/.programs/onhost.pyz", "keep",
        f"/state/chat/runs/{wanted.id}/r0.rank.json",
    )  # fmt: skip
    assert not any("t" * 64 in word for word in (*program.argv, *follower.argv))


def test_the_programs_for_hosts_are_the_same_bytes_each_time() -> None:
    assert aboard.archive() == aboard.archive()


def test_a_host_of_another_inventory_is_named() -> None:
    with pytest.raises(InputError, match="no host h2, found: h1"):
        groups.ranks(cluster_plan(("h1", "h2")), port_block=0, site=site("h1"))


def _heard(at: int, *, log: str = "", **ended: object) -> Heard:
    rank = groups.ranks(cluster_plan(("h1", "h2")), port_block=0, site=site("h1", "h2"))[at]
    text = json.dumps({"at_s": 1.0, "event": "ended", "killed": 0, **ended}) if ended else ""
    return Heard(rank=rank, log=log, ended=parse_ended(text), silent=None)


def _cause(log: str) -> Reason | None:
    return Reason(what="no memory", fix="use less") if "out of memory" in log else None


def test_the_cause_is_the_rank_that_ended_by_itself() -> None:
    heard = (
        _heard(0, log="lost the other", kind="peer", position=1, what="the engine ended: exit 1"),
        _heard(1, log="line\nlast words", kind="own", position=1, what="the engine ended: exit 1"),
    )
    found = broken(heard, ORDERS)
    assert str(found) == (
        "r0 rank 1 on h2: the process ended (the engine ended: exit 1); last log line: last words "
        f"(log: h2:{heard[1].rank.log_path})"
    )


def test_a_known_cause_in_any_rank_comes_before_other_words() -> None:
    heard = (
        _heard(0, log="CUDA out of memory", kind="peer", position=1, what="ended"),
        _heard(1, log="connection closed", kind="own", position=1, what="ended"),
    )
    found = broken(heard, Orders(report=print, diagnose=lambda _: None, detach=print, cause=_cause))
    assert found is not None
    assert "r0 rank 0 on h1: no memory; r0 rank 1 on h2 ended first" in str(found)
    assert found.fix == "use less"


def test_the_keepers_own_lines_are_no_last_words() -> None:
    log = "ValueError: bad heads\n[rank 0] ended kind=own position=0 what=exit code 1 killed=0\n"
    heard = (_heard(0, log=log, kind="own", position=0, what="exit code 1"), _heard(1))
    assert "last log line: ValueError: bad heads" in str(broken(heard, ORDERS))


def test_standing_ranks_have_no_cause() -> None:
    assert broken((_heard(0), _heard(1)), ORDERS) is None


def test_a_half_written_event_is_none_yet() -> None:
    assert parse_ended('{"at_s": 1.0, "event": "started"}\n{"at_s": 2.0, "eve') is None


def test_versions_that_differ_between_hosts_are_refused() -> None:
    ranks = groups.ranks(cluster_plan(("h1", "h2")), port_block=0, site=site("h1", "h2"))
    host_environment.check_versions(tuple((rank, "0.32.0+cpu") for rank in ranks))
    with pytest.raises(Refused, match=r"rank 1 on h2: found vllm 0\.31\.1, needed 0\.32\.0"):
        host_environment.check_versions(((ranks[0], "0.32.0"), (ranks[1], "0.31.1")))


def test_the_interface_is_that_of_the_data_address() -> None:
    listed = (
        "1: lo    inet 127.0.0.1/8 scope host lo\n2: eth0    inet 10.0.0.1/24 brd 10.0.0.255\n"
        "3: ib0    inet 10.0.0.11/24 brd 10.0.0.255\n"
    )
    assert host_environment.parse_interface(listed, "10.0.0.11") == "ib0"
    assert host_environment.parse_interface(listed, "10.0.0.1") == "eth0"
    assert host_environment.parse_interface(listed, "10.0.0.2") is None


def test_a_hosts_orders_for_a_transfer_are_read_by_its_program() -> None:
    part = hop.hop(site("h2").stations[0])
    orders = transfer.spec(manifest(), part, token="x", source=("10.0.0.1", 4000), guests=1)
    read = pass_on.load(json.dumps(orders))
    assert read.source == ("10.0.0.1", 4000)
    assert read.folder == f"/models/tiny@{manifest().digest[:12]}"
    assert [file.name for file in read.files] == ["config.json", "model.safetensors"]


def test_a_clusters_plan_needs_its_inventory() -> None:
    with pytest.raises(InputError, match="found no inventory"):
        check_launchable(cluster_plan(("h1", "h2")), inventory=False)
    check_launchable(cluster_plan(("h1", "h2")), inventory=True)
    with pytest.raises(InputError, match="it is for one host"):
        check_launchable(plan(), inventory=True)


def test_a_host_tells_its_engine_torch_and_interface() -> None:
    where = site("h1", "h2")
    listed = "2: eth0    inet 10.0.0.1/24 scope global\n3: eth1    inet 10.0.0.2/24 scope global\n"
    for station, versions in zip(where.stations, ("0.32.0\n2.9.0\n", "0.32.0\n-\n"), strict=True):
        shell = station.shell
        assert isinstance(shell, FakeShell)
        shell.on_run = lambda argv, stdin, versions=versions: Completed(
            argv=argv, exit_code=0, stdout=listed if argv[0] == "ip" else versions, stderr=""
        )
    ranks = groups.ranks(cluster_plan(("h1", "h2")), port_block=0, site=where)
    assert host_environment.check(ranks) == {
        "h1": host_environment.Environment(engine="0.32.0", torch="2.9.0", interface="eth0"),
        "h2": host_environment.Environment(engine="0.32.0", torch=None, interface="eth1"),
    }


def test_a_host_without_the_engine_is_refused() -> None:
    where = site("h1")
    shell = where.stations[0].shell
    assert isinstance(shell, FakeShell)
    shell.on_run = lambda argv, stdin: Completed(argv=argv, exit_code=0, stdout="-\n-\n", stderr="")
    ranks = groups.ranks(cluster_plan(("h1",)), port_block=0, site=where)
    with pytest.raises(Refused, match="has no package vllm"):
        host_environment.check(ranks)


def test_a_bandwidth_bounds_what_this_machine_and_each_host_sends() -> None:
    where = site("h1")
    station = replace(where.stations[0], staging_bytes_per_s=4.0)
    part, shell, clock = hop.hop(station), station.shell, FakeClock()
    assert isinstance(shell, FakeShell)
    orders = transfer.spec(manifest(), part, token="x", source=None, guests=1)
    assert pass_on.load(json.dumps(orders)).bytes_per_s == 4.0
    shell.on_run = lambda argv, stdin: Completed(argv=argv, exit_code=0, stdout="0", stderr="")
    here = FakeShell(files={"/m/config.json": b"{}", "/m/model.safetensors": b"weights"})
    begun_s = clock.now_s()
    transfer.send(
        Model(manifest=manifest(), folder="/m"), part, lambda: None, here=here, clock=clock
    )
    assert clock.now_s() - begun_s == pytest.approx(9 / 4)  # 2 and 7 bytes at 4 a second
    parts = [content for path, content in shell.files.items() if path.endswith(".part")]
    assert sorted(parts) == [b"weights", b"{}"]


def test_what_goes_wrong_beside_the_copying_ends_it() -> None:
    def broken_off() -> None:
        raise Refused("no all-reduce", fix="mend it")

    where = site("h1")
    here = FakeShell(files={"/m/config.json": b"{}"})
    with pytest.raises(Refused, match="no all-reduce"):
        transfer.send(
            Model(manifest=manifest(), folder="/m"), hop.hop(where.stations[0]), broken_off,
            here=here, clock=FakeClock(),
        )  # fmt: skip

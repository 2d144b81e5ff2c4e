"""A release's groups: which rank runs on which host, on which ports, by which program."""

import json
from dataclasses import dataclass
from itertools import groupby

from llmdeploy import backends
from llmdeploy.backends.pulse import LOOK_S, LOOKS, PULSES, SLOW_LOOKS
from llmdeploy.backends.spec import Place, Seat
from llmdeploy.errors import Refused
from llmdeploy.plan.cluster import Member
from llmdeploy.plan.document import Plan, Replica
from llmdeploy.release import ports, supervise
from llmdeploy.release.site import Site, Station
from llmdeploy.release.state import Endpoint
from llmdeploy.release.supervise import Program

PORTS_PER_REPLICA = 3
"""HTTP, the engine's rendezvous, the keepers' own. Source: GroupPorts."""
KILL_MARGIN_S = 15.0
"""What an engine may take past its drain time to end its workers. Source: own choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPorts:
    """What the head of one replica listens on."""

    http: int
    rendezvous: int
    group: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One host's part in one replica of a release."""

    replica: Replica
    member: Member
    station: Station
    ports: GroupPorts
    program: str
    """Its name at the host's supervisor."""
    log_path: str
    spec_path: str
    events_path: str
    mark: str
    """All processes that come of its engine have it."""
    stacks_path: str
    """Where its threads stood when it was given up."""

    @property
    def place(self) -> str:
        """In words, for people."""
        return f"{self.replica.name} rank {self.member.position} on {self.station.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What launch learnt or made up for one start of a release."""

    token: str
    keeper_paths: tuple[tuple[str, str], ...]
    """By host: the file of the programs that run there."""
    model_folders: tuple[tuple[str, str], ...]
    """By host."""
    interfaces: tuple[tuple[str, str | None], ...]
    """By host."""


def replica_ports(plan: Plan, block: int) -> dict[str, GroupPorts]:
    """By replica: those on one head differ, and stay within the release's block."""
    found: dict[str, GroupPorts] = {}
    heads: dict[str, int] = {}
    for replica in plan.replicas:
        number = heads.get(replica.host, 0)
        heads[replica.host] = number + 1
        first = number * PORTS_PER_REPLICA
        http, rendezvous, group = (
            ports.engine_port(block, first + step, plan.ports) for step in range(PORTS_PER_REPLICA)
        )
        found[replica.name] = GroupPorts(http=http, rendezvous=rendezvous, group=group)
    return found


def endpoints(plan: Plan, *, port_block: int) -> tuple[Endpoint, ...]:
    """Where the heads of the plan's replicas answer."""
    taken = replica_ports(plan, port_block)
    return tuple(
        Endpoint(
            replica=replica.name,
            host=replica.host,
            address=members(replica)[0].address,
            port=taken[replica.name].http,
        )
        for replica in plan.replicas
    )


def members(replica: Replica) -> tuple[Member, ...]:
    """The replica's hosts, the head first; Refused where the plan leaves an address open."""
    for member in replica.members or ():
        if member.address.startswith("{"):
            raise Refused(
                f"{replica.name}: found no data address of host {member.host}, needed one",
                fix=f"set data_address of {member.host} in cluster.yaml and plan again",
            )
    return replica.members or ()


def ranks(plan: Plan, *, port_block: int, site: Site) -> tuple[Rank, ...]:
    """Every rank of the release, each replica's head first."""
    taken = replica_ports(plan, port_block)
    found = []
    for replica in plan.replicas:
        for member in members(replica):
            station = site.station(member.host)
            folder = station.layout.run(plan.id)
            found.append(
                Rank(
                    replica=replica,
                    member=member,
                    station=station,
                    ports=taken[replica.name],
                    program=supervise.engine_program(plan.id, replica.name),
                    log_path=station.layout.engine_log(plan.id, replica.name),
                    spec_path=f"{folder}/{replica.name}.rank.json",
                    events_path=f"{folder}/{replica.name}.events.jsonl",
                    mark=f"{plan.service}/{plan.id}/{replica.name}/{member.position}",
                    stacks_path=f"{folder}/{replica.name}.stacks.txt",
                )
            )
    return tuple(found)


def by_replica(ranks: tuple[Rank, ...]) -> tuple[tuple[Rank, ...], ...]:
    """The ranks of each replica, its head first."""
    return tuple(tuple(part) for _, part in groupby(ranks, key=lambda rank: rank.replica.name))


def program(rank: Rank, plan: Plan, start: Start) -> Program:
    """What the host's supervisor runs: the keeper of the rank, which runs the engine."""
    keeper = dict(start.keeper_paths)[rank.station.name]
    return Program(
        name=rank.program,
        argv=(rank.station.python, "-I", "-S", keeper, "keep", rank.spec_path),
        env=(),
        log_path=rank.log_path,
        stop_timeout_s=rank.replica.serve.drain_timeout_s + KILL_MARGIN_S,
        cwd=rank.station.layout.run(plan.id),
    )


def spec(rank: Rank, plan: Plan, start: Start) -> bytes:
    """The keeper's orders, as `llmdeploy.onhost.keep.Spec` reads them."""
    serve = rank.replica.serve
    assert serve.group is not None, "a cluster's plan has groups"
    head = members(rank.replica)[0]
    command = backends.command(serve, place(rank, start))
    fields = {
        "name": rank.mark,
        "position": rank.member.position,
        "hosts": len(members(rank.replica)),
        "address": head.address,
        "group_port": rank.ports.group,
        "token": start.token,
        "rendezvous_port": rank.ports.rendezvous,
        "argv": command.argv,
        "env": command.env,
        "cwd": rank.station.layout.run(plan.id),
        "events": rank.events_path,
        "start_timeout_s": serve.group.start_timeout_s,
        "stop_timeout_s": serve.drain_timeout_s,
        "pulse": _pulse(rank) if rank.member.position == 0 else None,
    }
    return json.dumps(fields).encode()


def place(rank: Rank, start: Start) -> Place:
    """Where the rank's engine runs."""
    host = rank.station.name
    return Place(
        python=rank.station.python,
        model_folder=dict(start.model_folders)[host],
        address=rank.member.address,
        port=rank.ports.http,
        cores=(),
        seat=Seat(
            position=rank.member.position,
            head_address=members(rank.replica)[0].address,
            group_port=rank.ports.rendezvous,
            interface=dict(start.interfaces)[host],
            device_ids=rank.member.device_ids,
        ),
    )


def _pulse(rank: Rank) -> dict[str, object] | None:
    serve = rank.replica.serve
    names = PULSES.get(serve.engine)
    if names is None:
        return None
    return {
        "url": f"http://{rank.member.address}:{rank.ports.http}/metrics",
        "running": names.running,
        "moving": names.moving,
        "look_s": LOOK_S,
        "looks": SLOW_LOOKS if serve.device == "cpu" else LOOKS,
    }

"""Which hosts and devices each replica gets: spread over hosts, so that losing one costs least."""

from dataclasses import dataclass

from llmdeploy.plan.cluster import Member
from llmdeploy.plan.pool import PoolHost
from llmdeploy.plan.proposal import Proposal
from llmdeploy.plan.rank import Option


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """One replica on its hosts."""

    part: int
    spare: bool
    members: tuple[Member, ...]
    """The head first."""


def place(option: Option) -> tuple[Placed, ...]:
    """Every replica of the option, those that carry the peak before the spare.

    Each takes the hosts with room for most groups: spread widely, and no other order fits more.
    """
    carrying: list[Placed] = []
    spares: list[Placed] = []
    for number, part in enumerate(option.parts):
        proposal = part.sized.proposal
        free = {host.name: _domains(host, proposal.width) for host in proposal.pool.hosts}
        hosts = {host.name: host for host in proposal.pool.hosts}
        for count in range(part.replicas + part.spares):
            names = sorted(free, key=lambda name: -_groups(free[name], proposal.width))
            members: list[Member] = []
            for name in names[: proposal.hosts]:
                ids = _take(free[name], proposal)
                members += _members(len(members), hosts[name], ids)
            spare = count >= part.replicas
            (spares if spare else carrying).append(
                Placed(part=number, spare=spare, members=tuple(members))
            )
    return (*carrying, *spares)


def _groups(free: list[list[int]], width: int) -> int:
    return sum(len(domain) // width for domain in free)


def _domains(host: PoolHost, width: int) -> list[list[int]]:
    """The host's free devices by domain, as one where a group is wider; a rack's are numbered
    through its hosts, by host where a group fits one."""
    if host.members:
        each = host.members[0].devices
        if width > each:
            return [list(range(host.devices))]
        return [list(range(n, n + each)) for n in range(0, host.devices, each)]
    widest = max(len(domain) for domain in host.joined)
    if width > widest:
        return [[device for domain in host.joined for device in domain]]
    return [list(domain) for domain in host.joined]


def _take(free: list[list[int]], proposal: Proposal) -> list[int]:
    """The devices of one replica, group by group, each within a domain: the fullest first."""
    taken: list[int] = []
    for _ in range(proposal.devices_per_host // proposal.width):
        domain = max(free, key=len)
        assert len(domain) >= proposal.width, "the search counted the room"
        taken += domain[: proposal.width]
        del domain[: proposal.width]
    return taken


def _members(position: int, host: PoolHost, ids: list[int]) -> list[Member]:
    if not host.members:
        return [_member(position, host, ids)]
    each = host.members[0].devices
    made: list[Member] = []
    for number, member in enumerate(host.members):
        own = [n - number * each + member.first_device for n in ids if n // each == number]
        if own:
            made.append(_member(position + len(made), member, own))
    return made


def _member(position: int, host: PoolHost, ids: list[int]) -> Member:
    return Member(
        host=host.name, position=position, address=host.data_address, device_ids=tuple(ids)
    )

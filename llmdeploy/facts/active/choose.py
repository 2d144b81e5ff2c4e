"""The address and interface by which each host's peers reach it, from facts and cluster.yaml."""

import ipaddress
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from llmdeploy.facts.active.measured import Choice
from llmdeploy.facts.bundle import HostFacts
from llmdeploy.facts.interface import Interface

LESS_FIT = ("vpn", "overlay", "bridge", "veth")
"""Kinds that are taken where no other network reaches as many hosts."""


@dataclass(frozen=True, slots=True)
class _Place:
    """One IPv4 address of an interface."""

    interface: Interface
    address: str
    network: ipaddress.IPv4Network


def choose(hosts: Sequence[HostFacts], declared: Mapping[str, str]) -> tuple[Choice, ...]:
    """One choice a host: the declared data address, else the network that most hosts share.

    Of networks that as many share, one without VPNs and bridges wins, then the fastest by its
    slowest interface. A network in which two hosts have one address (Docker's own) is no network
    between them. `declared` is `data_address` by host; a loopback one declares nothing.
    """
    places = {facts.host: _places(facts) for facts in hosts}
    network = _shared(hosts, places)
    return tuple(_chosen(facts, places[facts.host], declared, network=network) for facts in hosts)


def _places(facts: HostFacts) -> list[_Place]:
    found = []
    for interface in facts.interfaces or ():
        if not interface.up or interface.kind == "loopback":
            continue
        for text in interface.networks:
            held = ipaddress.ip_interface(text)
            if isinstance(held, ipaddress.IPv4Interface) and not held.ip.is_link_local:
                found.append(_Place(interface, str(held.ip), held.network))
    return found


def _shared(
    hosts: Sequence[HostFacts], places: Mapping[str, list[_Place]]
) -> ipaddress.IPv4Network | None:
    everywhere: dict[ipaddress.IPv4Network, list[_Place]] = {}
    for facts in hosts:
        for place in places[facts.host]:
            everywhere.setdefault(place.network, []).append(place)

    def rank(network: ipaddress.IPv4Network) -> tuple[int, bool, float]:
        there = everywhere[network]
        owners = sum(any(p.network == network for p in mine) for mine in places.values())
        fit = all(place.interface.kind not in LESS_FIT for place in there)
        return owners, fit, min(place.interface.speed_bytes_per_s or 0.0 for place in there)

    between = [net for net, there in everywhere.items() if not _repeats(p.address for p in there)]
    return max(between, key=rank, default=None)


def _repeats(addresses: Iterable[str]) -> bool:
    return max(Counter(addresses).values(), default=0) > 1


def _chosen(
    facts: HostFacts,
    places: list[_Place],
    declared: Mapping[str, str],
    *,
    network: ipaddress.IPv4Network | None,
) -> Choice:
    said = declared.get(facts.host, "")
    if facts.interfaces is None:
        reason = f"its interfaces are unknown: {facts.problem('interfaces')}"
        return Choice(host=facts.host, address=None, interface=None, network=None, reason=reason)
    if said and not _loopback(said):
        mine = [place for place in places if place.address == said]
        reason = "data_address of cluster.yaml"
        if not mine:
            reason = f"no interface that is up and fit for data has {said}, its data_address"
            return _none(facts, reason)
    else:
        mine = [place for place in places if place.network == network]
        reason = "the network that most hosts share"
        if not mine:
            there = ", ".join(sorted({str(place.network) for place in places})) or "no network"
            others = f"in {network} as most hosts are" if network else "in one with the others"
            return _none(facts, f"it is in {there}, not {others}")
    mine.sort(key=lambda place: -(place.interface.speed_bytes_per_s or 0.0))
    first = mine[0]
    also = [p.interface.name for p in places if p.network == first.network]
    return Choice(
        host=facts.host,
        address=first.address,
        interface=first.interface.name,
        network=str(first.network),
        also=tuple(sorted({name for name in also if name != first.interface.name})),
        reason=reason,
    )


def _none(facts: HostFacts, reason: str) -> Choice:
    return Choice(host=facts.host, address=None, interface=None, network=None, reason=reason)


def _loopback(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).is_loopback
    except ValueError:
        return False

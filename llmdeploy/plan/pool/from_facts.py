"""Pools of hosts that were asked: what their drivers answer for, and what tests measured there."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from llmdeploy.catalog import devices, links
from llmdeploy.catalog.types import LinkSpec
from llmdeploy.errors import InputError
from llmdeploy.estimate.calibration import measured as measured_spec
from llmdeploy.facts.bundle import Bundle, HostFacts
from llmdeploy.facts.card import Topology
from llmdeploy.inventory import Devices, Inventory
from llmdeploy.plan.pool.declared import found_device, found_link
from llmdeploy.plan.pool.rates import network_by_rate, rates
from llmdeploy.plan.pool.values import Pool, PoolHost, merged

FAST = ("NV", "XGMI", "HCCS")
HOPPER = ("nvlink4", "nvlink5")
SWITCHED = ("PIX", "PXB")
"""Words of a direct link, and of PCIe switches without the processor between.

Source: legends of nvidia-smi topo -m, rocm-smi --showtopotype, npu-smi info -t topo."""


def from_facts(inventory: Inventory, facts: Bundle) -> tuple[Pool, ...]:
    """The pools of the hosts' facts. Prices and links that cluster.yaml declares for the same
    device hold; what tests measured takes the place of data sheets and of the catalog's link."""
    measured = facts.measured
    told = {host.host: host for host in facts.hosts}
    network = found_link(inventory.network, "network") if inventory.network else None
    network = network or network_by_rate(measured, told)
    entries: list[Pool] = []
    names: dict[str, set[str]] = {}
    for host in facts.hosts:
        for pool, name in _of_host(host, inventory, network):
            entries.append(pool)
            names.setdefault(pool.device.id, set()).add(name)
    if not entries:
        raise InputError(
            "facts: found no accelerator on any host, needed one",
            fix="declare devices in cluster.yaml and give `--inventory cluster.yaml`",
        )
    return tuple(_measured(pool, facts, told, names[pool.device.id]) for pool in merged(entries))


def _measured(pool: Pool, facts: Bundle, told: Mapping[str, HostFacts], names: set[str]) -> Pool:
    mine = {host.name: told[host.name] for host in pool.hosts}
    found = rates(facts.measured, mine, names=names)
    if found is None:
        return pool
    spec = measured_spec(
        pool.device,
        matmul_flops_per_s=found.matmul_flops_per_s,
        memory_read_bytes_per_s=found.memory_read_bytes_per_s,
    )
    return replace(pool, device=spec, rates=found)


def _of_host(
    host: HostFacts, inventory: Inventory, network: LinkSpec | None
) -> list[tuple[Pool, str]]:
    """The host's cards by what they are: each pool with the name that its driver gives."""
    kinds: dict[tuple[str, int | None], list[int]] = {}
    for card in host.accelerators or ():
        kinds.setdefault((card.name, card.memory_total_bytes), []).append(card.index)
    known = {
        name: address
        for h in inventory.hosts
        for name, address in zip(h.names, h.data_addresses, strict=True)
    }
    address = known.get(host.host, "127.0.0.1") or f"{{{host.host}}}"
    made = []
    for (name, memory_bytes), cards in kinds.items():
        spec = found_device(name, f"facts: host {host.host}")
        own = _declared(inventory, host.host, spec.id)
        link, between = links.find(spec.link), None
        domains: tuple[tuple[int, ...], ...] = ((*cards,),)
        if own is not None and own.link is not None:
            link = found_link(own.link, f"{host.host}: link")
        elif host.card_topology is not None:
            link, between, domains = drawn(host.card_topology, cards, link)
        at = PoolHost(
            name=host.host, devices=len(cards), first_device=cards[0], data_address=address,
            domains=domains,
        )  # fmt: skip
        pool = Pool(
            device=spec, memory_bytes=memory_bytes, link=link, network=network, between=between,
            price_per_hour=own.price_per_hour if own else None, hosts=(at,),
        )  # fmt: skip
        made.append((pool, name))
    return made


def _declared(inventory: Inventory, host: str, device: str) -> Devices | None:
    """What cluster.yaml says of that device of that host."""
    entries = [entry for h in inventory.hosts if host in h.names for entry in h.devices]
    return next((e for e in entries if devices.find(e.device).id == device), None)


def drawn(
    topology: Topology, cards: Sequence[int], own: LinkSpec
) -> tuple[LinkSpec, LinkSpec | None, tuple[tuple[int, ...], ...]]:
    """The link within domains, the one between them (None: one domain) and the domains, as the
    driver draws the cards: joined by NVLink or xGMI, else by a PCIe switch where not all are."""
    at, alone = {card: place for place, card in enumerate(topology.cards)}, ((*cards,),)
    if len(cards) < 2 or any(card not in at for card in cards):
        return own, None, alone

    def word(one: int, other: int) -> str:
        return topology.links[at[one]][at[other]].upper()

    fast = _joined(cards, lambda a, b: word(a, b).startswith(FAST))
    if len(fast) == 1:
        return own, None, fast
    plain = own
    if not own.id.startswith("pcie"):
        plain = links.find("pcie5" if own.id in HOPPER else "pcie4")
    if len(fast) < len(cards):
        pair = "nvlink4-pair" if own.id in HOPPER else "nvlink3-pair"
        nvlink = own.id.startswith(("pcie", "nvlink"))
        return links.find(pair) if nvlink else own, plain, fast
    if f"{plain.id}-host" not in {link.id for link in links.all_links()}:
        return plain, None, alone  # all of it goes over the processor anyway
    switched = _joined(cards, lambda a, b: word(a, b) in SWITCHED)
    if 1 < len(switched) < len(cards):
        return plain, links.find(f"{plain.id}-host"), switched
    return plain, None, alone


def _joined(cards: Sequence[int], near: Callable[[int, int], bool]) -> tuple[tuple[int, ...], ...]:
    """Sets of cards that are near each other, largest first."""
    left, found = list(cards), []
    while left:
        domain = [left.pop(0)]
        for card in list(left):
            if all(near(card, other) for other in domain):
                domain.append(card)
                left.remove(card)
        found.append(tuple(domain))
    return tuple(sorted(found, key=lambda domain: (-len(domain), domain)))

"""Pools of a declared inventory: devices, links and domains as cluster.yaml has them."""

from collections.abc import Iterator
from dataclasses import replace

from llmdeploy.catalog import devices, links
from llmdeploy.catalog.types import DeviceSpec, LinkSpec
from llmdeploy.errors import InputError
from llmdeploy.inventory import Devices, Host, Inventory
from llmdeploy.plan.pool.values import Pool, PoolHost, merged

RACK_LINK, RACK_DEVICES = "nvlink5-nvl72", 72
"""Joins the devices of several hosts. Source: NVIDIA GB200 NVL72 data sheet."""


def declared(inventory: Inventory) -> tuple[Pool, ...]:
    """The pools of an inventory whose hosts have their devices declared; InputError where one
    has none, or names a device or link that nobody knows."""
    network = found_link(inventory.network, "network") if inventory.network else None
    entries = list(_entries(inventory, network))
    return merged(entries)


def _entries(inventory: Inventory, network: LinkSpec | None) -> Iterator[Pool]:
    for number, host in enumerate(inventory.hosts):
        place = f"hosts/{number}"
        if not host.devices:
            raise InputError(
                f"{place}: {host.name} has no devices declared, needed at least one",
                fix=f"add to {host.name} in cluster.yaml:"
                " devices: [{device: RTX 4090, count: 4}]",
            )
        many = len(inventory.hosts) > 1 or host.count > 1
        first = 0
        counts: dict[tuple[object, ...], int] = {}
        for position, entry in enumerate(host.devices):
            where = f"{place}/devices/{position}"
            spec = found_device(entry.device, where)
            link = found_link(entry.link or spec.link, f"{where}/link", spec)
            key = (spec.id, entry.memory_bytes, link.id, entry.price_per_hour)
            if key in counts:
                raise InputError(
                    f"{where}: found {spec.name} again, with the same memory, link and price"
                    f" ({counts[key]} and {entry.count} devices), needed one entry",
                    fix=f"write one entry with count: {counts[key] + entry.count}",
                )
            counts[key] = entry.count
            pool = Pool(
                device=spec,
                memory_bytes=entry.memory_bytes,
                link=link,
                network=network,
                price_per_hour=entry.price_per_hour,
                hosts=_hosts(host, entry, first, many=many),
            )
            yield from _joined(pool, entry, where)
            first += entry.count


def _hosts(host: Host, entry: Devices, first: int, *, many: bool) -> tuple[PoolHost, ...]:
    local = many and host.data_address == "127.0.0.1"
    return tuple(
        PoolHost(
            name=name,
            devices=entry.count,
            first_device=first,
            data_address=f"{{{name}}}" if local or address is None else address,
        )
        for name, address in zip(host.names, host.data_addresses, strict=True)
    )


def _joined(pool: Pool, entry: Devices, where: str) -> Iterator[Pool]:
    """The pool with the domains that the entry declares: a host's, or racks of hosts."""
    said, spec = entry.link_domains, pool.device
    if said is None:
        rack = pool.link.id == RACK_LINK and len(pool.hosts) > 1
        said = min(RACK_DEVICES, pool.devices) if rack else entry.count
    if isinstance(said, int) and said > entry.count:
        yield from _racks(pool, said, entry, where)
        return
    first = pool.hosts[0].first_device
    if isinstance(said, int):
        if entry.count % said:
            raise InputError(
                f"{where}/link_domains: found {said} for {entry.count} devices, needed a divisor",
                fix="write the domains out, such as link_domains: [[0, 1], [2]]",
            )
        said = tuple(tuple(range(n, n + said)) for n in range(0, entry.count, said))
    if sorted(n for domain in said for n in domain) != list(range(entry.count)):
        raise InputError(
            f"{where}/link_domains: found {[list(domain) for domain in said]}, needed each of the"
            f" devices 0 to {entry.count - 1} once",
            fix="number the entry's devices from 0 and name each in one domain",
        )
    if len(said) == 1:
        yield pool
        return
    domains = tuple(tuple(first + n for n in domain) for domain in said)
    yield replace(
        pool,
        between=found_link(entry.link_between or "pcie", f"{where}/link_between", spec),
        hosts=tuple(replace(host, domains=domains) for host in pool.hosts),
    )


def _racks(pool: Pool, said: int, entry: Devices, where: str) -> Iterator[Pool]:
    """Hosts that share one link as racks, in their order; hosts that fill none stand alone."""
    if said % entry.count:
        raise InputError(
            f"{where}/link_domains: found {said} devices over hosts of {entry.count}, needed a"
            " multiple",
            fix=f"set link_domains to {said // entry.count * entry.count}",
        )
    each = said // entry.count
    whole = len(pool.hosts) // each * each
    if whole:
        racks = tuple(
            PoolHost(
                name=f"{pool.hosts[n].name}…{pool.hosts[n + each - 1].name}",
                devices=said,
                first_device=0,
                data_address=pool.hosts[n].data_address,
                members=pool.hosts[n : n + each],
            )
            for n in range(0, whole, each)
        )
        yield replace(pool, hosts=racks)
    if whole < len(pool.hosts):
        yield replace(pool, hosts=pool.hosts[whole:])


def found_device(name: str, where: str) -> DeviceSpec:
    """The catalog's device of that name; InputError says where the name stands."""
    try:
        return devices.find(name)
    except InputError as unknown:
        raise InputError(f"{where}/device: {unknown}", fix=unknown.fix) from unknown


def found_link(name: str, where: str, device: DeviceSpec | None = None) -> LinkSpec:
    """The catalog's link of that name; InputError says where the name stands."""
    try:
        return links.find(name, device)
    except InputError as unknown:
        raise InputError(f"{where}: {unknown}", fix=unknown.fix) from unknown

"""A pool of equal devices, its hosts, and what their links join."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from llmdeploy.catalog.types import DeviceSpec, LinkSpec
from llmdeploy.plan.pool.rates import Rates

Form = tuple[tuple[int, ...], int]
"""Sizes of a host's domains, largest first, and the devices of one host of a rack (else 0)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolHost:
    """One host's devices of a pool, or those of a rack whose hosts share one link."""

    name: str
    devices: int
    first_device: int
    """Number of its first one on the host: a host may have devices of several pools."""
    data_address: str
    domains: tuple[tuple[int, ...], ...] = ()
    """Numbers of the devices that the pool's link joins; empty: it joins all of them."""
    members: "tuple[PoolHost, ...]" = ()
    """A rack's own hosts, as many devices in each; empty: a plain host."""

    @property
    def joined(self) -> tuple[tuple[int, ...], ...]:
        """Device numbers by what the link joins; a rack counts through its hosts."""
        if self.domains:
            return self.domains
        return (tuple(range(self.first_device, self.first_device + self.devices)),)

    @property
    def form(self) -> Form:
        """What decides which groups it has room for: its domains' sizes, and the devices of one
        of its hosts where it is a rack (else 0)."""
        if not self.domains:
            return (self.devices,), self.members[0].devices if self.members else 0
        sizes = tuple(sorted((len(domain) for domain in self.domains), reverse=True))
        return sizes, self.members[0].devices if self.members else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Devices that are the same in all that a layout depends on."""

    device: DeviceSpec
    memory_bytes: int | None
    """As declared or reported; None: the catalog's."""
    link: LinkSpec
    """Between devices of a domain: all of a host's where `between` is None."""
    network: LinkSpec | None
    """None: replicas stay within a host."""
    price_per_hour: float | None
    """Of one device."""
    hosts: tuple[PoolHost, ...]
    between: LinkSpec | None = None
    """Between the domains of one host."""
    rates: Rates | None = None
    """What active tests measured; None: the data sheet and the catalog's link."""
    forms: dict[Form, int] = field(init=False, compare=False, repr=False)
    """Hosts by their form: counted once, as a search asks for each of its layouts."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "forms", dict(Counter(host.form for host in self.hosts)))

    @property
    def name(self) -> str:
        return self.device.id

    @property
    def devices(self) -> int:
        return sum(sum(sizes) * count for (sizes, _), count in self.forms.items())

    @property
    def per_host(self) -> dict[int, int]:
        """Hosts by how many devices they have."""
        found: Counter[int] = Counter()
        for (sizes, _), count in self.forms.items():
            found[sum(sizes)] += count
        return dict(found)

    @property
    def most_per_host(self) -> int:
        return max(sum(sizes) for sizes, _ in self.forms)

    @property
    def domain_devices(self) -> int:
        """Devices that the pool's link joins at most."""
        if self.between is None:
            return self.most_per_host
        return max(sizes[0] for sizes, _ in self.forms)

    @property
    def rack_host_devices(self) -> int | None:
        """Devices of one host of a rack; None where hosts stand alone."""
        first = self.hosts[0]
        return first.members[0].devices if first.members else None

    @property
    def usable_bytes(self) -> int:
        """Of one device, as the engine sees it: what the maker says less what a driver keeps."""
        spec = self.device
        if self.memory_bytes is None:
            return spec.usable_memory_bytes
        if self.memory_bytes <= spec.usable_memory_bytes:
            return self.memory_bytes
        return round(self.memory_bytes * spec.usable_memory_bytes / spec.memory_bytes)

    def link_of(self, devices: int) -> LinkSpec:
        """What joins a tensor group of that many devices."""
        return self.link if self.between is None or devices <= self.domain_devices else self.between


def groups_that_fit(form: Form, width: int) -> int:
    """Tensor groups of that width on a host of that form: within domains, else over them; in a
    rack within one host, else over whole hosts."""
    sizes, rack_host = form
    total = sum(sizes)
    if rack_host and width <= rack_host:
        return rack_host // width * (total // rack_host)
    if rack_host:
        return total // width if width % rack_host == 0 else 0
    if width > sizes[0]:
        return total // width
    return sum(size // width for size in sizes)


def merged(entries: Sequence[Pool]) -> tuple[Pool, ...]:
    """Entries of equal devices, links and prices as one pool, in the order first met."""
    hosts: dict[tuple[object, ...], list[PoolHost]] = {}
    firsts: dict[tuple[object, ...], Pool] = {}
    for entry in entries:
        key = (
            entry.device.id, entry.memory_bytes, entry.link.id, entry.price_per_hour,
            entry.between and (entry.between.id, entry.domain_devices), entry.rack_host_devices,
        )  # fmt: skip
        firsts.setdefault(key, entry)
        hosts.setdefault(key, []).extend(entry.hosts)
    return tuple(replace(first, hosts=tuple(hosts[key])) for key, first in firsts.items())

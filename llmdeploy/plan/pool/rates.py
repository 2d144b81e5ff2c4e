"""What active tests measured on a pool's hosts, in place of data sheets and the catalog's links."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from llmdeploy.catalog import links
from llmdeploy.catalog.types import LinkSpec
from llmdeploy.facts.active.measured import AllReduce, Measured
from llmdeploy.facts.bundle import HostFacts

DTYPES = ("bfloat16", "bf16", "float16", "fp16")
"""Of products that tell a device's 16-bit rate, as tests name them."""
REACHED_RATIO = 0.94
"""Of a network's line rate that plain TCP streams reach. Source: Ethernet with 1,500-byte frames:
1,448 of 1,538 bytes on the wire are payload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Of one device, the slowest of the pool: a group waits for that one. None: not measured."""

    matmul_flops_per_s: float | None = None
    memory_read_bytes_per_s: float | None = None
    disk_read_bytes_per_s: float | None = None
    """Of the model store's file system, the slowest host's."""
    all_reduce: tuple[tuple[int, float], ...] = ()
    """Message bytes and seconds to sum them over `all_reduce_devices` of one host."""
    all_reduce_devices: int = 0

    @property
    def empty(self) -> bool:
        return self == Rates()

    def curve(self, devices: int, link: LinkSpec) -> tuple[tuple[int, float], ...]:
        """The curve of a group of that many devices, as its engine sums: measured with the
        vendor's library, scaled as the catalog's link does to that count and to the engines' own
        kernel for small messages."""
        if devices < 2 or not self.all_reduce:
            return ()
        return tuple(
            (
                size,
                duration_s
                * links.all_reduce_s(link, devices, size)
                / links.all_reduce_s(link, self.all_reduce_devices, size, custom=False),
            )
            for size, duration_s in self.all_reduce
        )


def rates(
    measured: Measured | None, hosts: Mapping[str, HostFacts], *, names: Collection[str]
) -> Rates | None:
    """The rates of devices that call themselves one of `names` on those hosts; None where nothing
    was measured there."""
    disks = [host.disk_read_bytes_per_s for host in hosts.values() if host.disk_read_bytes_per_s]
    if measured is None:
        found = Rates(disk_read_bytes_per_s=min(disks, default=None))
        return None if found.empty else found
    own = [measured.usable_disk_bytes_per_s(host) for host in hosts]
    products = [
        p.flops_per_s for p in measured.products
        if p.host in hosts and p.name in names and p.dtype in DTYPES and not p.wrong
    ]  # fmt: skip
    reads = [
        p.read_bytes_per_s for p in measured.patterns
        if p.host in hosts and p.device != "cpu" and not p.wrong and p.read_bytes_per_s
    ]  # fmt: skip
    group = _slowest_group(measured, hosts, names)
    found = Rates(
        matmul_flops_per_s=min(products, default=None),
        memory_read_bytes_per_s=min(reads, default=None),
        disk_read_bytes_per_s=min((rate for rate in own if rate), default=min(disks, default=None)),
        all_reduce=tuple((s.size_bytes, s.duration_s) for s in group.samples) if group else (),
        all_reduce_devices=group.ranks if group else 0,
    )
    return None if found.empty else found


def _slowest_group(
    measured: Measured, hosts: Collection[str], names: Collection[str]
) -> AllReduce | None:
    """The sum within one host that took longest for its largest message."""
    whole = [
        group for group in measured.all_reduces
        if len(group.hosts) == 1 and group.hosts[0] in hosts and group.device in names
        and group.ranks > 1 and group.samples
        and not any(state.wrong or state.error for state in group.states)
    ]  # fmt: skip
    return max(whole, key=lambda group: (-group.ranks, group.samples[-1].duration_s), default=None)


def network_by_rate(measured: Measured | None, hosts: Collection[str]) -> LinkSpec | None:
    """The catalog's Ethernet that the slowest pair of these hosts reaches; None where no pair was
    measured, or none reaches any."""
    if measured is None:
        return None
    found = [
        link.bytes_per_s for link in measured.links
        if link.source in hosts and link.target in hosts and link.bytes_per_s
    ]  # fmt: skip
    if not found:
        return None
    line = min(found) / REACHED_RATIO
    ethernets = [link for link in links.all_links() if link.id.startswith("ethernet-")]
    reached = [link for link in ethernets if link.bytes_per_s <= line * 1.05]
    return max(reached, key=lambda link: link.bytes_per_s, default=None)

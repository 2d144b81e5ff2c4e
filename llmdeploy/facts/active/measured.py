"""What active tests measured, as part of the facts bundle: every rate with its place and time."""

from typing import Literal

from llmdeploy.document import Document

Way = Literal["tcp", "udp"]


class Untested(Document):
    """A test that could not be done on a host, and why: it never counts as passed."""

    test: str
    """Id of the check that asks for it, such as `net.allreduce.cross`."""
    host: str
    reason: str


class Choice(Document):
    """The address that a host's peers reach it at, and what its kernel and its names make of it."""

    host: str
    address: str | None
    interface: str | None
    network: str | None
    """Such as `10.0.0.0/16`."""
    also: tuple[str, ...] = ()
    """Other interfaces of the host in the same network."""
    reason: str
    """How it was chosen, or why none could be."""
    sources: tuple[str, ...] = ()
    """Addresses that the host's kernel gave to connections to its peers."""


class Closed(Document):
    """A port that did not answer its peer."""

    port: int
    reason: str


class PortRow(Document):
    """Ports of `target`, tried from `source` over TCP; each answer was checked for its content."""

    source: str
    target: str
    opened: tuple[int, ...]
    closed: tuple[Closed, ...] = ()
    untested: tuple[int, ...] = ()
    """Taken by another program on the target, so nothing of ours could listen."""
    slowest_connect_s: float | None = None
    at_s: float


class LinkRate(Document):
    """One direction between two hosts: TCP over several streams, counted where it arrives."""

    source: str
    target: str
    streams: int
    bytes_per_s: float | None
    """None: it was not reached, `problem` says why."""
    latency_p50_s: float | None = None
    """Round trip of one byte over TCP."""
    latency_p99_s: float | None = None
    lost_ratio: float | None = None
    """Of small datagrams that got no answer; None: not even one was answered."""
    retransmits: int | None = None
    path_mtu_bytes: int | None = None
    """Largest IP packet that arrived whole with fragmentation forbidden."""
    source_mtu_bytes: int | None = None
    """Of the interface that the packets leave by."""
    hop: str | None = None
    """Who said that a packet is too big, and the size it takes: `10.0.0.1 takes 1400`."""
    problem: str | None = None
    at_s: float


class ClockOffset(Document):
    """A host's clock against the controller's: the host reads it between the controller's two
    readings, and what all round trips agree on is kept."""

    host: str
    offset_s: float
    """Host minus controller, in the middle of what is possible: half of a round trip."""
    uncertainty_s: float
    """The true offset is surely within this."""
    at_s: float


class DiskRate(Document):
    """Sequential read from the file system of the model store, past the page cache."""

    host: str
    folder: str
    read_bytes: int
    bytes_per_s: float
    past_cache: str
    """`O_DIRECT`, or `posix_fadvise` where the file system has none."""
    of: str
    """`the model's largest file`, or `a nameless file` written for it."""
    correct: bool | None = None
    """Whether what was written came back; None: the file was there before."""
    at_s: float


class Sample(Document):
    """One size of a collective: the median of its repetitions."""

    size_bytes: int
    duration_s: float


class RankState(Document):
    """How far one host's processes came."""

    host: str
    steps: int
    """Steps that it ended: started, joined, then each size."""
    stage: str
    """What it was in when it ended, in words; `done` at the end."""
    error: str | None = None
    wrong: int = 0
    """Elements of answers that were not the known sum."""
    address: str | None = None


class AllReduce(Document):
    """One group: every rank's own numbers are known, so the sum is known too and was compared."""

    hosts: tuple[str, ...]
    backend: Literal["gloo", "nccl"]
    device: str
    """`cpu`, or the accelerator's name."""
    ranks: int
    samples: tuple[Sample, ...]
    """Empty where it failed. Durations are those of rank 0."""
    states: tuple[RankState, ...]
    at_s: float


class Product(Document):
    """Matrix product with a known answer on one device."""

    host: str
    device: str
    """`cpu`, `cuda:0`."""
    name: str
    """What the device calls itself."""
    dtype: str
    size: int
    """Rows, columns and depth."""
    flops_per_s: float
    wrong: int
    """Elements that differ from the known answer, over all repetitions."""
    at_s: float


class Pattern(Document):
    """Memory of a device, written with patterns and read back."""

    host: str
    device: str
    tested_bytes: int
    wrong: int
    """8-byte words that came back different."""
    read_bytes_per_s: float | None
    at_s: float


class PeerCopy(Document):
    """A pattern copied from one device to another of the same host, and compared there."""

    host: str
    source: str
    target: str
    direct: bool | None
    """Whether the driver says that they reach each other's memory."""
    bytes_per_s: float
    wrong: int
    at_s: float


class Measured(Document):
    """All active tests of one run, as `Bundle.measured`; times are the controller's clock.

    For planning: `all_reduces` have (size_bytes, duration_s) per group, where a group over several
    hosts is the link between them and one over a single host is the link of its cards; `links`
    have bytes/s per ordered pair of hosts; `disks` bytes/s per host; `products` FLOP/s per host,
    device and dtype; `patterns` the read rate of each device's memory. Only entries without a
    problem or wrong answer are rates to plan with: see `usable_*`.
    """

    level: Literal["standard", "deep"]
    begun_s: float
    duration_s: float
    ports: tuple[int, ...] = ()
    """Those of the plan that were tried; every host also opened one of its kernel's choice."""
    choices: tuple[Choice, ...] = ()
    port_rows: tuple[PortRow, ...] = ()
    links: tuple[LinkRate, ...] = ()
    clocks: tuple[ClockOffset, ...] = ()
    disks: tuple[DiskRate, ...] = ()
    all_reduces: tuple[AllReduce, ...] = ()
    products: tuple[Product, ...] = ()
    patterns: tuple[Pattern, ...] = ()
    copies: tuple[PeerCopy, ...] = ()
    untested: tuple[Untested, ...] = ()

    def usable_all_reduce(self, *, hosts: int) -> AllReduce | None:
        """The curve of a group over that many hosts, on accelerators before processors."""
        whole = [g for g in self.all_reduces if len(g.hosts) == hosts and g.samples]
        right = [g for g in whole if not any(s.wrong or s.error for s in g.states)]
        return min(right, key=lambda group: group.device == "cpu", default=None)

    def usable_link_bytes_per_s(self, source: str, target: str) -> float | None:
        """What one host can send to another; None where it was not measured."""
        found = [ln for ln in self.links if (ln.source, ln.target) == (source, target)]
        return found[-1].bytes_per_s if found else None

    def usable_disk_bytes_per_s(self, host: str) -> float | None:
        """Read rate of the model store's file system; None where it was not measured."""
        found = [d for d in self.disks if d.host == host and d.correct is not False]
        return found[-1].bytes_per_s if found else None

    def usable_flops_per_s(self, host: str, *, dtype: str) -> float | None:
        """The slowest device's rate of matrix products: a group waits for that one."""
        mine = [p for p in self.products if p.host == host and p.dtype == dtype and not p.wrong]
        fast = [p for p in mine if p.device != "cpu"] or mine
        return min((p.flops_per_s for p in fast), default=None)

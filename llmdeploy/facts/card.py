"""What accelerators say beside their name and memory: state, processes, links, as documents."""

from dataclasses import dataclass

from llmdeploy.document import Document
from llmdeploy.facts.device import Accelerator, Vendor


class CardState(Document):
    """How one card does; None: the card, its driver or this version of its tool does not say."""

    vendor: Vendor
    index: int
    pci_address: str | None = None
    health: str | None = None
    """The vendor's own word, such as `OK`, `Warning`, `Available`."""
    architecture: str | None = None
    """`gfx942` of AMD's."""
    firmware: str | None = None
    """VBIOS or firmware of the card."""
    temperature_c: float | None = None
    temperature_margin_c: float | None = None
    """How far it is below the point where it slows down."""
    power_w: float | None = None
    power_limit_w: float | None = None
    power_default_w: float | None = None
    busy_ratio: float | None = None
    memory_used_ratio: float | None = None
    """Where a tool tells only this of the memory."""
    throttles: tuple[str, ...] | None = None
    """Reasons of the hardware that slow the card down now."""
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_lanes: int | None = None
    pcie_lanes_max: int | None = None
    persistent: bool | None = None
    """Whether the driver keeps the card ready without a client."""
    compute_mode: str | None = None
    partition: str | None = None
    """`MIG` or `Disabled`; `SPX`, `CPX` of AMD's compute partitions."""
    partition_pending: str | None = None
    memory_partition: str | None = None
    ecc: str | None = None
    ecc_pending: str | None = None
    sram_errors: int | None = None
    """Uncorrectable errors of on-chip memory over the card's life."""
    corrected_errors: int | None = None
    rows_pending: bool | None = None
    """Whether rows of memory wait for a reset to be replaced."""
    rows_failed: bool | None = None
    """Whether replacing a row failed: no spare one is left."""
    rows_replaced: int | None = None
    """Rows replaced after uncorrectable errors."""
    pages_double: int | None = None
    """Pages retired after double-bit errors (before Ampere)."""
    pages_single: int | None = None
    pages_pending: bool | None = None
    fabric: str | None = None
    """State of the NVSwitch fabric, such as `Completed`."""


class CardProcess(Document):
    """A process that holds memory of a card."""

    vendor: Vendor
    card: str
    """The card's uuid or index."""
    pid: int
    name: str
    """The program's file name, without its folder and arguments."""
    memory_bytes: int | None = None


class Slice(Document):
    """A part of a card that the driver shows as a device of its own."""

    vendor: Vendor
    index: int
    """Of the whole card."""
    profile: str
    """`1g.10gb`, `CPX`."""
    uuid: str | None = None


class Topology(Document):
    """How cards of one vendor reach each other."""

    vendor: Vendor
    cards: tuple[int, ...]
    links: tuple[tuple[str, ...], ...]
    """Row by row the tool's word: `X` itself, `NV18`, `PIX`, `PHB`, `NODE`, `SYS`, …"""
    numa: tuple[int | None, ...]
    """NUMA node of each card."""
    cpus: tuple[str | None, ...]
    """Cores near each card, such as `0-31,64-95`."""


class Link(Document):
    """One NVLink of one card."""

    index: int
    link: int
    bytes_per_s: float | None
    """One direction; None: the link is inactive."""


class PeerAccess(Document):
    """What the driver says about copies from card to card: `OK`, `CNS`, `GNS`, `TNS`, `NS`."""

    cards: tuple[int, ...]
    words: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorAnswer:
    """All that one call of a vendor's tool gave."""

    cards: tuple[Accelerator, ...] = ()
    states: tuple[CardState, ...] = ()
    processes: tuple[CardProcess, ...] = ()
    errors: tuple[str, ...] = ()
    """What the tool said instead of an answer, or beside it."""

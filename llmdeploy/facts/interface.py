"""Network interfaces, InfiniBand ports and names, parsed from the probe's sections."""

import ipaddress
from collections.abc import Mapping

from llmdeploy.document import Document
from llmdeploy.facts.section import Section
from llmdeploy.facts.storage import parse_pairs

_KINDS = (
    ("tailscale", "vpn"), ("wg", "vpn"), ("tun", "vpn"), ("zt", "vpn"), ("docker", "bridge"),
    ("virbr", "bridge"), ("lxcbr", "bridge"), ("br-", "bridge"), ("cni", "bridge"),
    ("veth", "veth"), ("cali", "veth"), ("flannel", "overlay"), ("vxlan", "overlay"),
)  # fmt: skip
"""Names that tell the kind where sysfs has no device type. Source: check catalogue
`net.vpn.transport`."""


class Interface(Document):
    """A network interface with what its driver says of it."""

    name: str
    kind: str
    """`physical`, `bond`, `vlan`, `bridge`, `vpn`, `overlay`, `veth`, `loopback`, `virtual`."""
    up: bool
    mtu: int | None = None
    """Largest packet, in bytes."""
    speed_bytes_per_s: float | None = None
    """None: the driver does not know (virtual, no link)."""
    full_duplex: bool | None = None
    driver: str | None = None
    pci_address: str | None = None
    numa: int | None = None
    errors: int | None = None
    """Receive and send errors since it came up."""
    drops: int | None = None
    carrier_changes: int | None = None
    networks: tuple[str, ...] = ()
    """Addresses with their prefix, such as `10.0.0.5/24`."""


class FabricPort(Document):
    """One port of an InfiniBand or RoCE adapter."""

    device: str
    port: int
    state: str | None = None
    """`ACTIVE`, `DOWN`."""
    physical: str | None = None
    """`LinkUp`, `Polling`, `Disabled`."""
    rate_bytes_per_s: float | None = None
    link_layer: str | None = None
    firmware: str | None = None
    model: str | None = None
    gids: tuple[str, ...] = ()
    """`3 RoCE v2 10.0.0.5` of every GID with an IPv4 address."""
    errors: int | None = None
    downs: int | None = None
    """How often the link went down."""


class Hostname(Document):
    """The host's own name, and what it resolves to here."""

    name: str
    addresses: tuple[str, ...] = ()


def parse_interfaces(section: Section) -> tuple[Interface, ...]:
    """One `key=value …` line an interface, then the lines of `ip -o addr show`."""
    networks: dict[str, list[str]] = {}
    found = []
    for line in section.text.splitlines():
        words = line.split()
        if len(words) > 3 and words[2] in ("inet", "inet6"):
            networks.setdefault(words[1].partition("@")[0], []).append(words[3])
        elif words[:1] == ["interface"]:
            found.append(parse_pairs("\n".join(words[1:])))
    return tuple(_interface(pairs, networks.get(pairs["name"], [])) for pairs in found)


def _interface(pairs: Mapping[str, str], networks: list[str]) -> Interface:
    speed = _whole(pairs.get("speed"))
    duplex = pairs.get("duplex", "")
    numa = _whole(pairs.get("numa"))
    return Interface(
        name=pairs["name"],
        kind=_kind(pairs),
        up=pairs.get("state") in ("up", "unknown"),
        mtu=_whole(pairs.get("mtu")),
        speed_bytes_per_s=speed * 125_000.0 if speed and speed > 0 else None,
        full_duplex=duplex == "full" if duplex in ("full", "half") else None,
        driver=pairs.get("driver") or None,
        pci_address=pairs.get("pci") or None,
        numa=numa if numa is not None and numa >= 0 else None,
        errors=_whole(pairs.get("errors")),
        drops=_whole(pairs.get("drops")),
        carrier_changes=_whole(pairs.get("changes")),
        networks=tuple(sorted(networks)),
    )


def _kind(pairs: Mapping[str, str]) -> str:
    kind = pairs.get("kind", "")
    if kind in ("bond", "vlan", "bridge", "loopback"):
        return kind
    if kind in ("wireguard", "tun"):
        return "vpn"
    if kind in ("vxlan", "geneve", "gre"):
        return "overlay"
    named = next((k for start, k in _KINDS if pairs["name"].startswith(start)), None)
    if named:
        return named
    return "physical" if pairs.get("driver") else "virtual"


def _whole(text: str | None) -> int | None:
    try:
        return int(text or "")
    except ValueError:
        return None


def parse_fabric_ports(section: Section) -> tuple[FabricPort, ...]:
    """Ports of /sys/class/infiniband: `port key=value …` lines, then `gid DEVICE PORT …` lines."""
    gids: dict[tuple[str, str], list[str]] = {}
    found = []
    for line in section.text.splitlines():
        words = line.split(" ", 3)
        if words[0] == "gid" and len(words) == 4:
            if said := _gid(words[3]):
                gids.setdefault((words[1], words[2]), []).append(said)
        elif words[0] == "port":
            found.append(parse_pairs("\n".join(line.split("\t")[1:])))
    return tuple(_port(p, gids.get((p["device"], p["port"]), [])) for p in found)


def _gid(text: str) -> str | None:
    """`INDEX GID TYPE` as `3 RoCE v2 10.0.0.5`; None where the GID maps no IPv4 address."""
    index, _, rest = text.partition(" ")
    gid, _, kind = rest.partition(" ")
    try:
        mapped = ipaddress.IPv6Address(gid).ipv4_mapped
    except ValueError:
        return None
    return f"{index} {kind.strip()} {mapped}" if mapped else None


def _port(pairs: Mapping[str, str], gids: list[str]) -> FabricPort:
    rate = pairs.get("rate", "").split()
    counted = [_whole(pairs.get(name)) for name in ("symbol", "receive", "discard")]
    known = [count for count in counted if count is not None]
    return FabricPort(
        device=pairs["device"],
        port=int(pairs["port"]),
        state=pairs.get("state", "").partition(": ")[2] or None,
        physical=pairs.get("physical", "").partition(": ")[2] or None,
        rate_bytes_per_s=float(rate[0]) * 1.25e8 if rate and rate[0].isdigit() else None,
        link_layer=pairs.get("layer") or None,
        firmware=pairs.get("firmware") or None,
        model=pairs.get("model") or None,
        gids=tuple(gids),
        errors=sum(known) if known else None,
        downs=_whole(pairs.get("downs")),
    )


def parse_hostname(section: Section) -> Hostname:
    """`name=…`, then the lines of `getent ahosts`, which begin with an address."""
    own, *lines = section.text.splitlines()
    addresses = dict.fromkeys(line.split()[0] for line in lines if line.strip())
    return Hostname(name=parse_pairs(own)["name"], addresses=tuple(addresses))

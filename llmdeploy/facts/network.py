"""Listening ports, addresses and port rules, parsed from the probe's sections."""

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from llmdeploy.facts.bundle import Listener
from llmdeploy.facts.section import Section
from llmdeploy.facts.storage import parse_pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class PortRules:
    """Which ports the kernel takes or forbids."""

    ephemeral_first: int
    ephemeral_last: int
    unprivileged_port: int


def parse_listeners(section: Section, holders: Iterable[Mapping[str, Any]]) -> tuple[Listener, ...]:
    """Listening sockets of /proc/net/tcp{,6} or `ss -Hltn`, with who holds them where known."""
    read = _ss_row if section.tool.startswith("ss") else _kernel_row
    rows = (read(line.split()) for line in section.text.splitlines() if line.strip())
    return listeners(rows, holders)


def listeners(
    rows: Iterable[tuple[str, int]], holders: Iterable[Mapping[str, Any]]
) -> tuple[Listener, ...]:
    """Each address and port once, by port, with its holder."""
    held = {holder["port"]: holder for holder in holders}
    return tuple(
        Listener(
            address=address,
            port=port,
            process=held[port]["process"] if port in held else None,
            ours=bool(held[port]["ours"]) if port in held else False,
        )
        for address, port in sorted(set(rows), key=lambda row: (row[1], row[0]))
    )


def parse_addresses(section: Section) -> tuple[str, ...]:
    """IPv4 addresses as they stand, IPv6 ones from 32 hex digits; sorted, each once."""
    found = {
        word if "." in word else str(ipaddress.IPv6Address(int(word, 16)))
        for word in section.text.split()
    }
    return tuple(sorted(found))


def parse_port_rules(section: Section) -> PortRules:
    """The range of outgoing ports and the lowest port open to every user."""
    pairs = parse_pairs(section.text)
    first, last = pairs["range"].split()
    return PortRules(
        ephemeral_first=int(first),
        ephemeral_last=int(last),
        unprivileged_port=int(pairs["unprivileged"]),
    )


def _kernel_row(words: list[str]) -> tuple[str, int]:
    """Address and port of a row; addresses are 32-bit words in the host's (little) byte order."""
    digits, _, port = words[1].partition(":")
    parts = [bytes.fromhex(digits[at : at + 8])[::-1] for at in range(0, len(digits), 8)]
    return str(ipaddress.ip_address(b"".join(parts))), int(port, 16)


def _ss_row(words: list[str]) -> tuple[str, int]:
    address, _, port = words[3].rpartition(":")
    address = address.strip("[]").partition("%")[0]
    return ("0.0.0.0" if address == "*" else address), int(port)

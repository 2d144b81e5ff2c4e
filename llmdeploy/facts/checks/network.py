"""Checks of ports, addresses and of who may reach them."""

import ipaddress

from llmdeploy.facts.bundle import Listener
from llmdeploy.facts.check import Check, Outcome, Question, failed, passed, skipped, warned

WILDCARDS = ("0.0.0.0", "::")
CERTIFICATE_S = 14 * 86400.0
"""Source: check catalogue `sec.tls`."""


def gateway_port(question: Question) -> Outcome:
    gateway = question.service.gateway
    needed = f"{gateway.host}:{gateway.port} free, or held by this service's own gateway"
    if question.facts.listeners is None:
        return question.unknown("listeners", needed)
    holder = next(
        (h for h in question.facts.listeners if h.port == gateway.port and _meets(h, gateway.host)),
        None,
    )
    if holder is None:
        return passed("free", needed)
    who = holder.process or "another user's process"
    if holder.ours:
        return passed(f"held by this service's {who}", needed)
    fix = f"stop {who}, or set gateway.port to a free port"
    return failed(f"held by {who} on {holder.address}", needed, fix=fix)


def _meets(listener: Listener, host: str) -> bool:
    return host in WILDCARDS or listener.address in (host, *WILDCARDS)


def release_ports(question: Question) -> Outcome:
    ports = question.inventory.ports
    last = ports.first + ports.blocks * ports.block_size - 1
    needed = f"2 free blocks of {ports.block_size} ports in {ports.first}-{last}"
    if question.facts.listeners is None:
        return question.unknown("listeners", needed)
    taken = {(h.port - ports.first) // ports.block_size for h in question.facts.listeners}
    free = ports.blocks - len(taken & set(range(ports.blocks)))
    found = f"{free} of {ports.blocks} blocks free"
    if free >= 2:
        return passed(found, needed)
    fix = "set ports.first in cluster.yaml to a range with nothing in it (`ss -ltn` shows)"
    return (warned if free else failed)(found, needed, fix=fix)


def ephemeral(question: Question) -> Outcome:
    facts, ports = question.facts, question.inventory.ports
    last = ports.first + ports.blocks * ports.block_size - 1
    needed = f"{ports.first}-{last} outside the kernel's range for outgoing connections"
    if facts.ephemeral_first is None or facts.ephemeral_last is None:
        return question.unknown("ephemeral_first", needed)
    found = f"the kernel takes {facts.ephemeral_first}-{facts.ephemeral_last}"
    if last < facts.ephemeral_first or ports.first > facts.ephemeral_last:
        return passed(found, needed)
    fix = f"set ports in cluster.yaml so that they end below {facts.ephemeral_first}"
    return warned(found, needed, fix=fix)


def privileged(question: Question) -> Outcome:
    facts, port = question.facts, question.service.gateway.port
    if facts.unprivileged_port is None or facts.uid is None:
        fact = "uid" if facts.uid is None else "unprivileged_port"
        return question.unknown(fact, f"the right to listen on port {port}")
    needed = f"root, or a port from {facts.unprivileged_port} on"
    found = f"port {port} for user {facts.user}"
    if port >= facts.unprivileged_port or facts.uid == 0:
        return passed(found, needed)
    fix = f"set gateway.port to 8080, or sysctl net.ipv4.ip_unprivileged_port_start={port}"
    return failed(found, needed, fix=fix)


def addresses(question: Question) -> Outcome:
    wanted = {"data_address": question.host.data_address}
    if question.is_gateway:
        wanted = {"gateway.host": question.service.gateway.host, **wanted}
    needed = ", ".join(f"{key} {value}" for key, value in wanted.items()) + " on this host"
    if question.facts.addresses is None:
        return question.unknown("addresses", needed)
    for key, value in wanted.items():
        address = _address(value)
        if address is None:
            return failed(
                f"{key} {value!r} is no IP address", needed, fix=f"write {key} as an IP address"
            )
        there = value in (*question.facts.addresses, *WILDCARDS) or address.is_loopback
        if not there:
            found = f"addresses {', '.join(question.facts.addresses)}"
            return failed(found, needed, fix=f"set {key} to one of them")
    return passed("they are its own", needed)


def engine_bind(question: Question) -> Outcome:
    value = question.host.data_address
    needed = "a loopback or private data_address: engines have no keys"
    address = _address(value)
    if address is None:
        return failed(
            f"{value!r} is no IP address", needed, fix="write data_address as an IP address"
        )
    if value not in WILDCARDS and (address.is_private or address.is_loopback):
        return passed(value, needed)
    return failed(
        value, needed, fix="set data_address in cluster.yaml to 127.0.0.1 or a private address"
    )


def gateway_exposed(question: Question) -> Outcome:
    gateway = question.service.gateway
    needed = "TLS where clients come over a network"
    address = _address(gateway.host)
    if address is not None and address.is_loopback:
        return passed(f"{gateway.host} is loopback", needed)
    if gateway.tls_certificate and gateway.tls_key:
        return passed(f"TLS on {gateway.host}", needed)
    fix = "set gateway.tls_certificate and gateway.tls_key, or gateway.host to 127.0.0.1"
    return warned(f"no TLS on {gateway.host}: keys and prompts cross in the clear", needed, fix=fix)


def allow_list(question: Question) -> Outcome:
    needed = "client networks as CIDR, none of them everyone"
    allow = question.service.gateway.allow
    everyone = []
    for network in allow:
        try:
            if ipaddress.ip_network(network).prefixlen == 0:
                everyone.append(network)
        except ValueError as error:
            return failed(
                f"{network!r}: {error}", needed, fix="correct gateway.allow, like 10.0.0.0/8"
            )
    if not allow:
        return failed("no network at all", needed, fix="set gateway.allow, like 127.0.0.0/8")
    if everyone:
        fix = "set gateway.allow to the networks of your clients"
        return warned(f"everyone ({', '.join(everyone)})", needed, fix=fix)
    return passed(", ".join(allow), needed)


def certificate(question: Question) -> Outcome:
    gateway, tls = question.service.gateway, question.facts.tls
    needed = "a certificate and key that match and stay valid for 14 days"
    if not gateway.tls_certificate and not gateway.tls_key:
        return skipped("no TLS configured", needed)
    if not gateway.tls_certificate or not gateway.tls_key:
        return failed(
            "only one of the two", needed, fix="set gateway.tls_certificate and gateway.tls_key"
        )
    if tls is None:
        return question.unknown("tls", needed)
    if tls.problem is not None or tls.until_s is None:
        fix = "give the gateway's user a PEM certificate chain and its key without a passphrase"
        return failed(tls.problem or "no end of validity in it", needed, fix=fix)
    left_s = tls.until_s - question.facts.collected_s
    found = (
        f"valid for {left_s / 86400:.0f} days"
        if left_s > 0
        else f"expired {-left_s / 86400:.0f} days ago"
    )
    if left_s > CERTIFICATE_S:
        return passed(found, needed)
    return (failed if left_s <= 0 else warned)(found, needed, fix="renew the certificate")


def nonroot(question: Question) -> Outcome:
    needed = "a user of its own, not root"
    if question.facts.uid is None:
        return question.unknown("uid", needed)
    if question.facts.uid != 0:
        return passed(f"user {question.facts.user}", needed)
    return warned("root", needed, fix="useradd -m llmdeploy, and run llmdeploy as that user")


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


CHECKS = (
    Check(
        "net.ports.gateway",
        "network",
        "the gateway's port",
        gateway_port,
        ("listeners",),
        gate=True,
        gateway=True,
    ),
    Check(
        "net.ports.free", "network", "ports for releases", release_ports, ("listeners",), gate=True
    ),
    Check(
        "net.ports.ephemeral",
        "network",
        "ports of their own",
        ephemeral,
        ("ephemeral_first", "ephemeral_last"),
    ),
    Check(
        "net.ports.privileged",
        "network",
        "a port one may open",
        privileged,
        ("unprivileged_port", "uid", "user"),
        gate=True,
        gateway=True,
    ),
    Check(
        "net.addresses", "network", "addresses of this host", addresses, ("addresses",), gate=True
    ),
    Check("sec.nonroot", "security", "an unprivileged user", nonroot, ("uid", "user")),
    Check("sec.bind", "security", "engines out of reach", engine_bind, (), gate=True),
    Check(
        "sec.gateway.tls",
        "security",
        "no clear text on networks",
        gateway_exposed,
        (),
        gateway=True,
    ),
    Check(
        "sec.gateway.allow",
        "security",
        "an allow-list that limits",
        allow_list,
        (),
        gate=True,
        gateway=True,
    ),
    Check(
        "sec.tls",
        "security",
        "a usable certificate",
        certificate,
        ("tls",),
        gate=True,
        gateway=True,
    ),
)

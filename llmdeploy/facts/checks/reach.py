"""Checks of names, interfaces, proxies and firewalls: how other hosts reach this one."""

import ipaddress

from llmdeploy.facts.check import Check, Outcome, Question, failed, passed, skipped, warned
from llmdeploy.facts.checks.words import listed
from llmdeploy.facts.interface import Interface

NOT_FOR_DATA = ("vpn", "overlay", "bridge", "veth")
ERRORS = 100
"""Errors since the interface came up that a healthy link does not reach. Source: own choice."""
FIREWALLS = ("firewalld", "ufw", "nftables", "iptables")


def hostname(question: Question) -> Outcome:
    needed = "the host's own name leading to an address that others reach"
    if question.alone:
        return skipped("one host needs no name", needed)
    name = question.facts.hostname
    if name is None:
        return question.unknown("hostname", needed)
    if not name.addresses:
        fix = f"add `{question.host.data_address} {name.name}` to /etc/hosts"
        return failed(f"{name.name} leads nowhere", needed, fix=fix)
    if all(_loopback(address) for address in name.addresses):
        fix = f"replace it by `{question.host.data_address} {name.name}` in /etc/hosts"
        found = f"{name.name} leads to {', '.join(name.addresses)}"
        return failed(found, needed, fix=fix)
    return passed(f"{name.name}: {', '.join(name.addresses)}", needed)


def _loopback(text: str) -> bool:
    try:
        return ipaddress.ip_address(text.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _carrier(question: Question, needed: str) -> Interface | Outcome:
    """The interface that has the data address."""
    address, found = question.host.data_address, question.facts.interfaces
    if _loopback(address):
        return skipped("data_address is loopback", needed)
    if found is None:
        return question.unknown("interfaces", needed)
    mine = [i for i in found if any(n.partition("/")[0] == address for n in i.networks)]
    return mine[0] if mine else skipped(f"no interface shows {address}", needed)


def interface_health(question: Question) -> Outcome:
    needed = f"a data interface that is up, full duplex, with fewer than {ERRORS} errors"
    carrier = _carrier(question, needed)
    if isinstance(carrier, Outcome):
        return carrier
    found = f"{carrier.name}: {carrier.errors or 0} errors"
    if not carrier.up:
        return failed(f"{carrier.name} is down", needed, fix=f"ip link set {carrier.name} up")
    if carrier.full_duplex is False or (carrier.errors or 0) >= ERRORS:
        duplex = ", half duplex" if carrier.full_duplex is False else ""
        return warned(f"{found}{duplex}", needed, fix="see cable, transceiver and switch port")
    return passed(found, needed)


def one_in_subnet(question: Question) -> Outcome:
    needed = "one interface in the data network"
    carrier = _carrier(question, needed)
    if isinstance(carrier, Outcome):
        return carrier
    mine = next(n for n in carrier.networks if n.partition("/")[0] == question.host.data_address)
    network = ipaddress.ip_interface(mine).network
    inside = [
        i.name
        for i in question.facts.interfaces or ()
        if i.up and any(ipaddress.ip_interface(n).ip in network for n in i.networks)
    ]
    if len(inside) < 2:
        return passed(f"{carrier.name} in {network}", needed)
    fix = "keep one of them in it, or add a routing rule for each and arp_ignore=1, arp_announce=2"
    return warned(f"{listed(inside)} are in {network}", needed, fix=fix)


def transport(question: Question) -> Outcome:
    needed = "a data interface that is no VPN, bridge or overlay"
    carrier = _carrier(question, needed)
    if isinstance(carrier, Outcome):
        return carrier
    if carrier.kind not in NOT_FOR_DATA:
        return passed(f"{carrier.name} is {carrier.kind}", needed)
    fix = "set data_address in cluster.yaml to an address of a physical interface"
    return warned(f"{carrier.name} is a {carrier.kind}", needed, fix=fix)


def proxy(question: Question) -> Outcome:
    needed = "no proxy before the cluster's own addresses"
    names, covers = question.facts.environment_names, question.facts.no_proxy_covers
    if names is None or covers is None:
        return question.unknown("environment_names" if names is None else "no_proxy_covers", needed)
    set_names = [name for name in names if name.lower() in ("http_proxy", "https_proxy")]
    if not set_names:
        return passed("no proxy is set", needed)
    if "*" in covers or {"localhost", "127.0.0.1"} <= set(covers):
        return passed(f"no_proxy covers {', '.join(covers)}", needed)
    fix = "add localhost,127.0.0.1 and the hosts' addresses to no_proxy"
    return warned(f"{', '.join(set_names)} set, no_proxy leaves out this host", needed, fix=fix)


def firewall(question: Question) -> Outcome:
    needed = "no rule that keeps the cluster's hosts apart"
    facts = question.facts
    if question.alone:
        return skipped("one host talks to itself", needed)
    if facts.firewall_rules is None:
        active = [name for name in facts.active_services or () if name in FIREWALLS]
        if facts.active_services is not None and not active:
            return passed("no firewall service is active", needed)
        return question.unknown("firewall_rules", needed)
    if not facts.firewall_rules:
        return passed("no rule drops or rejects", needed)
    fix = "allow the hosts' own network, like: ufw allow from 10.0.0.0/24"
    return warned(listed(facts.firewall_rules), needed, fix=fix)


def planned_ports(question: Question) -> Outcome:
    plan, listeners = question.planned, question.facts.listeners
    needed = "the plan's ports free"
    if plan is None or not plan.ports:
        return skipped("no plan", needed)
    if listeners is None:
        return question.unknown("listeners", needed)
    taken = [ln for ln in listeners if ln.port in plan.ports and not ln.ours]
    if not taken:
        return passed(f"{len(plan.ports)} ports", needed)
    words = [f"{ln.port} by {ln.process or 'another user'}" for ln in taken]
    fix = "stop it, or set ports.first in cluster.yaml and plan again"
    return failed(f"taken: {listed(words)}", needed, fix=fix)


CHECKS = (
    Check("net.hostname.resolves", "network", "a name that leads here", hostname, ("hostname",)),
    Check("net.nic.health", "network", "a healthy interface", interface_health, ("interfaces",)),
    Check("net.same_subnet", "network", "one way in", one_in_subnet, ("interfaces",)),
    Check("net.vpn.transport", "network", "a real network", transport, ("interfaces",)),
    Check("net.proxy.env", "network", "no proxy between", proxy,
          ("environment_names", "no_proxy_covers")),
    Check("net.firewall", "network", "an open inner network", firewall,
          ("firewall_rules", "active_services")),
    Check("net.ports.plan", "network", "the plan's ports", planned_ports, ("listeners",)),
)  # fmt: skip

"""Faults between hosts that only active tests see, and what preflight must say of each."""

from collections.abc import Callable
from dataclasses import dataclass

from .bed import Bed
from .build import Built
from .machine import Machine
from .sshd import run

LINK_BITS_PER_S = 2e8
"""Of every host's link: far below what two cores copy, so that pairs differ by links alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """Where a fault is planted: on node3 of four."""

    bed: Bed
    built: Built

    @property
    def victim(self) -> Machine:
        return self.bed.machines[2]

    def switch(self, *argv: str) -> str:
        """A command in the switch's namespace."""
        return run("ip", "netns", "exec", self.bed.network.switch, *argv)

    def sh(self, script: str) -> str:
        """A script on the victim."""
        return self.victim.run("sh", "-c", script)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """`finds` are the checks of which one must name the victim; `may` also may fail there."""

    name: str
    finds: tuple[str, ...]
    plant: Callable[[Lab], object]
    heal: Callable[[Lab], object]
    may: tuple[str, ...] = ()
    status: str = "FAIL"


def _inside(
    name: str, finds: str, plant: str, heal: str, *, may: str = "", status: str = "FAIL"
) -> Fault:
    return Fault(
        name=name,
        finds=tuple(finds.split()),
        may=tuple(may.split()),
        plant=lambda lab: lab.sh(plant),
        heal=lambda lab: lab.sh(heal),
        status=status,
    )


def _mend(lab: Lab) -> None:
    lab.bed.network.mend()


FAULTS = (
    Fault(
        name="port 21003 blocked into the host",
        finds=("net.ports.peer",),
        plant=lambda lab: lab.bed.network.block(lab.victim.plug, port=21003),
        heal=_mend,
    ),
    Fault(
        name="only port 22 open into the host",
        finds=("net.ports.peer",),
        plant=lambda lab: lab.switch(
            "nft", "add", "rule", "bridge", "lab", "drops", "oifname", lab.victim.plug.port,
            "ip", "saddr", "!=", f"{lab.bed.network.prefix}.0.1", "tcp", "flags", "&",
            "(syn|ack)", "==", "syn", "drop",
        ),
        heal=_mend,
    ),
    Fault(
        name="10 Mbit/s towards the host",
        finds=("net.bandwidth",),
        may=("net.latency", "net.loss"),
        plant=lambda lab: lab.bed.network.limit(lab.victim.plug, rate_bits_per_s=1e7),
        heal=lambda lab: lab.bed.network.limit(lab.victim.plug, rate_bits_per_s=LINK_BITS_PER_S),
    ),
    Fault(
        name="20 ms to the host",
        finds=("net.latency",),
        may=("net.bandwidth", "net.loss"),
        plant=lambda lab: lab.bed.network.shape(lab.victim.plug, delay_s=0.01),
        heal=lambda lab: lab.bed.network.unshape(lab.victim.plug),
        status="WARN",
    ),
    Fault(
        name="a tenth of the packets lost",
        finds=("net.loss",),
        may=("net.bandwidth", "net.latency", "net.path.mtu"),
        plant=lambda lab: lab.bed.network.lose(lab.victim.plug, ratio=0.1),
        heal=_mend,
        status="WARN",
    ),
    _inside("MTU 1400 on the host", "net.mtu net.path.mtu", "ip link set eth0 mtu 1400",
            "ip link set eth0 mtu 1500", status="WARN"),
    Fault(
        name="MTU 1400 on the switch's port",
        finds=("net.path.mtu",),
        plant=lambda lab: lab.switch("ip", "link", "set", lab.victim.plug.port, "mtu", "1400"),
        heal=lambda lab: lab.switch("ip", "link", "set", lab.victim.plug.port, "mtu", "1500"),
    ),
    _inside("own name leads to loopback", "net.hostname.resolves",
            "cp /etc/hosts /etc/hosts.was; sed -i \"s/^127.0.0.1.*/& $(hostname)/; "
            "/^10[.].* $(hostname)$/d\" /etc/hosts", "cp /etc/hosts.was /etc/hosts"),
    _inside("a second interface in the network", "net.ifname.route",
            "ip link add spare0 type veth peer name spare1; ip link set spare1 up; "
            "ip link set spare0 up; "
            "ip addr add $(hostname -I | cut -d. -f1-2).99.9/16 dev spare0 noprefixroute",
            "ip link del spare0", status="WARN"),
    _inside("packets leave from another address", "net.ifname.route",
            "ip addr add 192.168.77.3/32 dev eth0; n=$(ip -4 route show dev eth0 scope link | "
            "awk '/^10/ {print $1}'); ip route replace $n dev eth0 src 192.168.77.3",
            "n=$(ip -4 route show dev eth0 scope link | awk '/^10/ {print $1}'); ip route replace "
            "$n dev eth0 src $(ip -4 -o addr show eth0 | awk '/ 10/ {print $4}' | cut -d/ -f1); "
            "ip addr del 192.168.77.3/32 dev eth0", may="net.ports.peer"),
    Fault(
        name="clock three seconds ahead",
        finds=("time.skew", "time.offset"),
        may=("con.clock",),
        plant=lambda lab: lab.victim.skew_clock(lab.built, offset_s=3),
        heal=lambda lab: lab.victim.skew_clock(lab.built, offset_s=0),
    ),
    _inside("no Python", "net.ports.peer net.bandwidth sto.disk.speed",
            "mv /usr/bin/python3 /usr/bin/python3-away",
            "mv /usr/bin/python3-away /usr/bin/python3",
            status="UNKNOWN"),
)  # fmt: skip

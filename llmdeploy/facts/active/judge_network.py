"""Findings about the network between hosts, made of what was measured."""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

from llmdeploy.facts.active.blame import Blame, Pair, blame
from llmdeploy.facts.active.measured import Choice, LinkRate, Measured, PortRow
from llmdeploy.facts.active.say import ALL, finding, hosts_in_words
from llmdeploy.facts.bundle import Bundle, HostFacts
from llmdeploy.facts.finding import Finding, Remedy, Status
from llmdeploy.units import show_bytes, show_ratio, show_seconds

SLOW_RATIO, STANDSTILL_RATIO = 0.5, 0.1
"""Of the usual pair: below the first a pair is slow, below the second it does not carry a model's
traffic. Source: own choice; the catalogue's `net.bandwidth` takes 50 % with all at once."""
LATE_RATIO, LATE_S = 3.0, 1e-3
"""A pair is late beyond both. Source: check catalogue `net.latency`."""
LOST_RATIO = 0.02
"""More than one datagram of fifty: one may also fall to a busy receiver. Source: own choice."""
_TCP = "TCP between the hosts"
_UDP = "UDP between the hosts"


def network(measured: Measured, bundle: Bundle) -> Iterator[Finding]:
    """Interfaces, ports, bandwidth, latency and packet size; nothing for one host alone."""
    facts = {host.host: host for host in bundle.hosts}
    for choice in measured.choices:
        yield _choice(choice)
    if measured.port_rows:
        yield from _ports(measured.port_rows, measured.ports)
    if measured.links:
        yield from _bandwidth(measured.links)
        yield from _latency(measured.links)
        yield from _lost(measured.links)
        yield from _packets(measured, facts)


def doubtful(links: Sequence[LinkRate]) -> list[Pair]:
    """Pairs that would be called slow, late or lossy: worth a second look, alone."""
    rates = {(n.source, n.target): n.bytes_per_s for n in links if n.bytes_per_s is not None}
    times = {(n.source, n.target): n.latency_p50_s for n in links if n.latency_p50_s is not None}
    slow = [p for p, r in rates.items() if r < SLOW_RATIO * _usual(rates, max)]
    late = [p for p, s in times.items() if s > max(LATE_RATIO * _usual(times, min), LATE_S)]
    lossy = [(n.source, n.target) for n in links if (n.lost_ratio or 0.0) > LOST_RATIO]
    return list(dict.fromkeys([*slow, *late, *lossy]))


def better(first: LinkRate, second: LinkRate) -> LinkRate:
    """Of two measurements of a pair the best of each value: noise only ever makes it worse."""
    if second.bytes_per_s is None or first.bytes_per_s is None:
        return second if first.bytes_per_s is None else first
    faster = first if first.bytes_per_s >= second.bytes_per_s else second
    values: dict[str, float | int | None] = {}
    for name, best in (("latency_p50_s", min), ("latency_p99_s", min), ("lost_ratio", min),
                       ("path_mtu_bytes", max)):  # fmt: skip
        said = [getattr(n, name) for n in (first, second) if getattr(n, name) is not None]
        values[name] = best(said) if said else None
    return faster.model_copy(update=values)


def _choice(choice: Choice) -> Finding:
    needed = "one interface by which all peers are reached"
    say = finding("net.ifname.route", choice.host, needed, origin="ip address, getsockname")
    if choice.address is None:
        fix = "set data_address of this host in cluster.yaml to its address in the data network"
        return say(Status.UNKNOWN, choice.reason, fix=fix)
    found = f"{choice.interface} {choice.address} in {choice.network} ({choice.reason})"
    other = [address for address in choice.sources if address != choice.address]
    if other:
        fix = (
            f"give {choice.interface} the route to {choice.network}, or set data_address in "
            f"cluster.yaml to {other[0]}: see ip route get PEER"
        )
        return say(Status.FAIL, f"{found}, but the kernel sends from {', '.join(other)}", fix=fix)
    if choice.also:
        fix = (
            "keep one of them in it, or set data_address in cluster.yaml, with a routing rule for "
            "each and arp_ignore=1, arp_announce=2"
        )
        words = f"{choice.interface} and {', '.join(choice.also)} are in {choice.network}"
        return say(Status.WARN, words, fix=fix)
    return say(Status.PASS, found)


def _ports(rows: Sequence[PortRow], ports: Sequence[int]) -> Iterator[Finding]:
    needed = "TCP from every host to every other, on the plan's ports and on the kernel's own"
    check = "net.ports.peer"
    taken = {row.target: row.untested for row in rows if row.untested}
    for host, numbers in taken.items():
        words = ", ".join(map(str, numbers))
        yield finding(check, host, needed, origin=_TCP)(
            Status.UNKNOWN,
            f"{words} taken by another program there, so no test could listen",
            fix="stop it, or set ports.first in cluster.yaml",
        )
    closed = {(row.source, row.target): row for row in rows if row.closed}
    for found in blame(closed, [(row.source, row.target) for row in rows]):
        yield finding(check, found.subject, needed, origin=_TCP)(
            Status.FAIL, _closed(found, [closed[pair] for pair in found.pairs], ports),
            fix="allow the hosts' own network in the firewall there and between, like: "
            "ufw allow from 10.0.0.0/24; see nft list ruleset",
        )  # fmt: skip
    if not closed and not taken:
        slowest_s = max((row.slowest_connect_s or 0.0 for row in rows), default=0.0)
        count = sum(len(row.opened) for row in rows)
        words = f"{len(rows)} directions, {count} ports, slowest {show_seconds(slowest_s)}"
        yield finding(check, ALL, needed, origin=_TCP)(Status.PASS, words)


def _closed(found: Blame, rows: Sequence[PortRow], ports: Sequence[int]) -> str:
    numbers = sorted({closed.port for row in rows for closed in row.closed})
    planned = [str(port) for port in numbers if port in ports]
    own = len(numbers) - len(planned)
    names = [*planned, *([f"{own} of the kernel's own"] if own else [])]
    word = "to" if found.way == "out of" else "from"
    way = f"{word} {hosts_in_words(found.peers)}"
    return f"closed {way}: {', '.join(names[:9])}: {rows[0].closed[0].reason}"


def _bandwidth(links: Sequence[LinkRate]) -> Iterator[Finding]:
    rates = {(ln.source, ln.target): ln.bytes_per_s for ln in links if ln.bytes_per_s is not None}
    check, needed = "net.bandwidth", "pairs of hosts about as fast as the usual one"
    failed = {(ln.source, ln.target): ln for ln in links if ln.bytes_per_s is None}
    for found in blame(failed, [(ln.source, ln.target) for ln in links]):
        reason = failed[found.pairs[0]].problem or "it was not told"
        words = f"{_way(found)}: {reason}"
        yield finding(check, found.subject, needed, origin=_TCP)(
            Status.UNKNOWN, words, fix="see net.ports.peer"
        )
    if not rates:
        return
    usual = _usual(rates, max)
    slow = {pair: rate for pair, rate in rates.items() if rate < SLOW_RATIO * usual}
    for found in blame(slow, list(rates)):
        slowest = min(slow[pair] for pair in found.pairs)
        status = Status.FAIL if slowest < STANDSTILL_RATIO * usual else Status.WARN
        back = [rates[b, a] for a, b in found.pairs if (b, a) in rates and (b, a) not in slow]
        asymmetry = f"; the other way {_rate(statistics.median(back))}" if back else ""
        words = f"{_rate(slowest)} {_way(found)}{asymmetry}"
        yield finding(check, found.subject, f"{needed}: {_rate(usual)}", origin=_TCP)(
            status, words, fix="see cable, transceiver, duplex and switch port of that host, and "
            "what else uses its link: ethtool DEVICE; tc qdisc show", remedy=Remedy.HARDWARE,
        )  # fmt: skip
    if not slow and not failed:
        low, high = min(rates.values()), max(rates.values())
        words = f"{len(rates)} directions, {_rate(low)} to {_rate(high)}, usual {_rate(usual)}"
        yield finding(check, ALL, needed, origin=_TCP)(Status.PASS, words)


def _latency(links: Sequence[LinkRate]) -> Iterator[Finding]:
    check = "net.latency"
    times = {(n.source, n.target): n.latency_p50_s for n in links if n.latency_p50_s is not None}
    if not times:
        return
    usual_s = _usual(times, min)
    needed = "round trips about as short as the usual pair's"
    late = {p: s for p, s in times.items() if s > max(LATE_RATIO * usual_s, LATE_S)}
    for found in _both_ways(late, list(times)):
        slowest_s = max(late[pair] for pair in found.pairs)
        yield finding(check, found.subject, f"{needed}: {show_seconds(usual_s)}", origin=_TCP)(
            Status.WARN, f"{show_seconds(slowest_s)} {_way(found)}",
            fix="see whether it is behind another switch or in another room, or plan replicas that "
            "do not cross to it", remedy=Remedy.HARDWARE,
        )  # fmt: skip
    if not late:
        worst_s = max(n.latency_p99_s or 0.0 for n in links)
        words = f"usual {show_seconds(usual_s)}, worst of fifty {show_seconds(worst_s)}"
        yield finding(check, ALL, needed, origin=_TCP)(Status.PASS, words)


def _lost(links: Sequence[LinkRate]) -> Iterator[Finding]:
    lost = {(n.source, n.target): n.lost_ratio or 0.0 for n in links if n.lost_ratio is not None}
    needed = "no datagram lost"
    bad = {pair: ratio for pair, ratio in lost.items() if ratio > LOST_RATIO}
    for found in _both_ways(bad, list(lost)):
        most = max(bad[pair] for pair in found.pairs)
        yield finding("net.loss", found.subject, needed, origin=_UDP)(
            Status.WARN, f"{show_ratio(most)} lost {_way(found)}",
            fix="see errors and drops there and at its switch port: ip -s link",
            remedy=Remedy.HARDWARE,
        )  # fmt: skip
    if lost and not bad:
        words = f"{len(lost)} directions, at most {show_ratio(max(lost.values()))}"
        yield finding("net.loss", ALL, needed, origin=_UDP)(Status.PASS, words)


def _usual(values: Mapping[Pair, float], best: Callable[[list[float]], float]) -> float:
    """The median over hosts of each host's best pair. The median over all pairs would not do: one
    bad host of three has four of their six pairs."""
    hosts = {host for pair in values for host in pair}
    return statistics.median(
        best([value for pair, value in values.items() if host in pair]) for host in hosts
    )


def _both_ways(bad: dict[Pair, float], tried: list[Pair]) -> tuple[Blame, ...]:
    """A round trip is bad in both directions: what one direction shows holds for the other."""
    either = {pair for pair in tried if pair in bad or (pair[1], pair[0]) in bad}
    found = blame(either, tried)
    kept = [
        Blame(hosts=one.hosts, way=one.way, pairs=tuple(p for p in one.pairs if p in bad))
        for one in found
    ]
    return tuple(one for one in kept if one.pairs)


def _packets(measured: Measured, facts: dict[str, HostFacts]) -> Iterator[Finding]:
    check, needed = "net.path.mtu", "packets of the interface's size arriving whole"
    known = {
        (link.source, link.target): link
        for link in measured.links
        if link.path_mtu_bytes is not None and link.source_mtu_bytes is not None
    }
    short = {p: n for p, n in known.items() if (n.path_mtu_bytes or 0) < (n.source_mtu_bytes or 0)}

    def owned(host: str) -> tuple[str, int] | None:
        return _own_mtu(host, measured, facts)

    for found in blame(short, list(known)):
        yield _short(found, [short[pair] for pair in found.pairs], needed, own=owned)
    tried = [(link.source, link.target) for link in measured.links if link.bytes_per_s is not None]
    for found in blame([pair for pair in tried if pair not in known], tried):
        yield finding(check, found.subject, needed, origin=_UDP)(
            Status.UNKNOWN, f"no datagram came back {_way(found)}",
            fix="allow UDP between the hosts: RoCE and some gateways need it",
        )  # fmt: skip
    if known and not short:
        sizes = sorted({n.path_mtu_bytes for n in known.values() if n.path_mtu_bytes})
        words = f"{len(known)} directions, {', '.join(map(str, sizes))} bytes"
        yield finding(check, ALL, needed, origin=_UDP)(Status.PASS, words)


def _short(
    found: Blame,
    links: Sequence[LinkRate],
    needed: str,
    *,
    own: Callable[[str], tuple[str, int] | None],
) -> Finding:
    """WARN where the ends or a router say the size, so that TCP adapts; FAIL where large packets
    vanish without a word: connections open, and transfers stall."""
    worst = min(links, key=lambda link: link.path_mtu_bytes or 0)
    words = f"{worst.path_mtu_bytes} of {worst.source_mtu_bytes} bytes arrive {_way(found)}"
    mine = own(worst.target)
    say = finding("net.path.mtu", found.subject, needed, origin=_UDP)
    if worst.hop:
        fix = "raise the MTU of that hop, or lower the hosts': ip link set DEVICE mtu N"
        return say(Status.WARN, f"{words}; {worst.hop}", fix=fix)
    if mine is not None and mine[1] < (worst.source_mtu_bytes or 0):
        fix = f"ip link set {mine[0]} mtu {worst.source_mtu_bytes} on {worst.target}"
        return say(Status.WARN, f"{words}; {mine[0]} of {worst.target} takes {mine[1]}", fix=fix)
    fix = (
        f"raise the MTU of the switch port of {found.subject} to {worst.source_mtu_bytes}, or "
        f"lower that of the hosts to {worst.path_mtu_bytes}"
    )
    return say(Status.FAIL, f"{words}, larger ones vanish between the interfaces", fix=fix)


def _own_mtu(host: str, measured: Measured, facts: dict[str, HostFacts]) -> tuple[str, int] | None:
    name = next((c.interface for c in measured.choices if c.host == host), None)
    interfaces = facts[host].interfaces if host in facts else None
    mine = next((i for i in interfaces or () if i.name == name), None)
    return (mine.name, mine.mtu) if mine is not None and mine.mtu else None


def _way(found: Blame) -> str:
    peers = hosts_in_words(found.peers)
    if found.way == "both ways":
        return f"between {found.subject} and {peers}" if peers != found.subject else "both ways"
    return f"from {peers}" if found.way == "into" else f"to {peers}"


def _rate(bytes_per_s: float) -> str:
    return f"{show_bytes(bytes_per_s)}/s"

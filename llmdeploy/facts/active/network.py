"""Tests between hosts: every host listens, every other one tries it, pairs measure each other."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from llmdeploy.edge import Clock
from llmdeploy.facts.active import pairs
from llmdeploy.facts.active.judge_network import better, doubtful
from llmdeploy.facts.active.measured import Closed, LinkRate, PortRow, Untested
from llmdeploy.facts.active.send import MARGIN_S, Answer, Program, Seat, ask
from llmdeploy.facts.active.tasks import Report, counted, side_by_side

READY_S = 20.0
"""For a host's listener to start. Source: own choice: Python starts in seconds on busy hosts."""
CONNECT_S = 3.0
"""For one port to answer. Source: Linux sends a lost SYN again after 1 s, then after 3 s."""
MOST_AGAIN = 3
"""Directions a host that are measured again alone; a host that is slow has about as many."""
STREAMS = 4
"""Source: check catalogue `net.bandwidth`."""
PORT_TESTS = ("net.ports.peer", "net.latency", "net.bandwidth", "net.path.mtu")
_TRIES_AT_ONCE, _TRIES = 64, 3
"""As the program on the host has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What a host's listener listens on."""

    ports: tuple[int, ...]
    """The last one is of the kernel's choice."""
    taken: tuple[int, ...]
    udp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """All answers; `sources` are by host the addresses that its kernel takes towards its peers."""

    rows: tuple[PortRow, ...] = ()
    links: tuple[LinkRate, ...] = ()
    sources: Mapping[str, tuple[str, ...]]
    untested: tuple[Untested, ...] = ()


def between_hosts(
    seats: Sequence[Seat],
    ports: Sequence[int],
    *,
    send_s: float,
    token: str,
    report: Report,
    clock: Clock,
) -> Network:
    """The port matrix in both directions, then latency, packet size and bandwidth by pairs.

    `token` is a word of this run that no other run has: only its own programs are answered.
    """
    wire = _Wire(token=token, clock=clock)
    turns = pairs.rounds([seat.host for seat in seats])
    limit_s = _listen_s(len(seats), len(ports), len(turns), send_s=send_s)
    with wire.listening(seats, ports, limit_s=limit_s, report=report) as (bound, problems):
        there = [seat for seat in seats if seat.host in bound]
        report(f"{counted(there)}: trying {len(ports) + 1} ports of each from all others")
        rows, sources, failed = wire.try_ports(there, bound, ports)
        links = wire.measure(there, turns, (bound, rows), send_s=send_s, report=report)
    untested = [
        Untested(test=test, host=host, reason=reason)
        for host, reason in [*problems.items(), *failed.items()]
        for test in PORT_TESTS
    ]
    return Network(rows=tuple(rows), links=tuple(links), sources=sources, untested=tuple(untested))


def _listen_s(hosts: int, ports: int, turns: int, *, send_s: float) -> float:
    """How long listeners must live at most: what all tries take where nothing answers."""
    tries_s = READY_S + _ports_s(hosts, ports)
    again = 2 * turns + MOST_AGAIN * hosts
    return READY_S + tries_s + again * (_link_s(send_s) + MARGIN_S)


def _ports_s(hosts: int, ports: int) -> float:
    """What a host's tries take where no port answers: many at a time, each several times."""
    waves = -(-max(1, hosts - 1) * (ports + 1) // _TRIES_AT_ONCE)
    return READY_S + waves * _TRIES * CONNECT_S


def _link_s(send_s: float) -> float:
    return 30.0 + send_s + 2 * CONNECT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wire:
    """The program between hosts, with this run's token."""

    token: str
    clock: Clock

    def _ask(self, seat: Seat, do: str, *, limit_s: float, **values: Any) -> Answer:
        request = {"do": do, "token": self.token, "name": seat.host, "connect_s": CONNECT_S}
        program: Program = "listen" if do == "listen" else "wire"
        return ask(seat, program, {**request, **values}, limit_s=limit_s)

    @contextmanager
    def listening(
        self, seats: Sequence[Seat], ports: Sequence[int], *, limit_s: float, report: Report
    ) -> Iterator[tuple[Mapping[str, Bound], Mapping[str, str]]]:
        """What each host listens on, and why some do not; at the end all are told to stop."""
        report(f"{counted(seats)}: starting a listener on each")
        pool = ThreadPoolExecutor(max_workers=max(1, len(seats)), thread_name_prefix="listen")

        def listen(seat: Seat) -> Answer:
            return self._ask(
                seat, "listen", limit_s=limit_s, address=seat.address, ports=list(ports)
            )

        running = {seat.host: pool.submit(listen, seat) for seat in seats}
        try:
            found = side_by_side(lambda seat: self._ready(seat, running[seat.host]), seats)
            answers = dict(zip((seat.host for seat in seats), found, strict=True))
            yield (
                {host: said for host, said in answers.items() if isinstance(said, Bound)},
                {host: said for host, said in answers.items() if isinstance(said, str)},
            )
        finally:
            left = [seat for seat in seats if not running[seat.host].done()]
            told = side_by_side(
                lambda seat: self._ask(seat, "end", limit_s=READY_S, wait_s=1), left
            )
            heard = [seat for seat, said in zip(left, told, strict=True) if said.of("bound")]
            wait([running[seat.host] for seat in heard], timeout=READY_S)
            pool.shutdown(wait=False)  # one that hangs ends with its connection, or its deadline

    def _ready(self, seat: Seat, running: Future[Answer]) -> Bound | str:
        said = self._ask(seat, "ready", limit_s=READY_S + MARGIN_S, wait_s=READY_S)
        bound = said.of("bound")
        if bound:
            ports, taken = bound[0]["ports"], [port for port, _ in bound[0]["taken"]]
            return Bound(ports=tuple(ports), taken=tuple(taken), udp=bound[0]["udp"])
        own = running.result().why if running.done() else None
        return own or said.why or "its listener did not say what it listens on"

    def try_ports(
        self, seats: Sequence[Seat], bound: Mapping[str, Bound], ports: Sequence[int]
    ) -> tuple[list[PortRow], dict[str, tuple[str, ...]], dict[str, str]]:
        """Rows, source addresses, and the hosts that could not try."""

        def one(seat: Seat) -> Answer:
            peers = [_peer(other, bound[other.host]) for other in seats if other is not seat]
            return self._ask(seat, "ports", limit_s=_ports_s(len(seats), len(ports)), peers=peers)

        rows: list[PortRow] = []
        sources: dict[str, tuple[str, ...]] = {}
        failed: dict[str, str] = {}
        for seat, said in zip(seats, side_by_side(one, seats), strict=True):
            for line in said.of("row"):
                rows.append(self._row(seat.host, line, bound))
            for line in said.of("sources"):
                sources[seat.host] = tuple(line["addresses"])
            if said.problem:
                failed[seat.host] = said.why or said.problem
        return rows, sources, failed

    def _row(self, source: str, line: Mapping[str, Any], bound: Mapping[str, Bound]) -> PortRow:
        target = str(line["target"])
        return PortRow(
            source=source,
            target=target,
            opened=tuple(line["opened"]),
            closed=tuple(Closed(port=port, reason=reason) for port, reason in line["closed"]),
            untested=bound[target].taken,
            slowest_connect_s=line["slowest_s"] if line["opened"] else None,
            at_s=self.clock.now_s(),
        )

    def measure(
        self,
        seats: Sequence[Seat],
        turns: Sequence[Sequence[pairs.Pair]],
        known: tuple[Mapping[str, Bound], Sequence[PortRow]],
        *,
        send_s: float,
        report: Report,
    ) -> list[LinkRate]:
        """Both directions of every pair, one after the other; pairs of a round at the same time."""
        bound, rows = known
        by_name = {seat.host: seat for seat in seats}
        opened = {(row.source, row.target): row.opened for row in rows}

        def one(pair: pairs.Pair) -> LinkRate:
            seat, other = by_name[pair[0]], by_name[pair[1]]
            ports = opened.get(pair, ())
            if not ports:
                return self._link(pair, Answer(lines=(), problem="none of its ports is open"))
            peer = {**_peer(other, bound[other.host]), "ports": ports}
            said = self._ask(
                seat, "link", limit_s=_link_s(send_s), peers=[peer], send_s=send_s, streams=STREAMS
            )
            return self._link(pair, said)

        found = []
        for number, turn in enumerate(turns, start=1):
            here = [pair for pair in turn if all(host in by_name for host in pair)]
            words = ", ".join(f"{a} and {b}" for a, b in here[:4]) + (", …" if here[4:] else "")
            report(f"round {number} of {len(turns)}: bandwidth and latency of {words}")
            found += side_by_side(one, here)
            found += side_by_side(one, [(b, a) for a, b in here])
        again = doubtful(found)[: MOST_AGAIN * len(seats)]
        if again:
            report(f"{len(again)} slow directions again, one by one")
        alone = {pair: one(pair) for pair in again}
        pairs_in_order = [(link.source, link.target) for link in found]
        return [
            better(link, alone[pair]) if pair in alone else link
            for pair, link in zip(pairs_in_order, found, strict=True)
        ]

    def _link(self, pair: pairs.Pair, said: Answer) -> LinkRate:
        values: dict[str, Any] = {}
        for line in said.lines:
            if line["kind"] == "latency":
                values |= {"latency_p50_s": line["p50_s"], "latency_p99_s": line["p99_s"]}
            elif line["kind"] == "loss" and line["answered"]:
                values["lost_ratio"] = 1 - line["answered"] / line["sent"]
            elif line["kind"] == "mtu":
                values |= {"path_mtu_bytes": line["path_bytes"], "hop": line["hop"]}
                values["source_mtu_bytes"] = line["source_bytes"]
            elif line["kind"] == "bandwidth":
                values |= {"bytes_per_s": line["bytes_per_s"], "retransmits": line["retransmits"]}
        values.setdefault("bytes_per_s", None)
        failed = [f"{line['part']}: {line['reason']}" for line in said.of("failed")]
        return LinkRate(
            source=pair[0],
            target=pair[1],
            streams=STREAMS,
            problem="; ".join(failed) or said.why,
            at_s=self.clock.now_s(),
            **values,
        )


def _peer(seat: Seat, bound: Bound) -> dict[str, Any]:
    return {"name": seat.host, "address": seat.address, "ports": bound.ports, "udp": bound.udp}

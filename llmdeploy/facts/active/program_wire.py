"""Sent to a host: asks its own listener, or tries the listeners of its peers.

python - '{"do": "ready"|"end"|"ports"|"link", "token": …, "limit_s": …, …}'
"""

from __future__ import annotations

import errno
import json
import select
import socket
import struct
import sys
import threading
import time
from typing import Any

from llmdeploy.facts.active.program_talk import control, line
from llmdeploy.facts.active.program_watch import arm, show

IP_MTU_DISCOVER, IP_PMTUDISC_PROBE, IP_RECVERR, IP_MTU = 10, 3, 11, 14  # Source: linux/in.h
RETRANSMITS_AT = 100  # of tcpi_total_retrans in struct tcp_info. Source: linux/tcp.h
TCP_NOTSENT_LOWAT = 25  # keeps what waits in the kernel small, so that slow links end in time
HEADERS_BYTES = 28  # IPv4 and UDP. Source: RFC 791, RFC 768
CHUNK = bytes(range(256)) * 1024
PINGS = 50  # of a pair: the median stands still. Source: own choice
AT_ONCE = 64
TRIES = 3  # of a port that does not answer
SMALLEST_BYTES = 576  # what every IPv4 host must take. Source: RFC 791


def greeted(asked: dict[str, Any], peer: dict[str, Any], word: str, *, port: int) -> socket.socket:
    """A connection on which the right host has answered; OSError or ValueError else."""
    plug = socket.create_connection((peer["address"], port), asked["connect_s"])
    try:
        plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plug.sendall(f"{word} {asked['token']}\n".encode())
        said = line(plug).decode(errors="replace")
        if said != f"{peer['name']} {asked['token']}":
            raise ValueError(f"answered by {said[:60]!r} instead")
    except BaseException:
        plug.close()
        raise
    return plug


def call(asked: dict[str, Any]) -> None:
    """Asks this host's own listener; it may still be starting."""
    end_s = time.perf_counter() + asked["wait_s"]
    while True:
        plug = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            plug.connect(control(asked["token"]))
            plug.sendall(asked["do"].encode())
            return show("bound", **json.loads(plug.recv(1 << 16)))
        except OSError as error:
            if time.perf_counter() > end_s:
                return show("problem", reason=f"its listener does not answer: {error.strerror}")
        finally:
            plug.close()
        select.select([], [], [], 0.02)


def ports(asked: dict[str, Any]) -> None:
    """Every port of every peer, many at a time; what does not answer is tried again."""
    waiting = [(peer, port) for peer in asked["peers"] for port in peer["ports"]]
    waiting.reverse()
    found: dict[str, list[tuple[int, float, str]]] = {peer["name"]: [] for peer in asked["peers"]}

    def work() -> None:
        while True:
            try:
                peer, port = waiting.pop()
            except IndexError:
                return
            found[peer["name"]].append((port, *tried(asked, peer, port)))

    threads = [threading.Thread(target=work) for _ in range(min(AT_ONCE, len(waiting)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, said in found.items():
        opened = {port: took_s for port, took_s, reason in said if not reason}
        closed = sorted([port, reason] for port, _, reason in said if reason)
        slowest_s = max(opened.values(), default=0.0)
        show("row", target=name, opened=sorted(opened), closed=closed, slowest_s=slowest_s)
    show("sources", addresses=sorted({source(peer["address"]) for peer in asked["peers"]}))


def tried(asked: dict[str, Any], peer: dict[str, Any], port: int) -> tuple[float, str]:
    """Seconds that the answer took, and why there is none: a lossy link is no closed port."""
    reason = ""
    for _ in range(TRIES):
        begun_s = time.perf_counter()
        try:
            greeted(asked, peer, "port", port=port).close()
            return time.perf_counter() - begun_s, ""
        except socket.timeout as error:  # noqa: UP041  # Python 3.8
            reason = words(error, asked)
        except (OSError, ValueError) as error:
            return 0.0, words(error, asked)
    return 0.0, reason


def words(error: Exception, asked: dict[str, Any]) -> str:
    """The error in words for people."""
    if isinstance(error, socket.timeout):
        return f"no answer in {asked['connect_s']:g} s"
    return str(getattr(error, "strerror", None) or error)


def source(address: str) -> str:
    """The address that this kernel gives to packets for that one; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plug:
        try:
            plug.connect((address, 9))
            return str(plug.getsockname()[0])
        except OSError as error:
            return f"no route to {address}: {error.strerror}"


def link(asked: dict[str, Any]) -> None:
    """Latency, loss, packet size, then bandwidth, to one peer."""
    peer = asked["peers"][0]
    for part in (latency, datagrams, bandwidth):
        try:
            part(asked, peer)
        except (OSError, ValueError) as error:
            show("failed", part=part.__name__, reason=words(error, asked))


def latency(asked: dict[str, Any], peer: dict[str, Any]) -> None:
    """Round trips of one byte, in seconds."""
    times = []
    with greeted(asked, peer, "echo", port=peer["ports"][-1]) as plug:
        for _ in range(PINGS):
            begun_s = time.perf_counter()
            plug.sendall(b"x")
            if plug.recv(1) != b"x":
                raise ValueError("another byte came back than was sent")
            times.append(time.perf_counter() - begun_s)
    times.sort()
    show("latency", p50_s=times[PINGS // 2], p99_s=times[-1])


def datagrams(asked: dict[str, Any], peer: dict[str, Any]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plug:
        plug.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE)
        plug.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)
        plug.connect((peer["address"], peer["udp"]))
        token = asked["token"].encode()
        hops: list[str] = []
        answered = sum(arrives(plug, token, 64, hops=hops, tries=1) for _ in range(PINGS))
        show("loss", answered=answered, sent=PINGS)
        if not answered:
            return
        mtu = plug.getsockopt(socket.IPPROTO_IP, IP_MTU)
        low, high = SMALLEST_BYTES, mtu
        if arrives(plug, token, high - HEADERS_BYTES, hops=hops):
            low = high
        while low < high:
            middle = (low + high + 1) // 2
            if arrives(plug, token, middle - HEADERS_BYTES, hops=hops):
                low = middle
            else:
                high = middle - 1
        show("mtu", path_bytes=low, source_bytes=mtu, hop=hops[0] if hops else None)


def arrives(
    plug: socket.socket, token: bytes, size: int, *, hops: list[str], tries: int = 3
) -> bool:
    """Whether a datagram of that payload is answered with its size."""
    for number in range(tries):
        head = token + struct.pack("!IQ", number, time.perf_counter_ns())
        try:
            plug.send(head + bytes(max(0, size - len(head))))
        except OSError as error:
            heard(plug, hops)
            if error.errno == errno.EMSGSIZE:
                return False
            continue
        end_s = time.perf_counter() + 0.15 * (number + 1)
        while (left_s := end_s - time.perf_counter()) > 0:
            if not select.select([plug], [], [], left_s)[0]:
                break
            try:
                said = plug.recv(256)
            except OSError:  # an ICMP message came: it stands in the error queue
                if heard(plug, hops):
                    return False
                continue
            if said.startswith(head[:64]) and said[-4:] == struct.pack("!I", max(size, len(head))):
                return True
    return False


def heard(plug: socket.socket, hops: list[str]) -> bool:
    """Reads the error queue; whether another machine said that the packet is too big."""
    try:
        _, extra, _, _ = plug.recvmsg(1, 512, socket.MSG_ERRQUEUE)
    except OSError:
        return False
    for level, kind, data in extra:
        if (level, kind) == (socket.IPPROTO_IP, IP_RECVERR) and len(data) >= 24:
            number, origin = struct.unpack_from("=IB", data)
            info = struct.unpack_from("=I", data, 8)[0]
            if number == errno.EMSGSIZE and origin == 2:  # SO_EE_ORIGIN_ICMP
                hops.append(f"{socket.inet_ntoa(data[20:24])} takes {info}")
                return True
    return False


def bandwidth(asked: dict[str, Any], peer: dict[str, Any]) -> None:
    """Several streams for the asked time, counted by the peer from the first byte to the last."""
    counts: list[Any] = []
    problems: list[str] = []
    resent: list[int] = []

    def stream() -> None:
        try:
            with greeted(asked, peer, "sink", port=peer["ports"][-1]) as plug:
                plug.settimeout(asked["send_s"] + asked["connect_s"])
                plug.setsockopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, len(CHUNK))
                end_s = time.perf_counter() + asked["send_s"]
                while time.perf_counter() < end_s:
                    plug.send(CHUNK)
                plug.shutdown(socket.SHUT_WR)
                counts.append(json.loads(plug.recv(256)))
                info = plug.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                if len(info) >= RETRANSMITS_AT + 4:
                    resent.append(struct.unpack_from("=I", info, RETRANSMITS_AT)[0])
        except (OSError, ValueError) as error:
            problems.append(words(error, asked))

    threads = [threading.Thread(target=stream) for _ in range(asked["streams"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        show("failed", part="bandwidth", reason=problems[0])
        return
    rate = sum(count / took_s for _, count, took_s in counts if took_s > 0)
    show("bandwidth", bytes_per_s=rate, retransmits=sum(resent) if resent else None)


DO = {"ready": call, "end": call, "ports": ports, "link": link}


def main() -> None:
    asked = json.loads(sys.argv[1])
    arm(asked["limit_s"])
    DO[asked["do"]](asked)


if __name__ == "__main__":
    main()

"""Sent to the host's Python: who listens on which TCP port, asked of the kernel directly.

The kernel is asked for listening sockets alone (sock_diag): to read /proc/net/tcp it walks its
whole table of connections, which took 6 ms of a core for each of the two files (0.2 ms this way).
"""

from __future__ import annotations

import _socket  # `socket` imports selectors and enum, which nothing here needs
import os
import sys

from llmdeploy.facts.probe_show import show

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs as much as all the rest
    from collections.abc import Iterator

AF_NETLINK = 16
NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLM_F_REQUEST_DUMP = 0x301
NLMSG_ERROR = 2
NLMSG_DONE = 3
LISTEN_STATES = 1 << 10  # Source of all these: linux/netlink.h, sock_diag.h, net/tcp_states.h
HEADER_BYTES = 16
PORT_AT, ADDRESS_AT, INODE_AT = 4, 8, 68  # in struct inet_diag_msg; Source: linux/inet_diag.h
LIMIT_S = 5.0


def ports(folder: str) -> None:
    """Sockets, then their holders; no sockets where the kernel cannot be asked this way."""
    try:
        found = [row for family in (_socket.AF_INET, _socket.AF_INET6) for row in asked(family)]
    except (OSError, ValueError):  # a kernel without sock_diag: the probe's shell prints the tables
        return holders(folder, dict(in_tables()))
    for address, port, _ in found:
        show("listener", address=address, port=port)
    show("listening", sockets=len(found))
    return holders(folder, {f"socket:[{inode}]": port for _, port, inode in found})


def asked(family: int) -> Iterator[tuple[str, int, int]]:
    """Address, port and inode of the family's listening sockets."""
    order = sys.byteorder
    wanted = bytes([family, _socket.IPPROTO_TCP, 0, 0]) + LISTEN_STATES.to_bytes(4, order)
    body = wanted + bytes(48)
    head = (HEADER_BYTES + len(body)).to_bytes(4, order)
    head += SOCK_DIAG_BY_FAMILY.to_bytes(2, order) + NLM_F_REQUEST_DUMP.to_bytes(2, order)
    plug = _socket.socket(AF_NETLINK, _socket.SOCK_RAW, NETLINK_SOCK_DIAG)
    try:
        plug.settimeout(LIMIT_S)
        plug.send(head + bytes(8) + body)
        while True:
            answer = plug.recv(1 << 16)
            while answer:
                size = int.from_bytes(answer[:4], order)
                kind = int.from_bytes(answer[4:6], order)
                if kind == NLMSG_DONE:
                    return
                if kind == NLMSG_ERROR or size < HEADER_BYTES + INODE_AT + 4:
                    raise ValueError("the kernel does not tell")
                yield row(family, answer[HEADER_BYTES:size])
                answer = answer[(size + 3) & ~3 :]
    finally:
        plug.close()


def row(family: int, message: bytes) -> tuple[str, int, int]:
    port = int.from_bytes(message[PORT_AT : PORT_AT + 2], "big")
    size = 4 if family == _socket.AF_INET else 16
    address = _socket.inet_ntop(family, message[ADDRESS_AT : ADDRESS_AT + size])
    return address, port, int.from_bytes(message[INODE_AT : INODE_AT + 4], sys.byteorder)


def in_tables() -> Iterator[tuple[str, int]]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as file:
                rows = [line.split() for line in file.readlines()[1:]]
        except OSError:
            continue
        for words in rows:
            if words[3] == "0A":
                yield f"socket:[{words[9]}]", int(words[1].rsplit(":", 1)[1], 16)


def holders(folder: str, ports: dict[str, int]) -> None:
    """Which process listens where; a command line is looked at for `folder`, never printed.

    Ends once every port's holder is found: each look into a process costs some tens of
    microseconds, so the sshd that we came through is looked at first.
    """
    wanted = set(ports.values())
    others = sorted(map(int, filter(str.isdigit, os.listdir("/proc"))))
    for pid in (*ancestors(), *others):
        if not wanted:
            return
        try:
            links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
            held = {ports[link] for link in links if link in ports} & wanted
            if not held:
                continue
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                ours = f"{folder}/".encode() in file.read()
            with open(f"/proc/{pid}/comm") as file:
                name = file.read().strip()
        except OSError:  # another user's, or gone meanwhile
            continue
        for port in held:
            show("holder", port=port, process=f"{name} (pid {pid})", ours=ours)
        wanted -= held


def ancestors() -> Iterator[int]:
    pid = os.getppid()
    while pid > 1:
        yield pid
        try:
            with open(f"/proc/{pid}/stat") as file:
                pid = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):  # gone meanwhile
            return

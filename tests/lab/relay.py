"""Forwards Ethernet frames between two interfaces with delay, jitter, loss and rate.

    python relay.py INTERFACE INTERFACE SETTINGS.json

Takes the place of tc-netem, which not every kernel has; needs CAP_NET_RAW. SETTINGS is read again
when it changes: {"delay_s": 0.02, "jitter_s": 0.005, "loss_ratio": 0.01, "rate_bits_per_s": 1e8},
for each direction.
"""

import heapq
import json
import os
import random
import select
import socket
import struct
import sys
import time

SOL_PACKET, PACKET_ADD_MEMBERSHIP, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING = 263, 1, 15, 23
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
ETH_P_ALL, PACKET_MR_PROMISC = 3, 1
VNET_HEADER_BYTES = 10
QUEUE_S = 0.2
"""Frames that would wait longer are dropped."""
Frame = tuple[float, int, int, bytes]


def main() -> None:
    near, far, path = sys.argv[1:4]
    ends = [_opened(near), _opened(far)]
    numbers = {end.fileno(): index for index, end in enumerate(ends)}
    poll = select.poll()
    for end in ends:
        poll.register(end, select.POLLIN)
    direction = [Direction(), Direction()]
    queue: list[Frame] = []
    settings = Settings(path)
    count = 0
    while True:
        settings.refresh()
        wait_s = 0.2 if not queue else max(0.0, queue[0][0] - time.monotonic())
        for handle, _ in poll.poll(int(wait_s * 1000)):
            index = numbers[handle]
            for frame in _received(ends[index]):
                due_s = direction[index].due_s(len(frame) - VNET_HEADER_BYTES, settings)
                if due_s is not None:
                    count += 1
                    heapq.heappush(queue, (due_s, count, 1 - index, frame))
        _send(queue, ends)


class Settings:
    """What is in the file now."""

    def __init__(self, path: str) -> None:
        self._path, self._changed_ns = path, 0
        self.delay_s = self.jitter_s = self.loss_ratio = self.rate_bits_per_s = 0.0

    def refresh(self) -> None:
        try:
            changed_ns = os.stat(self._path).st_mtime_ns
            if changed_ns == self._changed_ns:
                return
            with open(self._path) as file:
                said = json.load(file)
        except (OSError, ValueError):  # being written
            return
        self._changed_ns = changed_ns
        for name in ("delay_s", "jitter_s", "loss_ratio", "rate_bits_per_s"):
            setattr(self, name, float(said.get(name, 0)))


class Direction:
    """One way of the link: when its wire is free, and when its last frame leaves."""

    def __init__(self) -> None:
        self._free_s = self._last_s = 0.0

    def due_s(self, frame_bytes: int, settings: Settings) -> float | None:
        """When the frame leaves; None where it is lost. Frames keep their order."""
        if random.random() < settings.loss_ratio:
            return None
        now_s = due_s = time.monotonic()
        if settings.rate_bits_per_s:
            start_s = max(now_s, self._free_s)
            if start_s - now_s > QUEUE_S:
                return None
            due_s = self._free_s = start_s + frame_bytes * 8 / settings.rate_bits_per_s
        due_s += settings.delay_s + random.uniform(0, settings.jitter_s)
        self._last_s = max(due_s, self._last_s)
        return self._last_s


def _opened(interface: str) -> socket.socket:
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)  # receives nothing until bound
    end.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)  # frames pass unsegmented, checksums as they are
    end.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    for option in (SO_RCVBUFFORCE, SO_SNDBUFFORCE):
        end.setsockopt(socket.SOL_SOCKET, option, 32 << 20)
    end.bind((interface, ETH_P_ALL))
    end.setblocking(False)
    member = struct.pack("IHH8s", socket.if_nametoindex(interface), PACKET_MR_PROMISC, 0, b"")
    end.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP, member)
    return end


def _received(end: socket.socket) -> list[bytes]:
    frames: list[bytes] = []
    for _ in range(256):
        try:
            frames.append(end.recv(70_000))
        except OSError:  # nothing more, or the link is down
            break
    return frames


def _send(queue: list[Frame], ends: list[socket.socket]) -> None:
    now_s = time.monotonic()
    while queue and queue[0][0] <= now_s + 0.0003:
        _, _, index, frame = heapq.heappop(queue)
        try:
            ends[index].send(frame)
        except OSError as error:
            print("dropped", len(frame), "bytes:", error, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

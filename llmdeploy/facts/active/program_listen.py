"""Sent to a host: listens for its peers until it is told to end.

    python - '{"token": …, "name": …, "address": …, "ports": […], "limit_s": …}'

It is told over an abstract unix socket of this run's token: no file, no port.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import sys
import threading
import time
from typing import Any

from llmdeploy.facts.active.program_talk import MOST_BYTES, control, line
from llmdeploy.facts.active.program_watch import arm, show


class Listener:
    """Answers on all asked ports of one address until it is told to end."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.asked = asked
        self.name = asked["name"].encode()
        self.token = asked["token"].encode()

    def serve(self) -> None:
        told = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        address, opened, taken = self.asked["address"], [], []
        for port in [*self.asked["ports"], 0]:
            plug = socket.socket()
            plug.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                plug.bind((address, port))
                plug.listen(1024)
                opened.append(plug)
            except OSError as error:
                taken.append([port, error.strerror or str(error)])
        echo = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        ports = [plug.getsockname()[1] for plug in opened]
        try:
            echo.bind((address, 0))
            told.bind(control(self.asked["token"]))
        except OSError as error:
            return show("problem", reason=f"{address}: {error.strerror}")
        told.listen(8)
        threading.Thread(target=self.echo, args=(echo,), daemon=True).start()
        bound = {"ports": ports, "taken": taken, "udp": echo.getsockname()[1]}
        poll = select.poll()
        plugs = {plug.fileno(): plug for plug in [*opened, told]}
        for number in plugs:
            poll.register(number, select.POLLIN)
        while True:
            for number, _ in poll.poll():
                peer, _ = plugs[number].accept()
                if number != told.fileno():
                    threading.Thread(target=self.answer, args=(peer,), daemon=True).start()
                elif self.obeyed(peer, bound):
                    return show("ended")

    def obeyed(self, peer: socket.socket, bound: dict[str, Any]) -> bool:
        """Whether it was told to end; else it says what it listens on."""
        with peer:
            word = peer.recv(16)
            peer.sendall(json.dumps(bound).encode())
            return word == b"end"

    def echo(self, plug: socket.socket) -> None:
        while True:
            text, sender = plug.recvfrom(MOST_BYTES)
            if text.startswith(self.token):
                plug.sendto(text[:64] + struct.pack("!I", len(text)), sender)

    def answer(self, peer: socket.socket) -> None:
        with peer:
            try:
                peer.settimeout(30)
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                word, token = line(peer).split(b" ", 1)
                if token != self.token:
                    return
                peer.sendall(self.name + b" " + self.token + b"\n")
                if word == b"echo":
                    while text := peer.recv(64):
                        peer.sendall(text)
                if word == b"sink":
                    self.sink(peer)
            except (OSError, ValueError):
                return  # a stranger, or a peer that went away

    def sink(self, peer: socket.socket) -> None:
        """Counts what comes between the first byte and the last, by this host's clock."""
        buffer = bytearray(1 << 20)
        first = peer.recv_into(buffer)
        begun_s = last_s = time.perf_counter()
        count = 0
        while got := peer.recv_into(buffer):
            count += got
            last_s = time.perf_counter()
        peer.sendall(json.dumps([first + count, count, last_s - begun_s]).encode())


def main() -> None:
    asked = json.loads(sys.argv[1])
    arm(asked["limit_s"])
    Listener(asked).serve()
    os._exit(0)  # its threads may still wait for peers


if __name__ == "__main__":
    main()

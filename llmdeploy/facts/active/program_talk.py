"""What both ends between hosts share: this run's socket, and the first line of a connection."""

from __future__ import annotations

import socket

MOST_BYTES = 65535
"""Of a datagram."""


def control(token: str) -> str:
    """The abstract unix socket of the run with that token."""
    return f"\0llmdeploy-{token}"


def line(peer: socket.socket) -> bytes:
    """The first line that the peer sends, at most 256 bytes; ValueError where it closes before."""
    text = b""
    while not text.endswith(b"\n") and len(text) < 256:
        part = peer.recv(256)  # whoever speaks waits for the answer to its line
        if not part:
            raise ValueError("it closed the connection")
        text += part
    return text.strip()

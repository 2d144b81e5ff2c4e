"""JSON lines over a TCP connection whose two ends have proven that they know the same token."""

import hashlib
import hmac
import json
import secrets
import select
import socket
import time
from typing import Any

LONGEST_LINE_BYTES = 65536
"""Of one message; a longer one is no peer's. Source: own choice."""
HELLO_TIMEOUT_S = 10.0
"""A guest shows its token within it. Source: own choice."""


class Gone(Exception):
    """The other end closed, broke off or is not who it should be."""


class Line:
    """One connection."""

    def __init__(self, plug: socket.socket) -> None:
        plug.setblocking(True)
        plug.settimeout(HELLO_TIMEOUT_S)
        plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.plug = plug
        self._heard = b""
        self.heard_s = time.monotonic()
        """When the other end was last heard, monotonic seconds."""

    def send(self, **fields: Any) -> None:
        """Sends one line; Gone where it cannot leave."""
        try:
            self.plug.sendall(json.dumps(fields).encode() + b"\n")
        except OSError as error:
            raise Gone(str(error)) from error

    def receive(self, timeout_s: float) -> dict[str, Any] | None:
        """The next line; None where none comes in time; Gone where none will come."""
        deadline_s = time.monotonic() + timeout_s
        while b"\n" not in self._heard:
            left_s = deadline_s - time.monotonic()
            if not select.select([self.plug], [], [], max(0.0, left_s))[0]:
                return None
            try:
                part = self.plug.recv(65536)
            except OSError as error:
                raise Gone(str(error)) from error
            if not part or len(self._heard) > LONGEST_LINE_BYTES:
                raise Gone("the connection was closed")
            self._heard += part
        line, _, self._heard = self._heard.partition(b"\n")
        self.heard_s = time.monotonic()
        try:
            found = json.loads(line)
        except ValueError as error:
            raise Gone(f"sent {line[:40]!r}") from error
        return found if isinstance(found, dict) else {}

    def close(self) -> None:
        self.plug.close()


def listen(address: str, port: int) -> socket.socket:
    """A listening socket on that address alone; port 0 is a free one."""
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((address, port))
    server.listen(64)
    return server


def admit(plug: socket.socket, token: str) -> tuple[Line, dict[str, Any]]:
    """The line of one that knows the token, and what it said of itself; Gone otherwise."""
    line = Line(plug)
    nonce = secrets.token_hex(16)
    line.send(nonce=nonce)
    hello = _expect(line)
    if not hmac.compare_digest(str(hello.get("proof")), proof(token, "guest", nonce)):
        raise Gone("does not know the token")
    line.send(proof=proof(token, "host", str(hello.get("nonce"))))
    return line, hello


def join(address: str, port: int, token: str, **about: Any) -> Line:
    """The line to one that listens and knows the token; Gone otherwise."""
    try:
        line = Line(socket.create_connection((address, port), HELLO_TIMEOUT_S))
    except OSError as error:
        raise Gone(str(error)) from error
    nonce = secrets.token_hex(16)
    asked = _expect(line)
    line.send(nonce=nonce, proof=proof(token, "guest", str(asked.get("nonce"))), **about)
    if not hmac.compare_digest(str(_expect(line).get("proof")), proof(token, "host", nonce)):
        line.close()
        raise Gone("does not know the token")
    return line


def proof(token: str, side: str, nonce: str) -> str:
    """What only one that knows the token can say."""
    return hmac.new(token.encode(), f"{side}:{nonce}".encode(), hashlib.sha256).hexdigest()


def _expect(line: Line) -> dict[str, Any]:
    found = line.receive(HELLO_TIMEOUT_S)
    if found is None:
        line.close()
        raise Gone("said nothing")
    return found

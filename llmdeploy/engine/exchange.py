"""One HTTP exchange over ASGI: the body, one reply or a stream, and the client's leaving."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from llmdeploy.engine.fields import ApiError

Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]

BODY_LIMIT_BYTES = 4 * 2**20
_DISCARD_LIMIT_BYTES = 16 * 2**20
"""A body beyond the limit is read this far, so that its sender gets to see the answer."""


class ClientGone(Exception):
    """The client closed its connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A whole answer."""

    body: bytes
    status: int = 200
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True, kw_only=True)
class Exchange:
    """One request and what was sent for it."""

    scope: Mapping[str, Any]
    receive: Receive
    send: Send
    id: str
    status: int | None = None
    """What was sent as status; None before that."""
    _watch: "asyncio.Task[Mapping[str, Any]] | None" = field(default=None)

    def header(self, name: bytes) -> str | None:
        """A request header by its lower-case name."""
        found = (value for key, value in self.scope["headers"] if key == name)
        value = next(found, None)
        return None if value is None else value.decode("latin-1")

    async def body(self) -> bytes:
        """The whole body; 413 where it is larger than the limit, ClientGone where it ends early."""
        declared = self.header(b"content-length")
        parts: list[bytes] = []
        size = 0
        more = True
        while more:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            size += len(message.get("body", b""))
            if size <= BODY_LIMIT_BYTES:
                parts.append(message.get("body", b""))
            more = message.get("more_body", False) and size <= _DISCARD_LIMIT_BYTES
        if size > BODY_LIMIT_BYTES:
            raise ApiError(
                f"body: found {declared or f'more than {size}'} bytes, "
                f"needed at most {BODY_LIMIT_BYTES}",
                status=413,
                code="request_too_large",
                fix="shorten the request",
            )
        return b"".join(parts)

    def on_leave(self, call: Callable[[], None]) -> None:
        """Calls back once when the client closes its connection before the answer's end."""
        self._watch = asyncio.ensure_future(self.receive())
        self._watch.add_done_callback(lambda _: call())

    async def reply(self, reply: Reply) -> None:
        """Sends a whole answer."""
        headers = [("content-type", reply.content_type), ("x-request-id", self.id)]
        headers += [("content-length", str(len(reply.body))), *reply.headers]
        await self._begin(reply.status, headers)
        await self.send({"type": "http.response.body", "body": reply.body})

    async def chunk(self, body: bytes, *, last: bool = False) -> None:
        """Sends a part of an event stream; the first one also sends the head."""
        if self.status is None:
            headers = [("content-type", "text/event-stream; charset=utf-8")]
            headers += [("cache-control", "no-cache"), ("x-request-id", self.id)]
            await self._begin(200, headers)
        await self.send({"type": "http.response.body", "body": body, "more_body": not last})

    async def _begin(self, status: int, headers: list[tuple[str, str]]) -> None:
        self.status = status
        encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers]
        await self.send({"type": "http.response.start", "status": status, "headers": encoded})

    def close(self) -> None:
        """Stops watching the client."""
        if self._watch:
            self._watch.cancel()

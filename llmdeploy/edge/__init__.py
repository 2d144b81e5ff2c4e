"""The seam to the outside: what stages may ask of a host, of HTTP and of time."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from llmdeploy.errors import Unreachable


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """What a command on a host ended with."""

    argv: tuple[str, ...]
    exit_code: int
    stdout: str
    stderr: str


class Shell(Protocol):
    """One host: its commands and its files. `~` in paths is the user's home on that host."""

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        stdin: str = "",
        env: Mapping[str, str] | None = None,
    ) -> Completed:
        """The ended command; `env` is added to the host's. Unreachable past `timeout_s`
        (the command and its children are killed) or when the program does not exist."""
        ...

    def read(self, path: str) -> bytes | None:
        """The file's bytes, None where there is no such file."""
        ...

    def read_from(self, path: str, *, offset_bytes: int, limit_bytes: int | None = None) -> bytes:
        """The file's bytes from `offset_bytes` on, at most `limit_bytes` of them; empty where
        there is no such file."""
        ...

    def write(self, path: str, content: bytes, *, mode: int = 0o644) -> None:
        """Puts the file in place whole (fsync, rename), making its parents."""
        ...

    def create(self, path: str, content: bytes, *, mode: int = 0o644) -> bool:
        """Writes the file only if it does not exist, atomically; False where it does."""
        ...

    def append(self, path: str, content: bytes) -> None:
        """Adds to the end of the file and syncs it, making it and its parents."""
        ...

    def remove(self, path: str) -> None:
        """Removes the file or the whole folder; nothing happens where there is none."""
        ...

    def entries(self, path: str) -> tuple[str, ...]:
        """Sorted names in a folder; empty where there is no such folder."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """An HTTP answer; header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON; Unreachable when it is something else."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            found = self.body[:200].decode(errors="replace")
            raise Unreachable(
                f"answered {self.status} with {found!r}, needed JSON",
                fix="check which program listens on that address",
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One server-sent event: its data and when it arrived (monotonic seconds)."""

    at_s: float
    data: str


class Http(Protocol):
    """HTTP/1.1 to one endpoint; with `socket_path` over that unix socket instead of TCP."""

    def request(
        self,
        method: str,
        url: str,
        *,
        timeout_s: float,
        json_body: object = None,
        headers: Mapping[str, str] | None = None,
        socket_path: str | None = None,
    ) -> Response:
        """The whole answer, any status. Unreachable when no answer comes in `timeout_s`."""
        ...

    def stream(
        self,
        method: str,
        url: str,
        *,
        timeout_s: float,
        json_body: object = None,
        headers: Mapping[str, str] | None = None,
        socket_path: str | None = None,
    ) -> Iterator[Event]:
        """Server-sent events as they arrive, `[DONE]` included. Unreachable when the stream
        breaks, stalls for `timeout_s` or does not answer 200 (status and body in the message)."""
        ...


class Clock(Protocol):
    """Time: wall clock (seconds since 1970), monotonic seconds, and waiting."""

    def now_s(self) -> float: ...

    def monotonic_s(self) -> float: ...

    def sleep(self, duration_s: float) -> None: ...

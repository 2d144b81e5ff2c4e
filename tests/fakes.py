"""Fakes for the three edges: a host in memory, scripted HTTP, a clock that only moves when told."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from llmdeploy.edge import Completed, Event, Response
from llmdeploy.errors import Unreachable


@dataclass
class FakeShell:
    """Files in a dict; commands answered by `on_run` (default: exit 0, no output)."""

    files: dict[str, bytes] = field(default_factory=dict)
    on_run: Callable[[tuple[str, ...], str], Completed | None] | None = None
    ran: list[tuple[str, ...]] = field(default_factory=list)

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        stdin: str = "",
        env: Mapping[str, str] | None = None,
    ) -> Completed:
        self.ran.append(tuple(argv))
        answer = self.on_run(tuple(argv), stdin) if self.on_run else None
        return answer or Completed(argv=tuple(argv), exit_code=0, stdout="", stderr="")

    def read(self, path: str) -> bytes | None:
        return self.files.get(path)

    def read_from(self, path: str, *, offset_bytes: int, limit_bytes: int | None = None) -> bytes:
        end = None if limit_bytes is None else offset_bytes + limit_bytes
        return self.files.get(path, b"")[offset_bytes:end]

    def write(self, path: str, content: bytes, *, mode: int = 0o644) -> None:
        self.files[path] = content

    def create(self, path: str, content: bytes, *, mode: int = 0o644) -> bool:
        if path in self.files:
            return False
        self.files[path] = content
        return True

    def append(self, path: str, content: bytes) -> None:
        self.files[path] = self.files.get(path, b"") + content

    def remove(self, path: str) -> None:
        for name in [n for n in self.files if n == path or n.startswith(f"{path}/")]:
            del self.files[name]

    def entries(self, path: str) -> tuple[str, ...]:
        below = {n[len(path) + 1 :].split("/")[0] for n in self.files if n.startswith(f"{path}/")}
        return tuple(sorted(below))


@dataclass
class FakeHttp:
    """Answers by `on_request(method, url, body)` and `on_stream`; None means no answer."""

    on_request: Callable[[str, str, object], Response | None] = lambda method, url, body: None
    on_stream: Callable[[str, str, object], Sequence[Event] | None] = lambda method, url, body: None
    asked: list[tuple[str, str]] = field(default_factory=list)

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
        self.asked.append((method, url))
        answer = self.on_request(method, url, json_body)
        if answer is None:
            raise Unreachable(f"{url}: no answer", fix="start it")
        return answer

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
        self.asked.append((method, url))
        events = self.on_stream(method, url, json_body)
        if events is None:
            raise Unreachable(f"{url}: no answer", fix="start it")
        yield from events


@dataclass
class FakeClock:
    """Time stands still; `sleep` moves it at once and calls `on_sleep`."""

    time_s: float = 1_800_000_000.0
    on_sleep: Callable[[float], None] | None = None

    def now_s(self) -> float:
        return self.time_s

    def monotonic_s(self) -> float:
        return self.time_s

    def sleep(self, duration_s: float) -> None:
        self.time_s += duration_s
        if self.on_sleep:
            self.on_sleep(duration_s)

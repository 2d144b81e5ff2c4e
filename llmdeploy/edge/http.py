"""HTTP through httpx; its errors become Unreachable with the address and a fix."""

import socket
import time
from collections.abc import Iterator, Mapping

import httpx

from llmdeploy.edge import Event, Response
from llmdeploy.errors import Unreachable


class HttpxHttp:
    """Implements Http; one short-lived connection a call, so a dead peer is never reused."""

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
        try:
            with _client(timeout_s, socket_path) as client:
                answer = client.request(method, url, json=json_body, headers=dict(headers or {}))
        except (httpx.HTTPError, OSError) as error:
            raise _unreachable(url, socket_path, error) from error
        return Response(
            status=answer.status_code, headers=dict(answer.headers), body=answer.content
        )

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
        try:
            with (
                _client(timeout_s, socket_path) as client,
                client.stream(method, url, json=json_body, headers=dict(headers or {})) as answer,
            ):
                if answer.status_code != 200:
                    body = answer.read().decode(errors="replace")[:500]
                    raise Unreachable(
                        f"{url}: answered {answer.status_code}, needed 200: {body}",
                        fix="see the endpoint's log for that time",
                    )
                for line in answer.iter_lines():
                    if line.startswith("data:"):
                        yield Event(at_s=time.monotonic(), data=line[5:].strip())
        except (httpx.HTTPError, OSError) as error:
            raise _unreachable(url, socket_path, error) from error


def _client(timeout_s: float, socket_path: str | None) -> httpx.Client:
    if socket_path:
        # httpcore 1.0.9 leaves its unix socket open when connecting fails: find out first
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(timeout_s)
            probe.connect(socket_path)
    transport = httpx.HTTPTransport(uds=socket_path) if socket_path else httpx.HTTPTransport()
    return httpx.Client(timeout=timeout_s, transport=transport, trust_env=False)


def _unreachable(url: str, socket_path: str | None, error: Exception) -> Unreachable:
    place = f"{socket_path} {url}" if socket_path else url
    return Unreachable(
        f"{place}: {type(error).__name__}: {error or 'no answer'}",
        fix="check that the process behind that address runs: `llmdeploy status`, `llmdeploy logs`",
    )

"""HTTP against a real server on loopback and on a unix socket."""

import http.server
import pathlib
import socketserver
import threading
from collections.abc import Iterator

import pytest

from llmdeploy.edge.http import HttpxHttp
from llmdeploy.errors import Unreachable

HTTP = HttpxHttp()


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers JSON on /json, two events on /events, half a stream on /broken, 503 on /busy."""

    def do_GET(self) -> None:
        status = 503 if self.path == "/busy" else 200
        body = b'{"ok": true}' if self.path == "/json" else b"data: one\n\ndata: [DONE]\n\n"
        self.send_response(status)
        self.send_header("content-length", str(len(body) + (9 if self.path == "/broken" else 0)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "peer"  # a unix socket has no host to log

    def log_message(self, format: str, *args: object) -> None:
        """Keeps the test's output clean."""


class UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


def _served(server: socketserver.BaseServer) -> Iterator[socketserver.BaseServer]:
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def url() -> Iterator[str]:
    for server in _served(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)):
        yield f"http://127.0.0.1:{server.server_address[1]}"  # type: ignore[index]


@pytest.fixture
def socket_path(tmp_path: pathlib.Path) -> Iterator[str]:
    path = str(tmp_path / "http.sock")
    for _ in _served(UnixServer(path, Handler)):
        yield path


def test_a_request_gives_status_and_json(url: str) -> None:
    response = HTTP.request("GET", f"{url}/json", timeout_s=5)
    assert response.status == 200
    assert response.json() == {"ok": True}


def test_a_request_reaches_a_unix_socket(socket_path: str) -> None:
    response = HTTP.request("GET", "http://local/json", timeout_s=5, socket_path=socket_path)
    assert response.json() == {"ok": True}


def test_an_answer_that_is_not_json_is_shown(url: str) -> None:
    with pytest.raises(Unreachable, match="needed JSON"):
        HTTP.request("GET", f"{url}/events", timeout_s=5).json()


def test_a_stream_gives_its_events_in_order(url: str) -> None:
    events = list(HTTP.stream("GET", f"{url}/events", timeout_s=5))
    assert [event.data for event in events] == ["one", "[DONE]"]
    assert events[0].at_s <= events[1].at_s


def test_a_broken_stream_is_an_error_after_its_events(url: str) -> None:
    stream = HTTP.stream("GET", f"{url}/broken", timeout_s=5)
    assert next(stream).data == "one"
    with pytest.raises(Unreachable, match="RemoteProtocolError"):
        list(stream)


def test_a_stream_that_does_not_answer_200_says_what_it_answered(url: str) -> None:
    with pytest.raises(Unreachable, match="answered 503, needed 200: data: one"):
        list(HTTP.stream("GET", f"{url}/busy", timeout_s=5))


def test_nothing_listening_is_unreachable_with_a_fix() -> None:
    with pytest.raises(Unreachable, match="ConnectError") as caught:
        HTTP.request("GET", "http://127.0.0.1:9/", timeout_s=5)
    assert "llmdeploy status" in caught.value.fix
    assert caught.value.exit_code == 4

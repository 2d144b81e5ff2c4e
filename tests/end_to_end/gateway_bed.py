"""A real gateway before small test engines on loopback; all it starts is ended by `close`."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass

from llmdeploy.edge.clock import SystemClock
from llmdeploy.edge.http import HttpxHttp
from llmdeploy.edge.local import LocalShell
from llmdeploy.gateway import keys
from llmdeploy.gateway.apply import apply, update
from llmdeploy.gateway.change import with_keys, with_release, with_weights
from llmdeploy.gateway.confirm import confirm
from llmdeploy.gateway.process import ensure
from llmdeploy.gateway.state import GatewayRelease, GatewayState
from llmdeploy.observe.access_log import read_requests
from llmdeploy.release.layout import ServiceLayout
from llmdeploy.release.state import Endpoint
from llmdeploy.release.supervisord import Supervisord

HERE = pathlib.Path(__file__).parents[1] / "gateway"
OLD, NEW = "aaaa00000000", "bbbb00000000"
CHAT = "/v1/chat/completions"


@dataclass
class Upstream:
    """One test engine."""

    release: str
    replica: str
    port: int
    process: subprocess.Popen


class Bed:
    """A service directory, its gateway, and two releases: OLD with two replicas, NEW with one."""

    def __init__(self, folder):
        self.shell, self.http, self.clock = LocalShell(), HttpxHttp(), SystemClock()
        self.layout = ServiceLayout(root=str(folder / "chat"))
        self.supervisor = Supervisord(
            layout=self.layout, python=sys.executable, shell=self.shell, clock=self.clock
        )
        self.edges = {"layout": self.layout, "shell": self.shell, "clock": self.clock}
        self.upstreams = []
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def open(self):
        self.rules = keys.rules(**self.edges)
        self.key = self.issue("tester")
        for release, replica in ((OLD, "0"), (OLD, "1"), (NEW, "0")):
            self.start(release, replica)
        self.ensure(self.state())

    def close(self):
        try:
            self.supervisor.shutdown()
        finally:
            for upstream in self.upstreams:
                upstream.process.kill()
                upstream.process.communicate()

    def start(self, release, replica):
        process = subprocess.Popen(
            [sys.executable, HERE / "upstream.py", release, replica], stdout=subprocess.PIPE
        )
        port = int(process.stdout.readline())
        self.upstreams.append(
            Upstream(release=release, replica=replica, port=port, process=process)
        )

    def of(self, release):
        return [u for u in self.upstreams if u.release == release and u.process.poll() is None]

    def kill(self, upstream):
        upstream.process.kill()
        upstream.process.communicate()
        self.upstreams.remove(upstream)

    def known(self, release, *, max_concurrency=400):
        endpoints = tuple(
            Endpoint(replica=u.replica, host="local", address="127.0.0.1", port=u.port)
            for u in self.of(release)
        )
        return GatewayRelease(id=release, endpoints=endpoints, max_concurrency=max_concurrency)

    def state(self, **changes):
        settings = {
            "service": "chat", "host": "127.0.0.1", "port": self.port,
            "allow": ("127.0.0.0/8",), "key_rate_per_s": 5000.0,
            "public_keys": self.rules.public_keys, "max_queue": 0,
            "body_limit_bytes": 100_000, "request_timeout_s": 30.0,
        }  # fmt: skip
        state = GatewayState(**{**settings, **changes})
        for release in (OLD, NEW):
            state = with_release(state, self.known(release))
        return with_weights(state, {OLD: 1.0})

    def ensure(self, state):
        ensure(
            state, python=sys.executable, supervisor=self.supervisor, http=self.http, **self.edges
        )

    def reset(self, **changes):
        """Both releases whole, all traffic on OLD, no key rules but the first key's."""
        for release, replica in ((OLD, "0"), (OLD, "1"), (NEW, "0")):
            if not any(u.replica == replica for u in self.of(release)):
                self.start(release, replica)
        for upstream in self.upstreams:
            self.ask_upstream(upstream, "/set?healthy=1&error_ratio=0&delay_ms=0")
        apply(self.state(**changes), layout=self.layout, shell=self.shell)
        self.confirm()
        self.wait_healthy()

    def confirm(self):
        return confirm(http=self.http, **self.edges)

    def set(self, shares):
        """Shares of traffic, in effect when this returns."""
        update(lambda state: with_weights(state, shares), **self.edges)
        self.confirm()

    def refresh_keys(self):
        rules = keys.rules(**self.edges)
        update(lambda state: with_keys(state, rules), **self.edges)
        self.confirm()

    def issue(self, client, *, expires_s=3600, rate_per_s=None, **edges):
        issued = keys.add(
            client, service="chat", expires_s=expires_s, rate_per_s=rate_per_s,
            **(self.edges | edges),
        )  # fmt: skip
        self.last_record = issued.record
        return issued.token.get_secret_value()

    def ask(self, body=None, *, key=None, path=CHAT, headers=None, method=None):
        """An answer of the public listener; `key=""` sends none."""
        token = self.key if key is None else key
        secret = {"authorization": f"Bearer {token}"} if token else {}
        return self.http.request(
            method or ("GET" if body is None else "POST"), self.url + path, timeout_s=60,
            json_body=body, headers={**secret, **(headers or {})},
        )  # fmt: skip

    def ask_dark(self, release, path=CHAT, body=None):
        return self.http.request(
            "GET" if body is None else "POST", f"http://dark{path}", timeout_s=30,
            json_body=body, headers={"x-llmdeploy-release": release} if release else {},
            socket_path=self.layout.dark_socket,
        )  # fmt: skip

    def ask_upstream(self, upstream, path):
        return self.http.request(
            "GET", f"http://127.0.0.1:{upstream.port}{path}", timeout_s=60
        ).json()

    def admin(self, path):
        answer = self.http.request(
            "GET", f"http://admin{path}", timeout_s=5, socket_path=self.layout.admin_socket
        )
        return answer.body.decode()

    def wait_healthy(self):
        def healthy():
            lines = self.admin("/clusters").splitlines()
            flags = [line for line in lines if "::health_flags::" in line]
            return flags and all(line.endswith("healthy") for line in flags)

        wait(healthy)

    def records(self, since_s=0.0):
        """The access records after all lines are on disk."""
        time.sleep(0.5)
        return read_requests(self.layout, since_s=since_s, shell=self.shell)

    @contextlib.contextmanager
    def load(self, *options, clients=32, seconds=60, key=None):
        """The strict load beside the block; `.result()` ends it and gives its figures."""
        argv = [
            sys.executable, HERE / "load.py", "--url", self.url, "--key", key or self.key,
            "--clients", str(clients), "--seconds", str(seconds), *map(str, options),
            "--json", pathlib.Path(self.layout.root) / "load.json",
        ]  # fmt: skip
        process = subprocess.Popen(argv, stdout=subprocess.PIPE)
        try:
            yield Load(process, pathlib.Path(self.layout.root) / "load.json")
        finally:
            process.kill()
            process.communicate()


class Load:
    """A load that runs."""

    def __init__(self, process, path):
        self.process, self.path = process, path

    def result(self, *, stop=True):
        if stop:
            self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=120)
        return json.loads(self.path.read_text())


def wait(condition, *, timeout_s=15):
    """Waits until the condition holds; the last thing it gave is the failure's text."""
    deadline_s = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline_s, f"not within {timeout_s} s: {found!r}"
        time.sleep(0.05)
    return found


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def alive(pid):
    return os.path.exists(f"/proc/{pid}")

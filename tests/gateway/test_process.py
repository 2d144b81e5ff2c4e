import json

import pytest

from llmdeploy.edge import Completed, Response
from llmdeploy.errors import Refused, Unreachable
from llmdeploy.gateway.process import (
    active_requests,
    check_port,
    ensure,
    find_envoy,
    program,
)
from llmdeploy.release.supervise import GATEWAY, ProcessState
from tests.fakes import FakeClock, FakeHttp, FakeShell

from .test_render import LAYOUT, state


class OneProgram:
    """A supervisor that keeps the program in mind and says what it is told."""

    def __init__(self, *, runs):
        self.runs, self.programs, self.stopped = runs, {}, []

    def start(self, program):
        self.programs[program.name] = program

    def stop(self, name):
        self.programs.pop(name, None)
        self.stopped.append(name)

    def state(self, name):
        running = name in self.programs and self.runs
        ended = None if running else "exit code 1"
        return ProcessState(running=running, pid=7 if running else None, restarts=0, exit=ended)

    def list(self):
        return tuple(self.programs)

    def shutdown(self):
        self.programs.clear()


def answering(stdout="", stderr="", exit_code=0):
    def on_run(argv, stdin):
        if argv[-1] == "--version":
            return Completed(argv=argv, exit_code=exit_code, stdout="", stderr=stderr)
        return Completed(argv=argv, exit_code=0, stdout=stdout, stderr=stderr)

    return FakeShell(on_run=on_run)


FOUND = json.dumps({"path": "/venv/envoy"})


def test_envoy_is_started_by_its_binary_without_shared_memory():
    started = program(find_envoy("/venv/python", shell=answering(FOUND)), LAYOUT)
    assert started.name == GATEWAY
    assert started.argv[:2] == ("sh", "-c")
    assert started.argv[4:6] == ("/venv/envoy", "--disable-hot-restart")
    assert started.log_path == "/srv/llmdeploy/chat/gateway/envoy.log"


def test_a_binary_that_does_not_run_is_named_with_its_words():
    shell = answering(FOUND, stderr="version GLIBC_2.31 not found", exit_code=1)
    with pytest.raises(Refused, match=r"/venv/envoy: does not run on this host: .*GLIBC_2.31"):
        find_envoy("/venv/python", shell=shell)


def test_a_python_that_cannot_start_is_named_with_its_words():
    with pytest.raises(Refused, match="found No module named encodings"):
        find_envoy("/venv/python", shell=answering(stderr="No module named encodings"))


def test_an_envoy_that_ends_at_once_is_refused_with_its_last_error_and_stopped():
    shell, supervisor = answering(FOUND), OneProgram(runs=False)
    shell.files[f"{LAYOUT.gateway}/envoy.log"] = (
        b"[t][1][warning][main] fine\n[t][1][critical][main] unable to bind admin\n[t] bye\n"
    )
    with pytest.raises(Refused, match=r"Envoy ended \(exit code 1\): .*unable to bind admin"):
        ensure(
            state(), layout=LAYOUT, python="/venv/python", supervisor=supervisor, shell=shell,
            http=FakeHttp(), clock=FakeClock(),
        )  # fmt: skip
    assert supervisor.stopped == [GATEWAY]


def test_an_envoy_that_never_is_ready_is_unreachable_after_its_deadline_and_stopped():
    supervisor, clock = OneProgram(runs=True), FakeClock()
    with pytest.raises(Unreachable, match="not ready after 30 s"):
        ensure(
            state(), layout=LAYOUT, python="/venv/python", supervisor=supervisor,
            shell=answering(FOUND), http=FakeHttp(), clock=clock,
        )  # fmt: skip
    assert supervisor.stopped == [GATEWAY]


def test_a_taken_port_is_refused():
    table = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt uid inode\n"
        "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  0  0 4711 1\n"
    )
    shell = FakeShell(files={"/proc/net/tcp": table.encode()})
    with pytest.raises(Refused, match=r"127.0.0.1:8080 is held by a process of another user"):
        check_port(state(port=8080), shell=shell)
    check_port(state(port=8081), shell=shell)


def test_requests_in_the_gateway_are_those_of_its_own_listeners():
    text = (
        "http.admin.downstream_rq_active: 1\nhttp.dark.downstream_rq_active: 2\n"
        "http.public.downstream_rq_active: 3\n"
    )
    answer = Response(status=200, headers={}, body=text.encode())
    http = FakeHttp(on_request=lambda method, url, body: answer)
    assert active_requests(LAYOUT, http=http) == 5

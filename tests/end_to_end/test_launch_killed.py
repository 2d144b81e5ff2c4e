"""A launch whose command is killed at any moment can be gone on with or undone by the next one."""

import json
import os
import pathlib
import signal
import time

import pytest

from llmdeploy.release import journal, ports
from llmdeploy.release.state import Phase

from .benches import DEADLINE_S, command, engines, leftovers, open_bench, phases, run, site_of

pytestmark = pytest.mark.end_to_end
PHASES = ("planned", "staged", "started", "comm_ready", "loaded", "kv_ready", "warm", "probed")


@pytest.fixture
def bench(tmp_path_factory):
    with open_bench(tmp_path_factory.mktemp("k")) as bench:
        bench.behave(phase_s=0.3, child=True)
        yield bench


def kill_at(phase: str, plan: pathlib.Path, bench) -> None:
    """Starts a launch and kills its command as soon as the journal has the phase."""
    process = command("launch", str(plan), "--yes", state_root=bench.state_root)
    try:
        deadline_s = time.monotonic() + DEADLINE_S
        while phase not in phases(bench.state_root):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize("phase", PHASES)
def test_the_next_launch_finishes_what_a_killed_one_began(bench, phase):
    plan = bench.plan()
    kill_at(phase, bench.write(plan), bench)
    exit_code, stdout, stderr = run(
        "launch", str(bench.write(plan)), "--yes", "--json", state_root=bench.state_root
    )
    assert exit_code == 0, stderr
    assert json.loads(stdout)["phase"] == "probed"
    site = site_of(bench)
    assert len(engines(site, plan.id)) == 2  # the engine and its child: not started twice
    assert len(site.supervisor.list()) == 2  # it and the gateway


@pytest.mark.parametrize("phase", ["planned", "loaded"])
def test_stop_leaves_nothing_of_a_killed_launch(bench, phase):
    plan = bench.plan()
    kill_at(phase, bench.write(plan), bench)
    exit_code, stdout, stderr = run("stop", "chat", "--yes", state_root=bench.state_root)
    assert (exit_code, stdout) == (0, f"chat: stopped {plan.id}\n"), stderr
    assert leftovers(bench) == []
    site = site_of(bench)
    release = journal.state(site.layout, shell=site.shell).release(plan.id)
    assert release.phase == Phase.STOPPED
    assert release.endpoints[0].port not in ports.listening(shell=site.shell)
    assert not list(bench.state_root.rglob("*.sock"))


def test_a_killed_launch_makes_room_for_another_release(bench):
    cut_off, other = bench.plan(notes=("cut off",)), bench.plan()
    kill_at("started", bench.write(cut_off), bench)
    exit_code, _, stderr = run(
        "launch", str(bench.write(other)), "--yes", state_root=bench.state_root
    )
    assert exit_code == 0, stderr
    site = site_of(bench)
    assert engines(site, cut_off.id) == []
    state = journal.state(site.layout, shell=site.shell)
    assert [r.phase for r in state.releases] == [Phase.STOPPED, Phase.PROBED]


@pytest.mark.parametrize("stop_signal", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_launch_cleans_up_itself(bench, stop_signal):
    plan = bench.plan()
    process = command("launch", str(bench.write(plan)), "--yes", state_root=bench.state_root)
    try:
        deadline_s = time.monotonic() + DEADLINE_S
        while "started" not in phases(bench.state_root):
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
        process.send_signal(stop_signal)
        _, stderr = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 3
    assert "interrupted; nothing of it runs" in stderr
    assert engines(site_of(bench), plan.id) == []


def test_a_second_command_is_told_who_launches(bench):
    bench.behave(phase_s=2.0)
    plan = str(bench.write(bench.plan()))
    process = command("launch", plan, "--yes", state_root=bench.state_root)
    try:
        deadline_s = time.monotonic() + DEADLINE_S
        while "planned" not in phases(bench.state_root):
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
        exit_code, _, stderr = run("stop", "chat", "--yes", state_root=bench.state_root)
        assert exit_code == 3
        assert f"(process {process.pid}) has held the service" in stderr
        assert "to launch release" in stderr
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE_S)

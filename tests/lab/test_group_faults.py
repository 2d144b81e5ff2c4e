"""What a launch over two booted hosts does when something breaks: a pretended vLLM breaks on order.

A release that runs beside it answers through the gateway all the while.
"""

import json
import pathlib
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import httpx
import pytest

from .bed import Bed
from .cluster_story import ClusterStory, await_gone, events, phases, traffic
from .needs import need_nspawn

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(900)]
FAKE = pathlib.Path(__file__).with_name("fake_vllm")


@pytest.fixture(scope="module")
def story(
    tmp_path_factory: pytest.TempPathFactory, padded_store: pathlib.Path
) -> Iterator[ClusterStory]:
    """Two hosts, and a first release that runs on them."""
    need_nspawn()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    folder = tmp_path_factory.mktemp("faults")
    shutil.copytree(FAKE, folder / "vllm")
    shared = (str(folder / "vllm"),)
    with Bed(folder / "b", size=2, name="ldf", prefix="10.85", disk="2g", shared=shared) as bed:
        python = str(folder / "vllm" / "python")
        made = ClusterStory(bed, python=python, version="0.32.0", store=padded_store, port=port)
        try:
            begun_s = time.monotonic()
            first = made.plan()
            made.launch(first)
            print(f"first release in {time.monotonic() - begun_s:.1f} s: "
                  f"{phases(made, first.name)}")  # fmt: skip
            made.first = first.name
            yield made
        finally:
            made.run("stop", "chat", "--yes", "--purge", code=None)


@pytest.fixture
def second(story: ClusterStory) -> Iterator[pathlib.Path]:
    """A plan to launch beside the first; it is stopped after the test, its hosts are whole."""
    made = story.plan(note=f"second {time.monotonic_ns()}")
    yield made
    behave(story)
    story.run("stop", "chat", "--release", made.name, "--yes", code=None)


def behave(story: ClusterStory, **by_host: dict[str, object]) -> None:
    """How engines behave on the hosts named; on the others well."""
    for machine in story.bed.machines:
        machine.write("/etc/fake_vllm.json", json.dumps(by_host.get(machine.name, {})))


def engine_pids(story: ClusterStory, release: str, host: int) -> list[str]:
    found = story.bed.machines[host].run("ps", "-ww", "-eo", "pid=,args=").splitlines()
    lines = [line.split(None, 1) for line in found if "entrypoints.cli.main" in line]
    ports = {line[1].split("--port ")[1].split()[0] for line in lines}
    port = max(ports) if release != story.first else min(ports)
    return [pid for pid, words in lines if f"--port {port}" in words]


def test_a_second_release_runs_beside_the_first_and_stops_alone(
    story: ClusterStory, second: pathlib.Path
) -> None:
    with traffic(story, story.first) as old:
        story.launch(second)
        assert story.ask(second.name).startswith("one")
        seen = json.loads(story.run("status", "chat", "--json").stdout)
        shown = {r["id"]: [p["replica"] for p in r["processes"]] for r in seen["releases"]}
        assert shown[second.name] == ["r0@node1", "r0@node2"]
        logs = story.run("logs", "chat", "--release", second.name, "--host", "node2").stdout
        assert "Loading weights took" in logs
        story.run("stop", "chat", "--release", second.name, "--yes")
    assert old.failed == []


def test_a_rank_that_fails_is_named_with_its_cause_and_nothing_stays(
    story: ClusterStory, second: pathlib.Path
) -> None:
    message = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 448.00 MiB."
    behave(story, node2={"fail_at": "load", "message": message})
    with traffic(story, story.first) as old:
        begun_s = time.monotonic()
        done = story.launch(second, code=3)
        print(f"failed after {time.monotonic() - begun_s:.1f} s: {done.stderr}")
    assert "r0 rank 1 on node2" in done.stderr
    assert "device's memory" in done.stderr
    assert old.failed == []
    assert not [e for e in story.run("status", "chat", "--json").stdout.split() if "warm" in e]
    for host in (0, 1):
        units = story.bed.machines[host].run("sh", "-c", "ls /etc/systemd/system | grep llmdeploy")
        assert second.name not in units
        shared = story.bed.machines[host].run("ls", "/dev/shm").split()
        assert len(shared) == 1, shared


def test_a_dead_engine_restarts_its_whole_group(story: ClusterStory, second: pathlib.Path) -> None:
    story.launch(second)
    with traffic(story, story.first) as old:
        pids = engine_pids(story, second.name, 1)
        begun_s = time.monotonic()
        story.bed.machines[1].run("kill", "-9", *pids)
        while len([e for e in events(story, second.name, 0) if e["event"] == "met"]) < 2:
            assert time.monotonic() - begun_s < 60
            time.sleep(0.2)
        print(f"group formed anew {time.monotonic() - begun_s:.1f} s after kill -9")
        seen = [e for e in events(story, second.name, 0) if e["event"] == "ended"]
        assert (seen[0]["kind"], seen[0]["position"]) == ("peer", 1)
        deadline_s = time.monotonic() + 60
        while True:
            try:
                assert story.ask(second.name).startswith("one")
                break
            except AssertionError:
                assert time.monotonic() < deadline_s
                time.sleep(0.5)
    assert old.failed == []


def test_a_frozen_engine_is_restarted_by_its_pulse(
    story: ClusterStory, second: pathlib.Path
) -> None:
    behave(story)
    story.launch(second)
    behave(story, node1={"freeze": True})
    story.bed.machines[0].run("true")
    asked = threading.Thread(target=lambda: _ask_and_wait(story, second.name))
    asked.start()
    begun_s = time.monotonic()
    while not [e for e in events(story, second.name, 0) if e["event"] == "ended"]:
        assert time.monotonic() - begun_s < 240
        time.sleep(1)
    end = next(e for e in events(story, second.name, 0) if e["event"] == "ended")
    print(f"noticed after {time.monotonic() - begun_s:.0f} s: {end['what']}")
    assert end["kind"] == "frozen"
    behave(story)
    asked.join(120)


def _ask_and_wait(story: ClusterStory, release: str) -> None:
    with suppress(AssertionError, httpx.HTTPError):
        story.ask(release)


def test_a_host_cut_off_while_it_starts_fails_the_launch(
    story: ClusterStory, second: pathlib.Path
) -> None:
    behave(story, node1={"pause_s": 20.0}, node2={"pause_s": 20.0})
    cut = threading.Timer(25.0, lambda: story.bed.network.cut(story.bed.machines[1].plug))
    cut.start()
    begun_s = time.monotonic()
    try:
        done = story.launch(second, code=3)
    finally:
        cut.cancel()
        story.bed.network.heal(story.bed.machines[1].plug)
    print(f"failed {time.monotonic() - begun_s:.1f} s after the start: {done.stderr[-900:]}")
    assert "node2" in done.stderr


def test_another_version_on_one_host_is_refused_before_any_start(
    story: ClusterStory, second: pathlib.Path
) -> None:
    other = pathlib.Path(story.python).parent / "site" / "vllm-0.32.0.dist-info" / "METADATA"
    text = other.read_text()
    other.write_text(text.replace("0.32.0", "0.31.0"))
    try:
        done = story.launch(second, code=3)
    finally:
        other.write_text(text)
    assert "found vllm 0.31.0, needed 0.32.0" in done.stderr


def test_a_launch_that_was_killed_goes_on(story: ClusterStory, second: pathlib.Path) -> None:
    behave(story, node1={"pause_s": 4.0}, node2={"pause_s": 4.0})
    with story.launching(second) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "started after" in line:
                process.kill()
                break
    done = story.launch(second)
    assert "goes on from started" in done.stderr
    assert story.ask(second.name).startswith("one")


def test_stop_leaves_no_process_segment_port_or_unit(story: ClusterStory) -> None:
    story.run("stop", "chat", "--yes")
    assert await_gone(story) == {machine.name: [] for machine in story.bed.machines}

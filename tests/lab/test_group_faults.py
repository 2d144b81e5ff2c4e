"""What a launch over two booted hosts does when something breaks: a pretended vLLM breaks on order.

A release that runs beside it answers through the gateway all the while.
"""

import json
import os
import pathlib
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import httpx
import pytest

from .bed import Bed
from .cluster_story import ClusterStory, await_gone, events, phases, traffic
from .machine import Machine
from .needs import need_nspawn
from .struck import holding, processes

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(900)]
FAKE = pathlib.Path(__file__).with_name("fake_vllm")
OTHER_MODEL = "smollm2-135m-instruct"
"""That no host has at first."""
STORE = "/root/.local/share/llmdeploy/models"


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


def why_not(story: ClusterStory, plan: pathlib.Path) -> str:
    """What a launch of the plan that must fail says; prints after how many seconds."""
    begun_s = time.monotonic()
    said = story.launch(plan, code=3).stderr
    print(f"failed after {time.monotonic() - begun_s:.1f} s: {said[-900:]}")
    return said


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
        said = why_not(story, second)
    assert "r0 rank 1 on node2" in said
    assert "device's memory" in said
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
        _await_answer(story, second.name)
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


def test_a_disk_that_fills_while_a_model_comes_is_named(
    story: ClusterStory, second: pathlib.Path
) -> None:
    two = story.bed.machines[1]
    with _slow_staging(story), traffic(story, story.first) as old:
        begun_s = time.monotonic()
        with story.launching(story.plan(model=OTHER_MODEL)) as process:
            assert process.stderr is not None
            while not _coming(two):
                assert process.poll() is None, process.stderr.read()
                time.sleep(0.1)
            full_s = time.monotonic()
            free_bytes = int(two.run("df", "--output=avail", "-B1", "/root").split()[1])
            two.run("fallocate", "-l", str(free_bytes - 2**20), "/root/filled")
            try:
                told = process.stderr.read()
                print(f"full {full_s - begun_s:.1f} s after the start, failed "
                      f"{time.monotonic() - full_s:.1f} s later: {told[-600:]}")  # fmt: skip
                assert process.wait() == 3
            finally:
                two.run("rm", "/root/filled")
    assert "node2: [Errno 28] No space left on device" in told
    assert not _staging(story)
    assert old.failed == []


def test_a_damaged_shard_is_named_and_never_served(
    story: ClusterStory, second: pathlib.Path, padded_store: pathlib.Path
) -> None:
    """Of two bytes one is another: found by its hash where it comes, and taken from there."""
    mine = story.folder / ".local/share/llmdeploy/models"
    store, whole = story.folder / "damaged", mine.readlink()
    for machine in story.bed.machines:
        machine.run("sh", "-c", f"cd {STORE}; rm -rf .objects/* {OTHER_MODEL}*")
    shutil.copytree(padded_store / OTHER_MODEL, store / OTHER_MODEL)
    plan = story.plan(model=OTHER_MODEL)
    with (store / OTHER_MODEL / "model.safetensors").open("r+b") as shard:
        shard.seek(-1, os.SEEK_END)
        (last,) = shard.read(1)
        shard.seek(-1, os.SEEK_END)
        shard.write(bytes([last ^ 1]))
    mine.unlink()
    mine.symlink_to(store)
    try:
        with traffic(story, story.first) as old:
            said = why_not(story, plan)
    finally:
        mine.unlink()
        mine.symlink_to(whole)
        shutil.rmtree(store)
    assert "node1: model.safetensors: came with sha256" in said
    assert "llmdeploy models verify" in said
    assert not _staging(story)
    assert old.failed == []


@contextmanager
def _slow_staging(story: ClusterStory) -> Iterator[None]:
    """So slow that a copy can be struck on its way."""
    cluster = story.folder / "cluster.yaml"
    text = cluster.read_text()
    cluster.write_text(f"{text}staging: {{bandwidth: 50MB/s}}\n")
    try:
        yield
    finally:
        cluster.write_text(text)


def _coming(machine: Machine) -> bool:
    """Whether a file of a model is on its way to the host."""
    return ".part" in machine.run("ls", f"{STORE}/.objects")


def _staging(story: ClusterStory) -> list[str]:
    """Programs that copy models, on any host."""
    return [pid for machine in story.bed.machines for pid in processes(machine, ".pyz pass ")]


def test_a_port_where_another_program_listens_is_passed_over(
    story: ClusterStory, second: pathlib.Path
) -> None:
    port = _port(story, second)
    with holding(story.bed.machines[1], port, listens=True):
        story.launch(second)
    assert engine_port(story, second.name) > port
    assert story.ask(second.name).startswith("one")


def test_a_port_that_is_taken_when_the_engine_binds_it_is_named(
    story: ClusterStory, second: pathlib.Path
) -> None:
    """One that is bound but not listened on shows in no list."""
    port = _port(story, second)
    with holding(story.bed.machines[0], port, listens=False), traffic(story, story.first) as old:
        said = why_not(story, second)
    assert "r0 rank 0 on node1" in said
    assert "Address already in use" in said
    assert old.failed == []


def _port(story: ClusterStory, plan: pathlib.Path) -> int:
    """Where the head of the plan's release would listen if it were launched now."""
    words = ("launch", str(plan), "--inventory", "cluster.yaml", "--dry-run")
    shown = story.run(*words).stdout
    return int(shown.split("--port ")[1].split()[0])


def engine_port(story: ClusterStory, release: str) -> int:
    seen = json.loads(story.run("status", "chat", "--json").stdout)
    found = next(r for r in seen["releases"] if r["id"] == release)
    return int(found["endpoints"][0]["port"])


def test_of_two_operators_at_once_the_later_one_is_refused(
    story: ClusterStory, second: pathlib.Path
) -> None:
    behave(story, node1={"pause_s": 2.0}, node2={"pause_s": 2.0})
    other = story.plan(note=f"other {time.monotonic_ns()}")
    with traffic(story, story.first) as old, story.launching(second) as process:
        assert process.stderr is not None
        while "all-reduce" not in (line := process.stderr.readline()):
            assert line, process.wait()
        said = why_not(story, other)
        process.stderr.read()
        assert process.wait() == 0
    assert f"(process {process.pid}) has held the service for" in said
    assert f"to launch release {second.name}" in said
    assert old.failed == []


def test_groups_form_anew_when_a_host_that_lost_its_power_is_back(
    story: ClusterStory, second: pathlib.Path
) -> None:
    story.launch(second)
    two, known = story.bed.machines[1], len(events(story, second.name, 0))
    begun_s = time.monotonic()
    two.power_off()
    while not (ends := [e for e in events(story, second.name, 0)[known:] if e["event"] == "ended"]):
        assert time.monotonic() - begun_s < 60
        time.sleep(0.2)
    noticed_s = time.monotonic() - begun_s
    two.power_on()
    story.bed.network.heal(two.plug)
    two.wait(limit_s=60)
    for release in (second.name, story.first):
        _await_answer(story, release)
    print(f"noticed after {noticed_s:.1f} s ({ends[0]['what']}), both releases answer "
          f"{time.monotonic() - begun_s:.1f} s after the power was lost")  # fmt: skip
    assert "rank 1 said nothing" in str(ends[0]["what"])


def _await_answer(story: ClusterStory, release: str) -> None:
    deadline_s = time.monotonic() + 60
    while True:
        try:
            assert story.ask(release).startswith("one")
            return
        except (AssertionError, httpx.HTTPError):
            assert time.monotonic() < deadline_s
            time.sleep(0.5)


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

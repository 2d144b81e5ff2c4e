"""Real vLLM (its CPU build) over two booted hosts: launched beside a running release, asked through
the gateway, given all traffic and rolled back, struck by faults, stopped without a trace.

The old release runs on node1 alone, so that all faults can strike node2.
"""

import json
import os
import pathlib
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import httpx
import pytest

from llmdeploy.edge.clock import SystemClock

from .bed import Bed
from .cluster_story import Asked, ClusterStory, await_gone, events, one_core_each, phases, traffic
from .needs import need_nspawn
from .struck import FAULTS, REFUSALS, boot_id, inventory, processes, second

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(1800)]
START_LIMIT_S = 600.0
"""For a group to form anew and answer: a minute on two idle cores, many on crowded ones."""
POLICY = "release: {steps: [50%, 100%], min_requests: 20, slower_ratio: 100%}\n"
"""Two shares and few requests: what is shown is the way, not the judge's eye."""
STATES = ("staged", "started", "comm_ready", "loaded", "kv_ready", "warm", "probed")


@pytest.fixture(scope="module")
def story(
    tmp_path_factory: pytest.TempPathFactory, vllm_python: str, padded_store: pathlib.Path
) -> Iterator[ClusterStory]:
    """Two hosts with vLLM, the old release on the first; whatever the tests started is stopped
    after them."""
    need_nspawn()
    latest_s = float(os.environ.get("LLMDEPLOY_TEST_LATEST", "inf"))
    if SystemClock().now_s() > latest_s:
        pytest.skip("ten minutes of vLLM would end too late: LLMDEPLOY_TEST_LATEST has passed")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    folder = tmp_path_factory.mktemp("group") / "b"
    shared = (str(pathlib.Path(vllm_python).parents[1]), sys.base_prefix)
    with Bed(folder, size=2, name="ldg", prefix="10.84", disk="2g", shared=shared) as bed:
        one_core_each(bed)
        made = ClusterStory(
            bed,
            python=vllm_python,
            version=pathlib.Path(vllm_python).parents[1].name.removeprefix("vllm-"),
            store=padded_store,
            port=port,
        )
        with (made.folder / "service.yaml").open("a") as service:
            service.write(POLICY)
        try:
            made.first = _launched(made, made.plan(hosts=1))
            yield made
        finally:
            made.run("stop", "chat", "--yes", "--purge", code=None)


@pytest.fixture(scope="module")
def split(story: ClusterStory) -> str:
    """A release whose tensors are split over both hosts."""
    return _launched(story, story.plan())


def light_traffic(story: ClusterStory) -> AbstractContextManager[Asked]:
    """Requests to the old release that leave its core to the ranks that start there."""
    return traffic(story, story.first, tokens=4, pause_s=1.0)


def _launched(story: ClusterStory, plan: pathlib.Path) -> str:
    begun_s = time.monotonic()
    done = story.launch(plan)
    took_s = time.monotonic() - begun_s
    print(f"{plan.name} launched in {took_s:.0f} s: {phases(story, plan.name)}")
    assert "KV tokens of" in done.stderr
    return plan.name


def test_a_pipeline_over_two_hosts_answers_beside_a_release_and_stops_alone(
    story: ClusterStory,
) -> None:
    """Its launch is killed at each state, and gone on with."""
    plan = story.plan(pipeline=True)
    with light_traffic(story) as old:
        try:
            for state in STATES:
                _killed_at(story, plan, state)
            assert "already launched" in story.launch(plan).stderr
            starts = [event for event in events(story, plan.name, 1) if event["event"] == "started"]
            assert len(starts) == 1  # each launch went on with the engines of the one before
            assert "4" in story.ask(plan.name)
        finally:
            story.run("stop", "chat", "--release", plan.name, "--yes")
    assert old.failed == []
    assert [inventory(machine)[:2] for machine in story.bed.machines] == [(1, 1), (0, 0)]


def _killed_at(story: ClusterStory, plan: pathlib.Path, state: str) -> None:
    """A launch whose command is killed as soon as it says that the release has come to a state."""
    with story.launching(plan) as process:
        assert process.stderr is not None
        said, begun_s = [], time.monotonic()
        for line in process.stderr:
            said.append(line)
            if f": {state} after" in line:
                process.kill()
                break
        assert process.wait() == -9, "".join(said)
    print(f"killed {time.monotonic() - begun_s:.1f} s after its start: {line.rstrip()}")


def test_a_link_cut_during_the_proof_fails_the_launch_and_nothing_stays(
    story: ClusterStory,
) -> None:
    with light_traffic(story) as old, story.launching(story.plan(note="cut off")) as process:
        assert process.stderr is not None
        while not processes(second(story), "rank_first"):
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.1)
        time.sleep(1.0)  # torch is being imported; what looks for the model is done
        begun_s = time.monotonic()
        story.bed.network.cut(second(story).plug)
        try:
            told = process.stderr.read()
            took_s = time.monotonic() - begun_s
        finally:
            story.bed.network.heal(second(story).plug)
        print(f"a link cut during the proof: failed after {took_s:.1f} s: {told[-600:]}")
        assert process.wait() == 3
    assert old.failed == []
    assert "node2" in told
    assert "the connection was lost" in told or "no route" in told  # as the cut met it
    assert took_s < 60.0
    _await_none(story, "rank_first")
    assert inventory(second(story)) == (0, 0, 0)


@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_start_is_named(story: ClusterStory, name: str) -> None:
    refusal, before = REFUSALS[name], [inventory(machine) for machine in story.bed.machines]
    with light_traffic(story) as old:
        _refused(story, story.plan(**refusal.plan), name, refusal.told, refusal.within_s)
    assert old.failed == []
    assert [inventory(machine) for machine in story.bed.machines] == before


def _refused(
    story: ClusterStory, plan: pathlib.Path, name: str, told: tuple[str, ...], within_s: float
) -> None:
    begun_s = time.monotonic()
    done = story.launch(plan, code=3)
    took_s = time.monotonic() - begun_s
    print(f"{name}: refused after {took_s:.1f} s: {done.stderr[done.stderr.index('error:') :]}")
    assert [words for words in told if words not in done.stderr] == []
    assert took_s < within_s


def _await_none(story: ClusterStory, words: str) -> None:
    """Programs that nobody reads any more end by themselves."""
    deadline_s = time.monotonic() + 30.0
    while any(processes(machine, words) for machine in story.bed.machines):
        assert time.monotonic() < deadline_s
        time.sleep(0.2)


def test_tensors_split_over_two_hosts_answer_through_the_gateway(
    story: ClusterStory, split: str
) -> None:
    assert "4" in story.ask(split)
    assert "4" in story.ask(story.first)
    again = story.launch(story.plan())
    assert "already launched" in again.stderr


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_ends_the_group_at_once_and_it_forms_anew(
    story: ClusterStory, split: str, name: str
) -> None:
    fault, before, boot = FAULTS[name], inventory(second(story)), boot_id(second(story))
    with light_traffic(story) as old, traffic(story, split) as new:
        while not new.took_s:
            time.sleep(0.1)
        known = len(_ends(story, split))
        begun_s = time.time()
        fault.strike(story)
        try:
            while len(ends := _ends(story, split)) == known:
                assert time.time() - begun_s < fault.within_s + 30.0
                time.sleep(0.2)
        finally:
            fault.mend(story)
        end = ends[known]
        noticed_s = float(end["at_s"]) - begun_s
        answered_s = _await_answer(story, split, begun_s)
    print(
        f"{name}: noticed after {noticed_s:.1f} s ({end['what']}), answers again after "
        f"{answered_s:.0f} s; a request of the group waited at most {new.longest_s:.1f} s, "
        f"{len(new.failed)} failed: {sorted(set(new.failed))}; of the old release's "
        f"{len(old.took_s) + len(old.failed)} requests {len(old.failed)} failed"
    )
    assert old.failed == []
    assert fault.told in str(end["what"])
    assert noticed_s < fault.within_s
    assert "4" in story.ask(split)
    assert inventory(second(story)) == before
    assert (boot_id(second(story)) != boot) == ("reboot" in name)


def _ends(story: ClusterStory, release: str) -> list[dict[str, Any]]:
    return [event for event in events(story, release, 0) if event["event"] == "ended"]


def _await_answer(story: ClusterStory, release: str, begun_s: float) -> float:
    """Seconds from then until the release answers."""
    while time.time() - begun_s < START_LIMIT_S:
        try:
            story.ask(release, tokens=1)
            return time.time() - begun_s
        except (AssertionError, httpx.HTTPError):
            time.sleep(0.5)
    raise AssertionError(f"{release} does not answer {START_LIMIT_S:g} s after the fault")


def test_a_release_over_two_hosts_gets_all_traffic_and_gives_it_back(
    story: ClusterStory, split: str
) -> None:
    """The group is live, then the release on one host is, then the group again."""
    with light_traffic(story) as other, traffic(story, split, tokens=4, pause_s=1.0) as group:
        took = [_verified(story, split), _verified(story, story.first)]
        begun_s = time.monotonic()
        story.run("rollback", "chat", "--reason", "shown", "--yes")
        back_s = time.monotonic() - begun_s
        assert _shares(story) == {split: 1.0}
    shown = [f"{one['release']} over {one['old_release']} {one['took_s']:.0f} s" for one in took]
    print(f"verified {', '.join(shown)}; rolled back in {back_s:.1f} s")
    assert [one["old_release"] for one in took] == [None, split]
    assert [[v["share"] for v in one["verdicts"]] for one in took] == [[1.0], [0.5, 1.0]]
    assert (other.failed, group.failed) == ([], [])


def _verified(story: ClusterStory, release: str) -> dict[str, Any]:
    """How `verify` ended: promoted, with all traffic."""
    done = story.run("verify", "chat", "--release", release, "--yes", "--json")
    outcome: dict[str, Any] = json.loads(done.stdout)
    assert (outcome["release"], outcome["result"]) == (release, "promoted"), done.stderr
    assert _shares(story) == {release: 1.0}
    return outcome


def _shares(story: ClusterStory) -> dict[str, float]:
    """Of the traffic, by release."""
    status = json.loads(story.run("status", "chat", "--json").stdout)
    return {one["release"]: one["share"] for one in status["weights"]}


def test_stop_leaves_no_process_segment_or_port(story: ClusterStory, split: str) -> None:
    story.run("stop", "chat", "--yes")
    assert await_gone(story) == {machine.name: [] for machine in story.bed.machines}

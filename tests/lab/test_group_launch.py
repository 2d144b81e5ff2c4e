"""vLLM over two booted hosts: launched, asked through the gateway, stopped without a trace."""

import pathlib
import socket
import sys
import time
from collections.abc import Iterator

import pytest

from .bed import Bed
from .cluster_story import ClusterStory, await_gone, one_core_each, phases
from .needs import need_nspawn

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def story(
    tmp_path_factory: pytest.TempPathFactory, vllm_python: str, padded_store: pathlib.Path
) -> Iterator[ClusterStory]:
    """Two hosts with vLLM and no model; whatever the tests started is stopped after them."""
    need_nspawn()
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
        try:
            yield made
        finally:
            made.run("stop", "chat", "--yes", "--purge", code=None)


def test_tensors_split_over_two_hosts_answer_through_the_gateway(story: ClusterStory) -> None:
    begun_s = time.monotonic()
    plan = story.plan()
    done = story.launch(plan)
    print(f"launched in {time.monotonic() - begun_s:.0f} s: {phases(story, plan.name)}")
    print(done.stderr)
    assert "KV tokens of" in done.stderr
    answer = story.ask(plan.name)
    print(f"answered {answer!r}")
    assert "4" in answer
    again = story.launch(plan)
    assert "already launched" in again.stderr


def test_a_pipeline_over_the_same_hosts_answers_beside_it(story: ClusterStory) -> None:
    first = story.plan()
    plan = story.plan(pipeline=True)
    begun_s = time.monotonic()
    done = story.launch(plan)
    print(f"launched in {time.monotonic() - begun_s:.0f} s: {phases(story, plan.name)}")
    assert "KV tokens of" in done.stderr
    assert "4" in story.ask(plan.name)
    assert "4" in story.ask(first.name)


def test_stop_leaves_no_process_segment_or_port(story: ClusterStory) -> None:
    story.run("stop", "chat", "--yes")
    assert await_gone(story) == {machine.name: [] for machine in story.bed.machines}

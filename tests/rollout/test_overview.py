"""What `status` shows, from a world at rest and one in the middle of a step."""

import pytest

from llmdeploy.observe.requests import Ending, RequestRecord
from llmdeploy.release.state import Standing
from llmdeploy.rollout.overview import overview, quantile, traffic

from .world import World


def record(release="a", *, ending=Ending.OK, ttft_s=0.2, probe=False):
    return RequestRecord(
        id="1", started_s=0.0, release=release, served_by=release, ending=ending, status=200,
        probe=probe, duration_s=ttft_s + 1.0, ttft_s=ttft_s, prompt_tokens=5, completion_tokens=11,
    )  # fmt: skip


def test_key_figures_are_of_the_releases_own_clients():
    records = [
        record(ttft_s=0.1), record(ttft_s=0.3), record(ending=Ending.FAILED),
        record(ending=Ending.CANCELLED), record(probe=True), record("b"),
    ]  # fmt: skip
    found = traffic(records, "a", window_s=100.0)
    assert (found.requests, found.failed) == (3, 1)
    assert (found.ttft_p50_s, found.ttft_p95_s) == (0.3, 0.3)
    assert found.tpot_p50_s == pytest.approx(0.1)  # 1 s over 10 tokens
    assert found.output_tokens_per_s == pytest.approx(0.44)  # 4 x 11 tokens in 100 s


def test_quantiles_are_nearest_ranks_and_none_without_values():
    values = [float(n) for n in range(1, 101)]
    assert (quantile(values, 0.5), quantile(values, 0.95)) == (51.0, 96.0)
    assert quantile([], 0.5) is None


def test_a_gray_step_is_shown_with_its_weights_and_what_to_do():
    world = World()
    old, new = world.live(), world.launch(batched_tokens=32)
    world.verify(once=True)
    world.clock.sleep(5)
    seen = overview(site=world.site)
    assert {w.release: w.share for w in seen.weights} == {old: 0.95, new: 0.05}
    assert seen.weights_confirmed
    assert seen.gateway_running
    assert [(v.id, v.standing, v.healthy) for v in seen.releases] == [
        (old, Standing.LIVE, True),
        (new, Standing.CANDIDATE, True),
    ]
    assert seen.releases[0].traffic.requests > 50
    assert f"release {new} is at its step of 5 %" in seen.hints[0]


def test_weights_that_were_written_but_not_confirmed_are_told():
    world = World()
    old = world.live()
    world.launch(batched_tokens=32)
    world.verify(once=True)
    world.weigh({old: 1.0})
    assert not overview(site=world.site).weights_confirmed


def test_a_dead_engine_and_a_dark_candidate_are_hinted_at():
    world = World()
    world.live()
    new = world.launch(batched_tokens=32, alive=False)
    seen = overview(site=world.site)
    assert seen.releases[1].healthy is False
    assert seen.releases[1].engine is None
    assert seen.hints == (
        f"release {new} is dark: llmdeploy verify chat",
        f"release {new} has a dead process: llmdeploy logs chat --release {new}",
    )


def test_a_gateway_that_does_not_run_is_told():
    world = World()
    live = world.live()
    world.launch(batched_tokens=32)
    world.envoy_answers = False
    seen = overview(site=world.site)
    assert not seen.gateway_running
    hint = next(hint for hint in seen.hints if "the gateway does not run" in hint)
    assert hint.endswith(
        f"launch the live release again: llmdeploy launch {world.site.layout.release(live)}"
    )

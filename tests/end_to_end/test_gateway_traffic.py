"""Shares, shifts and failures as clients meet them: real Envoy, strict streaming clients."""

import time

import pytest

from llmdeploy.gateway.apply import apply
from llmdeploy.gateway.change import with_release, with_weights
from llmdeploy.gateway.clusters import FIRST
from llmdeploy.observe.requests import Ending

from .gateway_bed import NEW, OLD, wait

pytestmark = pytest.mark.end_to_end


@pytest.mark.parametrize("share", [0.05, 0.25, 0.5, 1.0])
def test_a_release_gets_its_share_of_the_requests(bed, share):
    bed.set({OLD: 1 - share, NEW: share})
    with bed.load("--max-tokens", 2, "--itl-ms", 1, clients=16, seconds=1.5) as load:
        figures = load.result(stop=False)
    got = figures["releases"].get(NEW, {"requests": 0})["requests"]
    requests = figures["requests"]
    print(f"asked {share:.0%}, got {got}/{requests} = {got / requests:.2%}")
    spread = 5 * (share * (1 - share) * requests) ** 0.5  # five standard deviations
    assert figures["ok"] == requests > 200
    assert abs(got - share * requests) <= spread


def test_moving_the_weights_breaks_no_stream(bed):
    with bed.load("--max-tokens", 40, "--itl-ms", 10) as load:
        time.sleep(1)
        for share in (0.05, 0.25, 0.5, 1.0, 0.5, 0.0, 1.0):
            bed.set({OLD: 1 - share, NEW: share})
            time.sleep(0.7)
        figures = load.result()
    print({key: figures[key] for key in ("requests", "ok", "broken", "non_2xx")})
    assert figures["broken"] == figures["non_2xx"] == 0
    assert figures["ok"] == figures["requests"] > 200
    assert figures["releases"].keys() == {OLD, NEW}


def test_killing_the_candidate_breaks_its_streams_in_flight_and_nothing_else(bed):
    since_s = time.time()
    bed.set({OLD: 0.5, NEW: 0.5})
    # a large process dies slowly: its sockets close after its memory is freed
    bed.ask_upstream(bed.of(NEW)[0], "/grow?1500000000")
    bed.wait_healthy()
    with bed.load("--max-tokens", 40, "--itl-ms", 10) as load:
        time.sleep(2)
        in_flight = bed.ask_upstream(bed.of(NEW)[0], "/counts")["inflight"]
        killed_s = time.time()
        bed.kill(bed.of(NEW)[0])
        time.sleep(3)
        figures = load.result()
    broken = [r for r in figures["results"] if r["kind"] not in ("ok", "status")]
    print(f"in flight {in_flight}, broken {len(broken)}, of {figures['requests']}")
    assert broken
    assert {r["release"] for r in broken} == {NEW}
    assert all(r["started_s"] <= killed_s for r in broken)
    assert len(broken) <= in_flight + 5  # those that came between the count and the kill
    assert figures["non_2xx"] == 0
    after = [r for r in figures["results"] if r["started_s"] > killed_s + 0.2]
    rescued = [r for r in after if r["release"] == NEW]
    assert rescued
    assert {r["served_by"] for r in rescued} == {OLD}
    failed = [r for r in bed.records(since_s) if r.ending == Ending.FAILED]
    assert len(failed) == len(broken)
    assert {(r.release, r.status) for r in failed} == {(NEW, 200)}  # status alone does not tell


def test_a_stream_that_breaks_is_a_failure_of_the_release_that_broke_it(bed):
    since_s = time.time()
    bed.set({NEW: 1.0})
    with bed.load("--max-tokens", 400, "--itl-ms", 10, clients=4) as load:
        wait(lambda: bed.ask_upstream(bed.of(NEW)[0], "/counts")["inflight"] == 4)
        bed.kill(bed.of(NEW)[0])
        time.sleep(0.5)
        load.process.kill()
    failed = [r for r in bed.records(since_s) if r.ending == Ending.FAILED]
    assert [(r.release, r.served_by, r.status) for r in failed] == [(NEW, NEW, 200)] * 4


def test_the_live_release_never_falls_back_to_the_candidate(bed):
    bed.set({OLD: 0.95, NEW: 0.05})
    for upstream in bed.of(OLD):
        bed.kill(upstream)
    answers = [bed.ask({"max_tokens": 1}) for _ in range(60)]
    picked_old = [a for a in answers if a.headers.get("x-llmdeploy-release") == OLD]
    assert len(picked_old) > 40
    assert {a.status for a in picked_old} == {503}
    assert {a.json()["error"]["code"] for a in picked_old} == {"unavailable"}


def test_an_unreachable_candidate_fails_no_request_and_is_seen_in_the_log(bed):
    since_s = time.time()
    bed.kill(bed.of(NEW)[0])
    bed.set({OLD: 0.5, NEW: 0.5})
    answers = [bed.ask({"max_tokens": 1}) for _ in range(40)]
    assert {a.status for a in answers} == {200}
    meant = [r for r in bed.records(since_s) if r.release == NEW]
    assert meant
    assert {r.served_by for r in meant} == {OLD}


def test_a_replica_that_answers_503_is_asked_no_more_while_another_can(bed):
    bed.ask_upstream(bed.of(OLD)[0], "/set?healthy=0")
    answers = [bed.ask({"max_tokens": 1, "answer_status": 200}) for _ in range(20)]
    assert {a.status for a in answers} == {200}
    wait(lambda: "failed_active_hc" in bed.admin("/clusters"))
    replicas = {bed.ask({"max_tokens": 1}).headers["x-replica"] for _ in range(20)}
    assert replicas == {bed.of(OLD)[1].replica}


def test_a_full_queue_is_answered_429_with_retry_after(bed):
    state = bed.state(max_queue=2)
    known = bed.known(OLD, max_concurrency=4)
    apply(with_release(state, known), layout=bed.layout, shell=bed.shell)
    bed.confirm()
    bed.wait_healthy()
    since_s = time.time()
    with bed.load("--max-tokens", 20, "--itl-ms", 20, clients=20, seconds=3) as load:
        figures = load.result(stop=False)
    most = sum(bed.ask_upstream(u, "/counts")["most_inflight"] for u in bed.of(OLD))
    print({k: figures[k] for k in ("requests", "ok", "non_2xx")}, "most in flight", most)
    assert figures["broken"] == 0
    statuses = {r["status"] for r in figures["results"]}
    assert statuses == {200, 429}
    details = [r["detail"] for r in figures["results"] if r["status"] == 429]
    assert all('"code":"queue_full"' in detail for detail in details)
    rejected = [r for r in bed.records(since_s) if r.status == 429]
    assert len(rejected) == len(details)
    assert {r.ending for r in rejected} == {Ending.REJECTED}
    with bed.load("--max-tokens", 100, "--itl-ms", 20, clients=6, seconds=3):
        wait(lambda: sum(bed.ask_upstream(u, "/counts")["inflight"] for u in bed.of(OLD)) == 6)
        full = bed.ask({"max_tokens": 1})
    assert (full.status, full.headers["retry-after"]) == (429, "1")


def test_a_release_can_go_while_its_last_streams_end(bed):
    bed.set({NEW: 1.0})
    with bed.load("--max-tokens", 150, "--itl-ms", 10, clients=8, seconds=1) as load:
        wait(lambda: bed.ask_upstream(bed.of(NEW)[0], "/counts")["inflight"] == 8)
        state = with_weights(bed.state(), {OLD: 1.0})
        gone = state.model_copy(update={"releases": state.releases[:1]})
        apply(gone, layout=bed.layout, shell=bed.shell)
        bed.confirm()
        assert f"{NEW}{FIRST}" not in bed.admin("/clusters")
        figures = load.result(stop=False)
    assert figures["ok"] == figures["requests"] >= 8
    assert f"eds-{NEW}.json" not in bed.shell.entries(bed.layout.gateway)

"""Waiting for engines ends at their goal, at their first failure or at a deadline."""

import json

import pytest

from llmdeploy.edge import Response
from llmdeploy.errors import Refused
from llmdeploy.release import climb
from llmdeploy.release.climb import Watched, timeouts_s, wait
from llmdeploy.release.layout import ServiceLayout
from llmdeploy.release.site import Site
from llmdeploy.release.state import Endpoint, Phase
from llmdeploy.release.supervise import ProcessState

from ..fakes import FakeClock, FakeHttp, FakeShell
from .supervision import RUNS, FakeSupervisor

LAYOUT = ServiceLayout(root="/state/chat")


def watched(name: str) -> Watched:
    return Watched(
        endpoint=Endpoint(replica=name, host="local", address="127.0.0.1", port=21000),
        program=f"engine-aaa-{name}",
        log_path=f"/log/{name}",
        restarts=0,
    )


def told(phase: str, **fields) -> Response:
    tree = {"phase": phase, "kv_cache_tokens": 0, "weights_bytes": 0, "error": None, "fix": None}
    return Response(status=200, headers={}, body=json.dumps(tree | fields).encode())


def site(answers: dict[float, Response | None], states=None) -> Site:
    """A site whose engine answers as at the given seconds and whose programs have states."""
    clock = FakeClock(time_s=0.0)

    def answer(method, url, body):
        return answers[max(at for at in answers if at <= clock.time_s)]

    supervisor = FakeSupervisor(states=states or {"engine-aaa-r1": RUNS, "engine-aaa-r2": RUNS})
    return Site(
        layout=LAYOUT,
        python="python3",
        supervisor=supervisor,
        shell=FakeShell(),
        http=FakeHttp(on_request=answer),
        clock=clock,
    )


def climbed(place: Site, *, timeout_s: float = 100.0, names=("r1",)):
    return wait(
        "loaded",
        tuple(watched(name) for name in names),
        timeout_s=timeout_s,
        diagnose=lambda text: None,
        site=place,
    )


def test_an_engine_that_comes_to_its_goal_is_returned_with_what_it_told():
    place = site({0: None, 3: told("starting"), 8: told("loaded", weights_bytes=12)})
    (answer,) = climbed(place)
    assert (answer.phase, answer.weights_bytes) == ("loaded", 12)
    assert 8 <= place.clock.now_s() < 9


def test_an_engine_further_than_its_goal_counts():
    assert climbed(site({0: told("ready")}))[0].phase == "ready"


def test_every_replica_must_come():
    place = site({0: told("comm_ready"), 5: told("loaded")})
    assert len(climbed(place, names=("r1", "r2"))) == 2


def test_a_hung_engine_is_refused_at_the_deadline_with_phase_and_time():
    place = site({0: told("comm_ready")})
    place.shell.files["/log/r1"] = b"reading shard 2 of 9\n"
    with pytest.raises(Refused) as error:
        climbed(place, timeout_s=100)
    assert "engine-aaa-r1: found comm_ready after 1 min 40 s, needed loaded" in str(error.value)
    assert "last log line: reading shard 2 of 9" in str(error.value)


def test_an_engine_that_never_answers_is_refused_at_the_deadline():
    with pytest.raises(Refused, match=r"found no answer after 1 min 40 s, needed loaded"):
        climbed(site({0: None}))


@pytest.mark.parametrize("answering", [True, False])
def test_a_dead_process_is_noticed_within_two_seconds(answering):
    dead = ProcessState(running=False, pid=None, restarts=0, exit="terminated by SIGKILL")
    place = site({0: told("comm_ready") if answering else None}, {"engine-aaa-r1": dead})
    with pytest.raises(Refused, match="terminated by SIGKILL"):
        climbed(place)
    assert place.clock.now_s() < 2


def test_a_process_that_was_started_again_counts_as_dead():
    again = ProcessState(running=True, pid=9, restarts=1, exit="exit status 1")
    with pytest.raises(Refused, match="exit status 1"):
        climbed(site({0: told("starting")}, {"engine-aaa-r1": again}))


def test_an_engine_that_tells_its_failure_is_quoted_with_its_fix():
    place = site({0: told("failed", error="needs 9 GiB, 3 GiB are free", fix="int8")})
    with pytest.raises(Refused, match="needs 9 GiB, 3 GiB are free") as error:
        climbed(place)
    assert error.value.fix == "int8"


def test_an_engine_that_was_told_to_stop_is_not_waited_for():
    with pytest.raises(Refused, match="the engine is draining"):
        climbed(site({0: told("draining")}))


def test_one_failed_replica_ends_the_wait_for_all():
    dead = ProcessState(running=False, pid=None, restarts=0, exit="exit status 1")
    states = {"engine-aaa-r1": RUNS, "engine-aaa-r2": dead}
    with pytest.raises(Refused, match="engine-aaa-r2"):
        climbed(site({0: told("starting")}, states), names=("r1", "r2"))


def test_large_weights_get_the_time_to_be_read():
    # 200 GB at 20 MB/s: 10,000 s over the floor
    spare_s = timeouts_s(200 * 10**9)[Phase.LOADED] - timeouts_s(0)[Phase.LOADED]
    assert spare_s == 200e9 / climb.SLOWEST_LOAD_BYTES_PER_S == 10_000

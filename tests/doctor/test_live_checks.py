"""What looks at a running service prove: each check content once and not once."""

import dataclasses

import pytest

from llmdeploy.doctor.live import Live, Moment
from llmdeploy.doctor.live_checks import CHECKS, findings
from llmdeploy.facts.finding import Finding, Status
from llmdeploy.observe.engine import EngineSample, LatencyHistogram
from llmdeploy.observe.requests import Ending, RequestRecord
from llmdeploy.release.state import Phase, Standing
from llmdeploy.rollout.overview import Overview, Process, ReleaseView, Traffic

NONE = LatencyHistogram(buckets=(), count=0, sum_s=0)
GIB = 2**30


class Plan:
    """Stands for the plan: of it only the promise is looked at."""

    class promises:  # noqa: N801
        max_concurrency = 32


def sample(**changed):
    values = {
        "running": 20, "waiting": 0, "kv_used_ratio": 0.4, "kv_cache_tokens": 10240,
        "resident_bytes": 2 * GIB, "generated_tokens": 0, "prompt_tokens": 0, "steps": 0,
        "requests": 0, "rejections": 0, "restarts": 0,
    }  # fmt: skip
    return EngineSample(ttft=NONE, inter_token=NONE, queue=NONE, **{**values, **changed})


def request(number, **changed):
    values = {
        "id": str(number), "started_s": 0.0, "release": "r", "served_by": "r", "status": 200,
        "ending": Ending.OK, "probe": False, "duration_s": 4.0, "ttft_s": 0.4, "prompt_tokens": 100,
        "completion_tokens": 32,
    }  # fmt: skip
    return RequestRecord(**{**values, **changed})


def view(**changed):
    values = {
        "id": "r", "phase": Phase.PROBED, "standing": Standing.LIVE, "share": 1.0, "endpoints": (),
        "processes": (Process(replica="r0", running=True, pid=9, restarts=0),), "healthy": True,
        "traffic": Traffic(requests=0, failed=0, ttft_p50_s=None, ttft_p95_s=None,
                           tpot_p50_s=None, output_tokens_per_s=0.0),
        "engine": None,
    }  # fmt: skip
    return ReleaseView(**{**values, **changed})


def live(*, release=None, gateway=True, before=None, now=None, requests=None, golden=()):
    before, now = before or (sample(),), now or (sample(generated_tokens=100),)
    return Live(
        service=Overview(
            service="chat", gateway_running=gateway, address="127.0.0.1:8080", weights=(),
            weights_confirmed=True, releases=(), locked_by=None, hints=(),
        ),
        release=release or view(),
        plan=Plan(),
        moments=(Moment(at_s=0.0, engines=before), Moment(at_s=8.0, engines=now)),
        requests=tuple(map(request, range(20))) if requests is None else requests,
        golden=golden,
    )  # fmt: skip


def status_of(check, seen):
    return CHECKS[check](seen).status


def test_a_well_service_fails_no_check():
    bad = [f for f in findings(live()) if f.status in (Status.FAIL, Status.WARN)]
    assert bad == []
    assert len(findings(live())) == len(CHECKS)


WRONG = Finding(check="g", status=Status.FAIL, subject="r", found="'5'", needed="4")
DEAD = (Process(replica="r0", running=False, pid=None, restarts=0),)
BORN_AGAIN = (Process(replica="r0", running=True, pid=9, restarts=2),)
LONG = tuple(request(n, prompt_tokens=10 if n else 9000) for n in range(3)) + tuple(
    request(n, prompt_tokens=100 if n < 17 else 9000) for n in range(20)
)


@pytest.mark.parametrize(
    ("check", "seen", "status"),
    [
        ("live.gateway", live(gateway=False), Status.FAIL),
        ("live.processes", live(release=view(processes=DEAD)), Status.FAIL),
        ("live.processes", live(release=view(processes=BORN_AGAIN)), Status.WARN),
        ("live.processes", live(release=view(processes=())), Status.FAIL),
        ("live.answers", live(release=view(healthy=False)), Status.FAIL),
        ("live.frozen", live(now=(sample(),)), Status.FAIL),
        ("live.frozen", live(before=(sample(running=0),), now=(sample(running=0),)), Status.PASS),
        ("live.frozen", live(before=(None,), now=(None,)), Status.UNKNOWN),
        ("live.concurrency", live(now=(sample(waiting=20),)), Status.WARN),
        ("live.concurrency", live(now=(sample(waiting=50),)), Status.FAIL),
        ("live.kv_used", live(now=(sample(kv_used_ratio=0.99),)), Status.FAIL),
        ("live.kv_idle", live(now=(sample(running=0, kv_used_ratio=0.3),)), Status.WARN),
        ("live.kv_idle", live(now=(sample(running=0, kv_used_ratio=0.0),)), Status.PASS),
        ("live.queue", live(now=(sample(waiting=1),)), Status.WARN),
        ("live.balance", live(now=(sample(), sample(running=0))), Status.WARN),
        ("live.balance", live(now=(sample(), sample(running=18))), Status.PASS),
        ("live.batch_filled", live(now=(sample(running=1),)), Status.WARN),
        ("live.rejections", live(requests=(request(1, ending=Ending.REJECTED, status=429),)),
         Status.WARN),
        ("live.rejections", live(requests=()), Status.SKIP),
        ("live.length_spread", live(requests=LONG), Status.WARN),
        ("live.latency_spread", live(requests=tuple(
            request(n, ttft_s=0.1 if n < 17 else 3.0) for n in range(20))), Status.WARN),
        ("live.latency_spread", live(requests=tuple(map(request, range(3)))), Status.SKIP),
        ("live.streams", live(requests=tuple(request(n, ttft_s=3.9) for n in range(20))),
         Status.FAIL),
        ("live.memory_growth", live(now=(sample(resident_bytes=3 * GIB),)), Status.FAIL),
        ("live.memory_growth", live(), Status.UNKNOWN),
        ("live.memory_growth", live(now=(sample(resident_bytes=None),)), Status.UNKNOWN),
        ("live.golden", live(golden=(WRONG,)), Status.FAIL),
        ("live.golden", live(golden=None), Status.UNKNOWN),
    ],
)  # fmt: skip
def test_a_check_says_what_is_wrong(check, seen, status):
    assert status_of(check, seen) == status


def test_a_failing_check_has_a_fix():
    sick = live(gateway=False, release=view(healthy=False, processes=DEAD), golden=(WRONG,))
    assert all(f.fix for f in findings(sick) if f.status == Status.FAIL)
    assert dataclasses.is_dataclass(sick)

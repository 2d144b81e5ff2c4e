"""Hard guards on plain values."""

import pytest

from llmdeploy.rollout.guards import Vital, frozen_for_s, harm
from llmdeploy.rollout.probes import is_short
from llmdeploy.verdict.document import Decision, Evidence, Verdict


def vital(at_s, *, pids="7", healthy=True, running=0, tokens=0, ended=None):
    return Vital(
        at_s=at_s, pids=pids, ended=ended, healthy=healthy, running=running,
        generated_tokens=tokens,
    )  # fmt: skip


def test_a_quiet_healthy_engine_is_left_alone():
    assert harm([vital(float(i)) for i in range(100)], accepted_pids="7") is None


def test_one_bad_health_page_is_forgiven_and_two_in_a_row_are_not():
    assert harm([vital(0), vital(1, healthy=False)], accepted_pids="7") is None
    assert harm([vital(0, healthy=False), vital(1), vital(2, healthy=False)],
                accepted_pids="7") is None  # fmt: skip
    found = harm([vital(1, healthy=False), vital(2, healthy=False)], accepted_pids="7")
    assert "failed 2 times in a row" in found


def test_a_dead_process_is_told_with_its_end():
    found = harm([vital(0, pids="7,-", ended="killed by SIGKILL")], accepted_pids="7,8")
    assert found == "an engine process is gone (killed by SIGKILL), needed it running"


def test_another_process_than_the_accepted_one_is_harm():
    assert "started again" in harm([vital(0, pids="9")], accepted_pids="7")


@pytest.mark.parametrize(
    ("vitals", "frozen_s"),
    [
        ([vital(0, running=1, tokens=5), vital(30, running=1, tokens=5)], 30),
        ([vital(0, running=1, tokens=4), vital(30, running=1, tokens=5)], 0),
        ([vital(0, running=1, tokens=5), vital(9, tokens=5), vital(30, running=1, tokens=5)], 0),
        ([vital(0, tokens=5), vital(10, running=1, tokens=5), vital(25, running=2, tokens=5)], 15),
    ],
)
def test_frozen_means_running_all_the_time_without_a_token(vitals, frozen_s):
    assert frozen_for_s(vitals) == frozen_s


def verdict(*, live, missing, decision=Decision.HOLD):
    tpot = Evidence(
        metric="tpot", old_requests=live, new_requests=live, old_value=None, new_value=None,
        e_value=1.0, limit=2000.0,
    )  # fmt: skip
    return Verdict(
        release="new", share=0.05, at_s=0.0, decision=decision, reasons=("x",), evidence=(tpot,),
        live_requests=live, synthetic_requests=0, missing_requests=missing, missing_s=None,
    )  # fmt: skip


def test_a_step_is_short_when_live_traffic_would_take_more_than_ten_seconds():
    # 10 in 20 s are 0.5 a second: 5 more take 10 s, 6 take 12 s
    assert not is_short(verdict(live=10, missing=5), elapsed_s=20)
    assert is_short(verdict(live=10, missing=6), elapsed_s=20)


def test_a_step_that_has_just_begun_or_is_decided_is_not_short():
    assert not is_short(verdict(live=0, missing=20), elapsed_s=1)
    assert not is_short(verdict(live=0, missing=0, decision=Decision.PROMOTE), elapsed_s=60)

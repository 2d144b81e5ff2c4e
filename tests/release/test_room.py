"""What nobody needs makes room; the live release and the way back stay."""

import pytest

from llmdeploy.errors import Refused
from llmdeploy.release.room import busy, core_slot, displaced, fallback, replica_cores
from llmdeploy.release.state import Phase, ReleaseState, ServiceState, Standing

from .made import plan


def release(name: str, standing: Standing, phase: Phase = Phase.PROBED) -> ReleaseState:
    return ReleaseState(
        id=name,
        phase=phase,
        standing=standing,
        port_block=0,
        core_slot=0,
        endpoints=(),
        changed_s=0.0 if name == "oldest" else 1.0,
    )


OLDEST = release("oldest", Standing.PREVIOUS)
LIVE = release("live", Standing.LIVE)
PREVIOUS = release("prev", Standing.PREVIOUS)
BAD = release("bad", Standing.ROLLED_BACK)
CANDIDATE = release("cand", Standing.CANDIDATE)
CUT_OFF = release("cut", Standing.CANDIDATE, Phase.LOADED)
GONE = release("gone", Standing.PREVIOUS, Phase.STOPPED)


@pytest.mark.parametrize(
    ("releases", "leaving"),
    [
        ((), ()),
        ((LIVE,), ()),
        ((GONE, LIVE), ()),
        ((PREVIOUS, LIVE), ()),
        ((LIVE, BAD), ("bad",)),
        ((OLDEST, PREVIOUS, LIVE, BAD), ("oldest", "bad")),
        ((PREVIOUS, OLDEST, LIVE), ("oldest",)),
        ((LIVE, CUT_OFF), ("cut",)),
        ((LIVE, CANDIDATE, BAD), None),
        ((LIVE, CANDIDATE), None),
        ((CANDIDATE,), ()),
    ],
)
def test_what_is_no_longer_needed_makes_room_and_nothing_else(releases, leaving):
    state = ServiceState(service="chat", releases=releases)
    if leaving is None:
        with pytest.raises(Refused, match=r"needed at most 1 besides new"):
            displaced(state, "new")
    else:
        assert tuple(r.id for r in displaced(state, "new")) == leaving


def test_a_live_release_whose_start_was_cut_off_is_not_stopped_for_another():
    state = ServiceState(service="chat", releases=(release("live", Standing.LIVE, Phase.LOADED),))
    assert displaced(state, "new") == ()


def test_the_way_back_is_idle_so_its_cores_can_be_shared():
    state = ServiceState(service="chat", releases=(PREVIOUS, LIVE, BAD))
    assert fallback(state, "new") == (PREVIOUS,)
    assert busy(state, "new") == (LIVE, BAD)
    assert fallback(state, "prev") == ()


def test_a_refusal_names_the_release_to_decide_on():
    state = ServiceState(service="chat", releases=(LIVE, CANDIDATE))
    with pytest.raises(Refused) as error:
        displaced(state, "new")
    assert "llmdeploy stop chat --release cand" in error.value.fix


def test_a_release_takes_the_first_cores_that_no_other_has():
    wanted = plan(core_slots=((0, 1), (2, 3)))
    assert core_slot(wanted, []) == 0
    assert core_slot(wanted, [(0, 1)]) == 1
    assert core_slot(wanted, [(2, 3)]) == 0
    assert core_slot(plan(core_slots=()), [(0, 1)]) is None


def test_cores_that_overlap_with_another_plans_are_taken():
    with pytest.raises(Refused, match=r"cores 1,2 are held.* sets 0,1 and 2,3"):
        core_slot(plan(core_slots=((0, 1), (2, 3))), [(1, 2)])


def test_a_plan_with_one_set_of_cores_shares_it():
    assert core_slot(plan(core_slots=((0, 1),)), [(0, 1)]) == 0


def test_replicas_deal_out_the_cores_of_their_slot():
    two = plan(replicas=plan().replicas * 2, core_slots=((0, 1, 2, 3),))
    assert [replica_cores(two, 0, n) for n in (0, 1)] == [(0, 2), (1, 3)]
    three = plan(replicas=plan().replicas * 3, core_slots=((0, 1),))
    assert replica_cores(three, 0, 2) == (0, 1)
    assert replica_cores(two, None, 0) == ()

"""A release with traffic is not stopped; what is stopped leaves its ports."""

import pytest

from llmdeploy.errors import InputError, Refused
from llmdeploy.release.layout import ServiceLayout
from llmdeploy.release.site import Site, Station
from llmdeploy.release.state import Endpoint, Phase, ReleaseState, ServiceState, Standing
from llmdeploy.release.stop import check_stoppable, halt, stop_service
from llmdeploy.release.supervise import Program

from ..fakes import FakeClock, FakeHttp, FakeShell
from .supervision import RUNS, FakeSupervisor

HELD = b"""\
  sl  local_address rem_address   st
   0: 0100007F:5208 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 31337 1 0
"""

PROGRAM = Program(
    name="engine-aaa-r1", argv=("serve",), env=(), log_path="/log", stop_timeout_s=30, cwd="/"
)


def release(standing: Standing, phase: Phase = Phase.PROBED) -> ReleaseState:
    endpoint = Endpoint(replica="r1", host="local", address="127.0.0.1", port=21000)
    return ReleaseState(
        id="aaa", phase=phase, standing=standing, port_block=0, core_slot=None,
        endpoints=(endpoint,), changed_s=0.0,
    )  # fmt: skip


def state(standing: Standing, phase: Phase = Phase.PROBED) -> ServiceState:
    return ServiceState(service="chat", releases=(release(standing, phase),))


def test_the_live_release_is_not_stopped_alone():
    with pytest.raises(Refused, match="release aaa is live") as error:
        check_stoppable(state(Standing.LIVE), "aaa")
    assert "llmdeploy stop chat" in error.value.fix


@pytest.mark.parametrize("standing", [Standing.CANDIDATE, Standing.PREVIOUS, Standing.ROLLED_BACK])
def test_others_may_stop(standing):
    assert check_stoppable(state(standing), "aaa").id == "aaa"


def test_a_live_release_that_is_gone_already_may_be_stopped_again():
    assert check_stoppable(state(Standing.LIVE, Phase.FAILED), "aaa").id == "aaa"


def test_an_unknown_release_lists_the_known_ones():
    with pytest.raises(InputError, match="there is no release bbb, found: aaa"):
        check_stoppable(state(Standing.LIVE), "bbb")


def test_a_port_that_stays_taken_is_named_with_who_has_it():
    clock = FakeClock()
    supervisor = FakeSupervisor(states={"engine-aaa-r1": RUNS})
    site = Site(
        layout=ServiceLayout(root="/state/chat"), python="python3", supervisor=supervisor,
        shell=FakeShell(files={"/proc/net/tcp": HELD}), http=FakeHttp(), clock=clock,
    )  # fmt: skip
    with pytest.raises(Refused, match=r"port 21000 is held by a process of another user"):
        halt(release(Standing.CANDIDATE), site=site)


@pytest.mark.parametrize("journal", [b"", b"scribble\n"], ids=["emptied", "damaged"])
def test_programs_that_the_journal_lost_are_stopped_and_named_with_their_host(journal):
    layout = ServiceLayout(root="/state/chat")
    here, there = (FakeSupervisor(programs={f"engine-aaa-{r}": PROGRAM}) for r in ("r1", "r2"))
    station = Station(
        name="node2", address="10.0.0.2", python="python3", model_store="/models", layout=layout,
        supervisor=there, shell=FakeShell(),
    )  # fmt: skip
    site = Site(
        layout=layout, python="python3", supervisor=here,
        shell=FakeShell(files={layout.journal: journal}), http=FakeHttp(), clock=FakeClock(),
        stations=(station,),
    )  # fmt: skip
    assert stop_service(purge=True, site=site) == (
        "engine-aaa-r1 (not in the journal)",
        "engine-aaa-r2 on node2 (not in the journal)",
    )
    assert (here.list(), there.list()) == ((), ())

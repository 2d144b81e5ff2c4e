"""A running service is looked at, and nothing in it is changed."""

import pytest

from llmdeploy.doctor.live import look
from llmdeploy.doctor.live_checks import findings
from llmdeploy.facts.finding import Status
from llmdeploy.release import journal

from ..rollout.world import LAYOUT, World


@pytest.fixture
def world():
    return World()


def seen(world, release):
    state = journal.state(LAYOUT, shell=world.shell).release(release)
    return {finding.check: finding for finding in findings(look(state, site=world.site))}


def test_a_release_under_load_is_well(world):
    release = world.live()
    world.pass_time(10)
    world.shell.written.clear()
    found = seen(world, release)
    assert [f.check for f in found.values() if f.status == Status.FAIL] == []
    assert found["live.golden"].status == Status.PASS
    assert found["live.answers"].status == Status.PASS
    assert [path for path in world.shell.written if path != LAYOUT.access_log] == []


def test_a_wrong_golden_answer_fails_its_check(world):
    release = world.live(words=["no", "idea", "at", "all"])
    found = seen(world, release)
    assert found["live.golden"].status == Status.FAIL

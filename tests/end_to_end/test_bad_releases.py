"""Bad releases under live streaming load are rolled back; the good one breaks nothing."""

import json
import time

import pytest

from .story import Story, harmed

pytestmark = pytest.mark.end_to_end

BAD = {
    "slow": "{slowdown: 2, after_requests: 60}",
    "failing": "{error_ratio: 5%, after_requests: 60}",
    "garbage": "{garbage_ratio: 100%, after_requests: 60}",
}


@pytest.mark.parametrize("fault", BAD)
def test_a_bad_release_is_rolled_back_while_the_good_one_breaks_no_stream(
    live: Story, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    good = live.good
    bad = live.launch(live.plan("bad", batched_tokens=256, drill=BAD[fault]))
    with live.load() as records:
        started_s = time.monotonic()
        done = live.run("verify", "story", "--yes", "--json", code=3)
        took_s = time.monotonic() - started_s
        time.sleep(3)  # the old release carries everything for a while
    outcome = json.loads(done.stdout)
    weights = live.json("status", "story")["weights"]
    assert weights == [{"release": good, "share": 1.0}]
    lost = harmed(records, {good})
    assert not lost, lost[:5]
    seen_by_bad = [r for r in records if r["release"] == bad]
    with capsys.disabled():
        print(
            f"\n{fault}: rolled back after {took_s:.0f} s; {len(seen_by_bad)} live requests on "
            f"the bad release of {len(records)}, 0 harmed on the good one; {outcome['reasons']}"
        )


def test_a_bad_release_is_refused_while_dark_when_it_is_bad_from_the_start(live: Story) -> None:
    live.launch(live.plan("bad", batched_tokens=256, drill="{garbage_ratio: 100%}"))
    done = live.run("verify", "story", "--yes", code=3)
    assert "golden" in done.stdout + done.stderr
    assert live.json("status", "story")["weights"] == [{"release": live.good, "share": 1.0}]

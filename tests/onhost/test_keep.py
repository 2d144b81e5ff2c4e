"""The keepers of a group: all ranks run or none does, and nothing of them is left."""

import os
import pathlib
import signal
import time
from collections.abc import Iterator

import pytest

from llmdeploy.onhost import engine

from .ranks import Ranks

pytestmark = pytest.mark.end_to_end


@pytest.fixture
def ranks(tmp_path: pathlib.Path) -> Iterator[Ranks]:
    made = Ranks(tmp_path)
    yield made
    made.close()


def _up(ranks: Ranks) -> None:
    for position in range(ranks.hosts):
        ranks.start(position)
    for position in range(ranks.hosts):
        ranks.await_event(position, "started")
    ranks.await_event(0, "met")
    deadline_s = time.monotonic() + 20
    while not all(ranks.segment(n).exists() for n in range(ranks.hosts)):
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    time.sleep(1.0)  # the keepers note the segments


def test_engines_start_together_once_every_rank_is_there(ranks: Ranks) -> None:
    """The others' do not wait for the head's to listen: each would import after the one before."""
    ranks.start(1)
    ranks.await_event(1, "waits")
    time.sleep(1.0)
    assert [event["event"] for event in ranks.events(1)] == ["waits"]
    ranks.late(0).write_text("4")
    ranks.start(0)
    met = ranks.await_event(0, "met")
    begun_s = [ranks.await_event(number, "started")["at_s"] for number in (0, 1)]
    assert max(begun_s) < met["at_s"] - 2.0
    assert ranks.events(1)[-1]["event"] == "started"


def test_one_dead_engine_ends_all_ranks_and_leaves_nothing(ranks: Ranks) -> None:
    _up(ranks)
    killed = next(
        pid
        for pid in ranks.engines()
        if b"-1\0" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    )
    begun_s = time.monotonic()
    os.kill(killed, signal.SIGKILL)
    assert [process.wait(20) for process in ranks.processes.values()] == [1, 1]
    print(f"noticed and cleaned in {time.monotonic() - begun_s:.2f} s")
    assert ranks.left() == []
    assert ranks.events(1)[-1]["kind"] == "own"
    assert "SIGKILL" in ranks.events(1)[-1]["what"]
    assert (ranks.events(0)[-1]["kind"], ranks.events(0)[-1]["position"]) == ("peer", 1)


def test_a_dead_worker_ends_the_group_though_its_engine_runs_on(ranks: Ranks) -> None:
    _up(ranks)
    time.sleep(engine.SEARCH_S)
    mine = [pid for pid in ranks.engines() if _mark(pid).endswith(b"/1")]
    titles = {pid: pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() for pid in mine}
    (worker,) = (pid for pid, title in titles.items() if title.startswith(b"VLLM::"))
    begun_s = time.monotonic()
    os.kill(worker, signal.SIGKILL)
    assert [process.wait(20) for process in ranks.processes.values()] == [1, 1]
    print(f"noticed and cleaned in {time.monotonic() - begun_s:.2f} s")
    assert ranks.left() == []
    assert ranks.events(1)[-1]["what"] == "the engine's VLLM::Worker is gone"
    assert (ranks.events(0)[-1]["kind"], ranks.events(0)[-1]["position"]) == ("peer", 1)


def _mark(pid: int) -> bytes:
    environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next(line for line in environment if line.startswith(b"LLMDEPLOY_RANK="))


def test_a_killed_keeper_ends_the_others_and_its_next_start_clears_its_engine(
    ranks: Ranks,
) -> None:
    _up(ranks)
    ranks.processes[1].kill()
    assert ranks.processes[0].wait(20) == 1
    assert ranks.events(0)[-1]["kind"] == "lost"
    assert ranks.engines(), "the killed keeper's engine is an orphan"
    ranks.processes[1].wait()
    ranks.start(1)
    deadline_s = time.monotonic() + 20
    while ranks.left() and time.monotonic() < deadline_s:
        time.sleep(0.1)
    assert ranks.left() == []


def test_a_frozen_rank_is_noticed_by_its_silence(ranks: Ranks) -> None:
    _up(ranks)
    begun_s = time.monotonic()
    ranks.processes[1].send_signal(signal.SIGSTOP)
    assert ranks.processes[0].wait(30) == 1
    print(f"noticed in {time.monotonic() - begun_s:.1f} s")
    assert "said nothing" in ranks.events(0)[-1]["what"]


def test_told_to_stop_every_rank_goes_and_nothing_stays(ranks: Ranks) -> None:
    _up(ranks)
    ranks.processes[0].send_signal(signal.SIGTERM)
    assert ranks.processes[0].wait(20) == 0
    assert ranks.processes[1].wait(20) == 1
    assert ranks.left() == []
    assert ranks.events(1)[-1]["what"] == "rank 0 was told to stop"


def test_a_follower_that_is_told_to_stop_ends_the_group_at_once(ranks: Ranks) -> None:
    """As where its host reboots; `stop` tells the head first, which drains."""
    _up(ranks)
    begun_s = time.monotonic()
    ranks.processes[1].send_signal(signal.SIGTERM)
    end = ranks.await_event(0, "ended")
    assert time.monotonic() - begun_s < 5.0
    assert (end["kind"], end["position"]) == ("peer", 1)
    assert end["what"] == "rank 1 was told to stop"
    assert ranks.await_event(1, "ended")["kind"] == "ordered"
    assert ranks.engines() == []


def test_a_stranger_without_the_token_is_no_rank(ranks: Ranks) -> None:
    ranks.start(0, start_timeout_s=6.0)
    ranks.start(1, token="another", start_timeout_s=6.0)
    assert ranks.processes[0].wait(30) == 1
    assert ranks.events(0)[-1]["kind"] == "late"
    assert ranks.processes[1].wait(30) == 1
    assert not any(event["event"] == "started" for event in ranks.events(1))


def test_the_group_forms_anew_after_an_end(ranks: Ranks) -> None:
    ranks.flaw(1).touch()
    for position in (0, 1):
        ranks.start(position)
    assert [process.wait(40) for process in ranks.processes.values()] == [1, 1]
    assert "exit code 3" in ranks.events(1)[-1]["what"]
    ranks.flaw(1).unlink()
    for position in (0, 1):
        (ranks.folder / f"events-{position}.jsonl").unlink()
    _up(ranks)

"""A rank that logs nothing: noticed, named, and its threads' stacks kept beside its log."""

import json

import pytest

from llmdeploy.edge import Completed
from llmdeploy.errors import Refused
from llmdeploy.release import groups
from llmdeploy.release.group_climb import Watch
from llmdeploy.release.groups import Rank
from llmdeploy.release.site import Site
from tests.fakes import FakeClock, FakeShell

from .test_groups import ORDERS, cluster_plan, site

STARTED = b'{"at_s": 1.0, "event": "waits"}\n{"at_s": 2.0, "event": "started"}\n'


def shell(rank: Rank) -> FakeShell:
    found = rank.station.shell
    assert isinstance(found, FakeShell)
    return found


def group(*, py_spy: bool = True) -> tuple[Site, tuple[Rank, ...]]:
    """Two ranks whose engines run; the head logs a line at every look, the other does not."""
    where = site("h1", "h2")
    ranks = groups.ranks(cluster_plan(("h1", "h2")), port_block=0, site=where)
    for rank in ranks:
        said = {"path": rank.stacks_path, "dumped": 2}
        if not py_spy:
            said = {"lacks": "py-spy is neither beside /opt/vllm/bin/python nor in PATH"}
        shell(rank).files |= {rank.events_path: STARTED, rank.log_path: b"first\nlast words\n"}
        shell(rank).on_run = lambda argv, stdin, said=said: Completed(
            argv=argv, exit_code=0, stdout=json.dumps(said), stderr=""
        )
    clock = where.clock
    assert isinstance(clock, FakeClock)
    clock.on_sleep = lambda _: shell(ranks[0]).append(ranks[0].log_path, b"working\n")
    return where, ranks


def waited(where: Site, ranks: tuple[Rank, ...], *, timeout_s: float = 500.0) -> str:
    with pytest.raises(Refused) as failed:
        Watch(ranks, ORDERS, where).wait("loaded", timeout_s=timeout_s, silence_s=60.0)
    return str(failed.value)


def test_the_quiet_rank_is_named_with_the_stacks_of_its_group() -> None:
    where, ranks = group()
    assert waited(where, ranks) == (
        "r0 rank 1 on h2: its engine logged nothing for 1 min 0 s on the way to loaded; last log "
        f"line: last words (log: h2:{ranks[1].log_path}); stacks of its threads: "
        f"h2:{ranks[1].stacks_path} (and h1:{ranks[0].stacks_path})"
    )
    asked = shell(ranks[1]).ran[-1]
    assert asked[4:] == ("stacks", ranks[1].mark, "/opt/vllm/bin/python", ranks[1].stacks_path)
    assert ranks[1].stacks_path.startswith("/state/chat/runs/")


def test_where_py_spy_is_not_it_is_said() -> None:
    where, ranks = group(py_spy=False)
    assert "; no stacks: h2: py-spy is neither beside /opt/vllm/bin/python nor in PATH (" in (
        waited(where, ranks)
    )


def test_a_rank_whose_engine_waits_for_the_head_is_not_quiet() -> None:
    where, ranks = group()
    shell(ranks[1]).files[ranks[1].events_path] = b'{"at_s": 1.0, "event": "waits"}\n'
    assert "found no sign of its group after 1 min 30 s" in waited(where, ranks, timeout_s=90.0)


def test_past_the_deadline_the_rank_that_was_quiet_longest_is_named_with_stacks() -> None:
    where, ranks = group()
    told = waited(where, ranks, timeout_s=30.0)
    assert told.startswith("r0 rank 1 on h2: found no sign of its group after 30 s, needed loaded;")
    assert f"stacks of its threads: h2:{ranks[1].stacks_path}" in told


def test_a_group_that_is_there_may_be_quiet_while_another_climbs() -> None:
    where = site("h1", "h2")
    ranks = groups.ranks(cluster_plan(("h1",), ("h2",)), port_block=0, site=where)
    loaded = b"Loading weights took 3.2 seconds\n"
    shell(ranks[0]).files |= {ranks[0].events_path: STARTED, ranks[0].log_path: loaded}
    shell(ranks[1]).files |= {ranks[1].events_path: STARTED, ranks[1].log_path: b"first\n"}
    clock = where.clock
    assert isinstance(clock, FakeClock)
    begun_s = clock.now_s()

    def goes_on(_: float) -> None:
        late = clock.now_s() - begun_s > 200
        shell(ranks[1]).append(ranks[1].log_path, loaded if late else b"working\n")

    clock.on_sleep = goes_on
    told = Watch(ranks, ORDERS, where).wait("loaded", timeout_s=500.0, silence_s=60.0)
    assert [one.load_s for one in told] == [3.2, 3.2]

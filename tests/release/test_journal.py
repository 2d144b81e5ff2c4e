"""The journal keeps what was done and shows any later change."""

import json
import pathlib

import pytest

from llmdeploy.edge import Completed
from llmdeploy.edge.local import LocalShell
from llmdeploy.errors import Refused
from llmdeploy.release import journal
from llmdeploy.release.fold import PLANNED, planned_data
from llmdeploy.release.layout import ServiceLayout
from llmdeploy.release.state import Endpoint, Phase, Standing

from ..fakes import FakeClock, FakeShell
from .hosts import stat

LAYOUT = ServiceLayout(root="/state/chat")
ENDPOINT = Endpoint(replica="r1", host="local", address="127.0.0.1", port=21000)


def host() -> FakeShell:
    """A host whose user is alice and whose command is process 41."""

    def answer(argv, stdin):
        if argv[:2] == ("sh", "-c"):
            return Completed(argv=argv, exit_code=0, stdout="alice\ngw\n41\n", stderr="")
        return None

    files = {"/proc/sys/kernel/random/boot_id": b"boot-1\n", "/proc/41/stat": stat(41, ticks=7)}
    return FakeShell(files=files, on_run=answer)


def plan(shell: FakeShell, release: str, clock: FakeClock) -> None:
    data = planned_data(port_block=0, core_slot=1, endpoints=(ENDPOINT,))
    journal.append(PLANNED, data, release=release, layout=LAYOUT, shell=shell, clock=clock)


def mark(shell: FakeShell, release: str, phase: Phase, clock: FakeClock) -> None:
    journal.mark_phase(release, phase, layout=LAYOUT, shell=shell, clock=clock)


def test_entries_come_back_in_order_with_actor_and_chain():
    shell, clock = host(), FakeClock()
    plan(shell, "aaa", clock)
    mark(shell, "aaa", Phase.STAGED, clock)
    first, second = journal.read(LAYOUT, shell)
    assert (first.seq, second.seq) == (1, 2)
    assert first.actor == "alice@gw"
    assert second.previous == first.sha256
    assert second.data == {"phase": "staged"}


def test_a_changed_line_is_named_with_both_hashes():
    shell, clock = host(), FakeClock()
    for phase in (Phase.STAGED, Phase.STARTED, Phase.WARM):
        mark(shell, "aaa", phase, clock)
    shell.files[LAYOUT.journal] = shell.files[LAYOUT.journal].replace(b"started", b"stopped")
    with pytest.raises(Refused, match=r"line 2: the hash chain is broken: found \w+, needed \w+"):
        journal.read(LAYOUT, shell)


def test_a_removed_line_is_named():
    shell, clock = host(), FakeClock()
    for phase in (Phase.STAGED, Phase.STARTED, Phase.WARM):
        mark(shell, "aaa", phase, clock)
    lines = shell.files[LAYOUT.journal].splitlines(keepends=True)
    shell.files[LAYOUT.journal] = lines[0] + lines[2]
    with pytest.raises(Refused, match="line 2: the hash chain is broken: found seq 3"):
        journal.read(LAYOUT, shell)


def test_a_line_that_is_no_entry_is_named():
    shell, clock = host(), FakeClock()
    mark(shell, "aaa", Phase.STAGED, clock)
    shell.append(LAYOUT.journal, b"hello\n")
    with pytest.raises(Refused, match="line 2: found 'hello'") as caught:
        journal.append("note", layout=LAYOUT, shell=shell, clock=clock)
    assert f"sed -i.damaged '2,$d' {LAYOUT.journal}" in caught.value.fix


def test_the_hint_on_a_damaged_journal_keeps_what_stands_before(tmp_path):
    layout = ServiceLayout(root=f"{tmp_path}/a state/chat")
    edges = {"layout": layout, "shell": LocalShell(), "clock": FakeClock()}
    for note in ("one", "two", "three"):
        journal.append(note, **edges)
    file = pathlib.Path(layout.journal)
    file.write_text(file.read_text().replace("two", "2"))
    with pytest.raises(Refused) as caught:
        journal.read(layout, LocalShell())
    command = caught.value.fix.partition("knows: ")[2].partition("; llmdeploy")[0]
    LocalShell().run(("sh", "-c", command), timeout_s=10)
    assert [entry.event for entry in journal.read(layout, LocalShell())] == ["one"]
    assert len(pathlib.Path(f"{layout.journal}.damaged").read_text().splitlines()) == 3


def test_a_torn_last_line_is_left_out_and_mended_by_the_next_entry():
    shell, clock = host(), FakeClock()
    mark(shell, "aaa", Phase.STAGED, clock)
    shell.append(LAYOUT.journal, b'{"seq": 2, "at_s"')
    assert len(journal.read(LAYOUT, shell)) == 1
    mark(shell, "aaa", Phase.STARTED, clock)
    assert [entry.seq for entry in journal.read(LAYOUT, shell)] == [1, 2]
    assert all(json.loads(line) for line in shell.files[LAYOUT.journal].splitlines())


def test_a_writer_that_died_holds_up_nobody():
    shell, clock = host(), FakeClock()
    shell.files[f"{LAYOUT.journal}.writer"] = (
        b'{"user":"bob","host":"gw","pid":12,"start_ticks":3,"boot":"boot-1"}'
    )
    mark(shell, "aaa", Phase.STAGED, clock)
    assert len(journal.read(LAYOUT, shell)) == 1
    assert f"{LAYOUT.journal}.writer" not in shell.files


def test_a_living_writer_is_waited_for_and_then_named():
    shell, clock = host(), FakeClock()
    shell.files["/proc/12/stat"] = stat(12, ticks=3)
    shell.files[f"{LAYOUT.journal}.writer"] = (
        b'{"user":"bob","host":"gw","pid":12,"start_ticks":3,"boot":"boot-1"}'
    )
    with pytest.raises(Refused, match=r"journal\.jsonl\.writer: held by another process for 10 s"):
        mark(shell, "aaa", Phase.STAGED, clock)


def test_folding_gives_phase_standing_and_place_of_each_release():
    shell, clock = host(), FakeClock()
    plan(shell, "aaa", clock)
    mark(shell, "aaa", Phase.PROBED, clock)
    journal.mark_standings(
        {"aaa": Standing.LIVE}, release="aaa", layout=LAYOUT, shell=shell, clock=clock
    )
    clock.sleep(5)
    plan(shell, "bbb", clock)
    state = journal.state(LAYOUT, shell=shell)
    assert state.service == "chat"
    assert [(r.id, r.phase, r.standing) for r in state.releases] == [
        ("aaa", Phase.PROBED, Standing.LIVE),
        ("bbb", Phase.PLANNED, Standing.CANDIDATE),
    ]
    assert state.releases[1].endpoints == (ENDPOINT,)
    assert state.releases[1].core_slot == 1
    assert state.releases[1].changed_s == state.releases[0].changed_s + 5


def test_standings_change_together():
    shell, clock = host(), FakeClock()
    plan(shell, "aaa", clock)
    plan(shell, "bbb", clock)
    both = {"aaa": Standing.PREVIOUS, "bbb": Standing.LIVE}
    journal.mark_standings(both, release="bbb", layout=LAYOUT, shell=shell, clock=clock)
    state = journal.state(LAYOUT, shell=shell)
    assert {r.id: r.standing for r in state.releases} == both


@pytest.mark.parametrize(
    ("phase", "standing"), [(Phase.PROBED, Standing.LIVE), (Phase.STOPPED, Standing.CANDIDATE)]
)
def test_a_live_release_launched_again_stays_live_unless_it_was_stopped(phase, standing):
    shell, clock = host(), FakeClock()
    plan(shell, "aaa", clock)
    journal.mark_standings(
        {"aaa": Standing.LIVE}, release="aaa", layout=LAYOUT, shell=shell, clock=clock
    )
    mark(shell, "aaa", phase, clock)
    plan(shell, "aaa", clock)
    assert journal.state(LAYOUT, shell=shell).releases[0].standing == standing

"""One command at a time acts on a service, and a dead one holds up nobody."""

import pytest

from llmdeploy.edge import Completed
from llmdeploy.errors import Refused
from llmdeploy.release import journal, lock
from llmdeploy.release.layout import ServiceLayout

from ..fakes import FakeClock, FakeShell
from .hosts import stat

LAYOUT = ServiceLayout(root="/state/chat")
BOOT = "/proc/sys/kernel/random/boot_id"


def host(files: dict[str, bytes], *, pid: int) -> FakeShell:
    """The host as process `pid` sees it."""

    def answer(argv, stdin):
        if argv[:2] == ("sh", "-c"):
            return Completed(argv=argv, exit_code=0, stdout=f"alice\ngw\n{pid}\n", stderr="")
        return None

    return FakeShell(files=files, on_run=answer)


def two_commands() -> tuple[FakeShell, FakeShell]:
    """Two processes on one host that share its files."""
    files = {
        BOOT: b"boot-1\n",
        "/proc/41/stat": stat(41, ticks=7),
        "/proc/42/stat": stat(42, ticks=9),
    }
    return host(files, pid=41), host(files, pid=42)


def test_a_held_service_is_refused_with_owner_reason_age_and_fix():
    first, second = two_commands()
    clock = FakeClock()
    with lock.hold(LAYOUT, reason="launch aaa", shell=first, clock=clock):
        clock.sleep(200)
        with (
            pytest.raises(
                Refused, match=r"alice@gw \(process 41\).* 3 min 20 s to launch aaa"
            ) as e,
            lock.hold(LAYOUT, reason="verify", shell=second, clock=clock),
        ):
            pass
    assert "kill 41" in e.value.fix
    assert LAYOUT.lock not in first.files


def test_the_lock_is_free_again_after_the_block_even_when_it_failed():
    first, second = two_commands()
    clock = FakeClock()
    with (
        pytest.raises(RuntimeError),
        lock.hold(LAYOUT, reason="launch", shell=first, clock=clock),
    ):
        raise RuntimeError
    with lock.hold(LAYOUT, reason="verify", shell=second, clock=clock) as held:
        assert lock.read(LAYOUT.lock, shell=first, clock=clock) == held
    assert lock.read(LAYOUT.lock, shell=first, clock=clock) is None


@pytest.mark.parametrize(
    "change",
    [
        {"/proc/41/stat": None},
        {"/proc/41/stat": stat(41, ticks=8)},
        {"/proc/41/stat": stat(41, ticks=7, state="Z")},
        {BOOT: b"boot-2\n"},
    ],
    ids=["gone", "pid used by another", "zombie", "host rebooted"],
)
def test_the_lock_of_a_dead_command_is_taken_over_with_a_journal_line(change):
    first, second = two_commands()
    clock = FakeClock()
    abandoned = lock.hold(LAYOUT, reason="launch aaa", shell=first, clock=clock)
    abandoned.__enter__()
    for path, content in change.items():
        first.remove(path)
        if content is not None:
            first.files[path] = content
    with lock.hold(LAYOUT, reason="verify", shell=second, clock=clock):
        entry = journal.read(LAYOUT, second)[-1]
    assert entry.event == "lock taken over"
    assert entry.data == {"from": "alice@gw", "pid": "41", "was": "launch aaa"}


def test_a_lock_past_its_expiry_is_taken_over_and_not_removed_by_its_late_owner():
    first, second = two_commands()
    clock = FakeClock()
    late = lock.hold(LAYOUT, reason="launch", shell=first, clock=clock, longest_s=60)
    late.__enter__()
    clock.sleep(61)
    with lock.hold(LAYOUT, reason="verify", shell=second, clock=clock) as held:
        late.__exit__(None, None, None)
        assert lock.read(LAYOUT.lock, shell=second, clock=clock) == held

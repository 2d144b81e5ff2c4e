"""A release that cannot fit is refused before anything starts, with both values."""

import pytest

from llmdeploy.edge import Completed
from llmdeploy.errors import InputError, Refused, Unreachable
from llmdeploy.release.checks import check_disk, check_memory, needed_disk_bytes
from llmdeploy.release.layout import ServiceLayout
from llmdeploy.release.site import Site
from llmdeploy.release.stage import stage, staged

from ..fakes import FakeClock, FakeHttp, FakeShell
from .made import plan
from .supervision import FakeSupervisor

LAYOUT = ServiceLayout(root="/state/chat")
DF = "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/vda 9000 1 {free} 1% /\n"


def site(df: str) -> Site:
    def answer(argv, stdin):
        return Completed(argv=argv, exit_code=0, stdout=df, stderr="")

    return Site(
        layout=LAYOUT, python="python3", supervisor=FakeSupervisor(),
        shell=FakeShell(on_run=answer), http=FakeHttp(), clock=FakeClock(),
    )  # fmt: skip


def test_logs_and_evidence_of_each_replica_need_disk():
    # one replica: 32 MiB x (1 log + 1 backup) + 64 MiB of evidence = 128 MiB
    assert needed_disk_bytes(plan()) == 128 * 2**20


def test_a_full_disk_is_refused_with_both_values():
    with pytest.raises(Refused, match=r"/state: its disk has 1\.0 MiB free, needed 128\.0 MiB"):
        check_disk(plan(), site(DF.format(free=1024)))
    check_disk(plan(), site(DF.format(free=128 * 1024)))


def test_a_disk_that_cannot_be_asked_never_passes():
    with pytest.raises(Unreachable, match="`df` said"):
        check_disk(plan(), site("df: no such device\n"))


def test_memory_that_another_release_frees_counts():
    shell = FakeShell(files={"/proc/meminfo": b"MemAvailable: 500 kB\n"})
    # 500 x 1024 + 488000 = 1000000, the plan needs 1e6
    check_memory(plan(), freed_bytes=488_000, shell=shell)
    with pytest.raises(Refused, match=r"976\.6 KiB of memory are available.*needed 976\.6 KiB"):
        check_memory(plan(), freed_bytes=487_999, shell=shell)


def test_unknown_memory_never_passes():
    with pytest.raises(Refused, match="does not say what is available"):
        check_memory(plan(), freed_bytes=0, shell=FakeShell())


def test_a_plan_without_its_memory_figure_is_refused():
    with pytest.raises(Refused, match="has no figure memory_needed"):
        check_memory(plan(figures=()), freed_bytes=0, shell=FakeShell())


def test_a_staged_plan_is_written_once_and_never_changed():
    shell, wanted = FakeShell(), plan()
    stage(wanted, layout=LAYOUT, shell=shell)
    stage(wanted, layout=LAYOUT, shell=shell)
    assert staged(wanted.id, layout=LAYOUT, shell=shell) == wanted
    path = f"{LAYOUT.release(wanted.id)}/plan.yaml"
    shell.files[path] = shell.files[path].replace(b"max_queue: 8", b"max_queue: 9")
    with pytest.raises(Refused, match="found other content than plan"):
        stage(wanted, layout=LAYOUT, shell=shell)
    with pytest.raises(InputError, match="it was changed by hand"):
        staged(wanted.id, layout=LAYOUT, shell=shell)

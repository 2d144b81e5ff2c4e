"""Following a log brings whole lines, each once, also over its rotation."""

from itertools import islice

from llmdeploy.edge import Completed
from llmdeploy.release.logs import Source, tail

from ..fakes import FakeClock, FakeShell

LOG = Source(name="r0", path="/log")


def host(text: bytes) -> FakeShell:
    shell = FakeShell(files={"/log": text})

    def answer(argv, stdin):
        return Completed(argv=argv, exit_code=0, stdout=str(len(shell.files["/log"])), stderr="")

    shell.on_run = answer
    return shell


def test_lines_come_once_and_only_when_they_are_whole():
    shell = host(b"one\ntwo\n")
    clock = FakeClock()
    news = iter([b"thr", b"ee\nfo", b"ur\n"])
    clock.on_sleep = lambda duration_s: shell.append("/log", next(news))
    found = islice(tail((LOG,), lines=1, follow=True, shell=shell, clock=clock), 3)
    assert [line for _, line in found] == ["two", "three", "four"]


def test_a_log_that_begins_anew_is_read_from_its_start():
    shell = host(b"old line\n")
    clock = FakeClock()
    clock.on_sleep = lambda duration_s: shell.write("/log", b"new\n")
    found = islice(tail((LOG,), lines=1, follow=True, shell=shell, clock=clock), 2)
    assert [line for _, line in found] == ["old line", "new"]


def test_without_lines_nothing_old_is_shown():
    assert list(tail((LOG,), lines=0, follow=False, shell=host(b"a\n"), clock=FakeClock())) == []

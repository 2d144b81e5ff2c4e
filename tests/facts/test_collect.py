"""Collecting: one command a host, whose answer is the bundle."""

import pytest

from llmdeploy.edge import Completed
from llmdeploy.errors import Unreachable
from llmdeploy.facts.collect import Depth, Paths, collect, command, script

from ..fakes import FakeClock, FakeShell

PATHS = Paths(state_root="~/state", model_store="/srv/models", service="chat", model="tiny")


def test_a_host_is_asked_once_with_the_probe_on_stdin() -> None:
    seen = []

    def answer(argv: tuple[str, ...], stdin: str) -> Completed:
        seen.append(stdin)
        text = "@begin uname 5 uname -srm\n|Linux 6.1 x86_64\n@end 0\n"
        return Completed(argv=argv, exit_code=0, stdout=text, stderr="")

    shell = FakeShell(on_run=answer)
    bundle = collect("local", "/py", PATHS, shell=shell, clock=FakeClock())
    assert shell.ran == [
        ("sh", "-s", "--", "/py", "~/state", "/srv/models", "chat", "tiny", "yes", "", ""),
    ]
    assert seen == [script()]
    assert bundle.host("local").kernel == "6.1"
    assert bundle.host("local").problem("glibc") == "the probe ended before it was asked"


def test_both_programs_are_in_the_probe() -> None:
    text = script()
    assert "@RUNTIME@" not in text.replace("# @RUNTIME@", "")
    assert "def holders(" in text
    assert "def rates(" in text


def test_quick_asks_for_no_measurement() -> None:
    assert command("/py", PATHS, depth=Depth.FIND)[-3] == "quick"


def test_a_host_without_a_shell_is_unreachable() -> None:
    def answer(argv: tuple[str, ...], stdin: str) -> Completed:
        return Completed(argv=argv, exit_code=127, stdout="", stderr="sh: not found")

    with pytest.raises(Unreachable, match=r"exit code 127 and said 'sh: not found'"):
        collect("local", "/py", PATHS, shell=FakeShell(on_run=answer), clock=FakeClock())

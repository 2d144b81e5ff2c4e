"""How far each host is: lines where stderr is no terminal, a table on one."""

import io

import pytest
from rich.console import Console

from llmdeploy.cli.host_table import HostTable
from llmdeploy.facts.collect_all import Phase, Progress


def _progress(host: str, phase: Phase, at_s: float, words: str = "") -> Progress:
    return Progress(host=host, phase=phase, at_s=at_s, words=words)


def test_each_answer_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with HostTable(["gpu1", "gpu2"]) as table:
        table.tell(_progress("gpu1", Phase.ASKED, 1.0))
        table.tell(_progress("gpu2", Phase.ASKED, 1.0))
        table.tell(_progress("gpu1", Phase.ANSWERED, 3.5))
        table.tell(_progress("gpu2", Phase.FAILED, 9.0, "no route: No route to host"))
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == (
        "gpu1: answered after 2.5 s\ngpu2: FAIL after 8 s: no route: No route to host\n"
    )


def test_of_many_hosts_the_rest_is_counted() -> None:
    table = HostTable([f"gpu{number}" for number in range(100)])
    for number in range(60):
        table._last[f"gpu{number}"] = _progress(f"gpu{number}", Phase.ANSWERED, 2.0)
        table._begun_s[f"gpu{number}"] = 1.0
    table._last["gpu7"] = _progress("gpu7", Phase.FAILED, 2.0, "frozen")
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(table._rows())
    lines = console.export_text().splitlines()
    assert lines[0].split() == ["gpu7", "FAIL", "1", "s", "frozen"]
    assert lines[-1].strip().split(maxsplit=2)[2] == "59 answered, 1 failed, 0 asked, 40 waiting"
    assert len(lines) == 21

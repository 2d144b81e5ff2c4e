"""Programs of active tests, really run: they end by themselves and leave nothing behind."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from llmdeploy.edge.clock import SystemClock
from llmdeploy.edge.local import LocalShell
from llmdeploy.facts.active import group
from llmdeploy.facts.active.judge import active_findings
from llmdeploy.facts.active.measured import AllReduce, Measured
from llmdeploy.facts.active.send import Program, Seat, ask, text
from llmdeploy.facts.bundle import Bundle
from llmdeploy.facts.finding import Finding, Status

pytestmark = pytest.mark.end_to_end
HERE = Seat(host="here", python=sys.executable, shell=LocalShell(), address="127.0.0.1")
TINY = {"tests": ["product", "pattern"], "cpu": True, "test_s": 0.1, "size": 128, "cpu_size": 128,
        "most_bytes": 1 << 20, "cpu_bytes": 1 << 20}  # fmt: skip
DISK = {"file": "", "most_bytes": 16 << 20, "read_s": 1.0}


def _started(program: Program, request: Mapping[str, Any]) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(
        [sys.executable, "-", json.dumps(request)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    process.stdin.write(text(program).encode())
    process.stdin.close()
    return process


def _listening(port: int) -> dict[str, Any]:
    return {"token": f"{port:024d}", "name": "here", "address": "127.0.0.1", "ports": [port]}


def _free_port() -> int:
    with socket.socket() as plug:
        plug.bind(("127.0.0.1", 0))
        return int(plug.getsockname()[1])


def _answers(port: int) -> bool:
    with socket.socket() as plug:
        return plug.connect_ex(("127.0.0.1", port)) == 0


def _until(true: Any, *, limit_s: float = 20.0) -> float:
    begun_s = time.monotonic()
    while not true():
        assert time.monotonic() - begun_s < limit_s, "it did not come true"
        time.sleep(0.02)
    return time.monotonic() - begun_s


def test_a_listener_ends_when_nobody_reads_it_any_more() -> None:
    port = _free_port()
    process = _started("listen", {**_listening(port), "limit_s": 60})
    _until(lambda: _answers(port))
    with process:
        assert process.stdout is not None
        process.stdout.close()
    assert process.returncode == 3
    assert not _answers(port)


def test_a_listener_ends_at_its_deadline_whatever_happens() -> None:
    port = _free_port()
    process = _started("listen", {**_listening(port), "limit_s": 2.0})
    with process:
        assert process.stdout is not None
        assert process.stdout.read() == b""
    assert process.returncode == -signal.SIGALRM
    assert not _answers(port)


def test_a_program_that_hangs_in_c_ends_at_its_deadline() -> None:
    hangs = f"{text('disk')}\n".replace(
        "    asked = json.loads(sys.argv[1])\n    arm(asked[\"limit_s\"])\n",
        "    arm(json.loads(sys.argv[1])['limit_s'])\n"
        "    import re; re.match('(a+)+$', 'a' * 60 + 'b')\n",
    )  # fmt: skip
    begun_s = time.monotonic()
    said = ask(HERE, "disk", {}, limit_s=1.0, source=hangs)
    assert said.problem in ("its watchdog ended it", "signal 14 ended it")
    assert time.monotonic() - begun_s < 5


def test_the_disk_test_leaves_no_file_and_sees_what_it_wrote(tmp_path: pathlib.Path) -> None:
    said = ask(HERE, "disk", {**DISK, "folder": str(tmp_path)}, limit_s=60)
    (disk,) = said.of("disk")
    assert disk["own"]
    assert disk["wrong"] == 0
    assert disk["past_cache"] in ("O_DIRECT", "posix_fadvise")
    assert list(tmp_path.iterdir()) == []


def test_the_disk_test_reads_the_model_where_there_is_one(tmp_path: pathlib.Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(os.urandom(9 << 20))
    request = {**DISK, "folder": str(tmp_path), "file": str(tmp_path / "model.safetensors")}
    (disk,) = ask(HERE, "disk", request, limit_s=60).of("disk")
    assert (disk["own"], disk["read_bytes"]) == (False, 8 << 20)


def test_a_disk_that_gives_back_other_data_is_seen(tmp_path: pathlib.Path) -> None:
    spoilt = text("disk").replace("(BLOCK_BYTES - 8)", "(BLOCK_BYTES - 8) + b''").replace(
        'written.to_bytes(8, "little")', '(written ^ 1).to_bytes(8, "little")'
    )  # fmt: skip
    said = ask(HERE, "disk", {**DISK, "folder": str(tmp_path)}, limit_s=60, source=spoilt)
    assert said.of("disk")[0]["wrong"] > 0


def test_a_folder_that_may_not_be_written_is_told() -> None:
    said = ask(HERE, "disk", {**DISK, "folder": "/proc/self"}, limit_s=60)
    assert said.why
    assert not said.of("disk")


def test_a_host_without_python_says_so() -> None:
    for python in ("/nowhere/python", "~/nowhere/python"):
        said = ask(Seat(host="here", python=python, shell=LocalShell()), "compute", TINY, limit_s=9)
        assert said.why is not None
        assert "no Python" in said.why


def test_products_and_patterns_have_the_known_answers() -> None:
    said = ask(HERE, "compute", TINY, limit_s=120)
    assert [line["wrong"] for line in said.of("product")] == [0, 0], said
    assert said.of("pattern")[0]["wrong"] == 0
    assert said.of("done")


def _with_a_card(*, free_bytes: int) -> str:
    """The program on a machine whose torch takes the processor for a card."""
    card = (
        "    torch.cpu.get_device_name = lambda d: 'a card'\n"
        f"    torch.cpu.mem_get_info = lambda d: ({free_bytes}, 1 << 30)\n"
    )
    made = text("compute").replace('("cuda", "npu", "xpu")', '("cpu",)')
    made = made.replace("    there = list(", f"{card}    there = list(")
    return made.replace("if source != target:", "if source == target:")


def test_a_card_goes_through_products_patterns_and_copies() -> None:
    request = {**TINY, "tests": ["product", "pattern", "copy"], "cpu": False}
    said = ask(HERE, "compute", request, limit_s=120, source=_with_a_card(free_bytes=1 << 30))
    assert [line["dtype"] for line in said.of("product")] == ["bfloat16", "float16", "float32"], (
        said
    )
    assert {line["name"] for line in said.of("product")} == {"a card"}
    assert [line["wrong"] for kind in ("product", "pattern", "copy") for line in said.of(kind)] == [
        0
    ] * 5
    assert said.of("copy")[0]["bytes_per_s"] > 0


def test_a_card_that_something_runs_on_is_left_alone() -> None:
    request = {**TINY, "cpu": False}
    said = ask(HERE, "compute", request, limit_s=120, source=_with_a_card(free_bytes=1 << 29))
    assert not said.of("product")
    assert {line["reason"] for line in said.of("error")} == {"50% of its memory is taken"}


def test_one_spoilt_element_of_a_product_is_counted() -> None:
    spoilt = text("compute").replace(
        '    """The answer as it came."""\n    return answer',
        "    answer[3, 5] += 1\n    return answer",
    )
    assert spoilt != text("compute")
    said = ask(HERE, "compute", {**TINY, "tests": ["product"]}, limit_s=120, source=spoilt)
    assert all(line["wrong"] for line in said.of("product"))


def _group(*, source: Sequence[str] = ("", ""), device_s: float = 8.0) -> AllReduce:
    """Two ranks on loopback; each may run another text than the product's."""

    class Other(LocalShell):
        """Runs another program than it is given."""

        def __init__(self, program: str) -> None:
            self._program = program

        def run(self, argv: Sequence[str], *, timeout_s: float, stdin: str = "",
                env: Mapping[str, str] | None = None) -> Any:  # fmt: skip
            return super().run(argv, timeout_s=timeout_s, stdin=self._program or stdin, env=env)

    seats = [
        Seat(host=f"h{n}", python=sys.executable, shell=Other(program), address="127.0.0.1",
             interface="lo")
        for n, program in enumerate(source)
    ]  # fmt: skip
    plan = group.Plan(
        test=group.CROSS, backend="gloo", device="cpu", name="cpu", port=_free_port(),
        members=tuple(group.Ranks(seat=seat, local=1) for seat in seats),
        limits=group.Limits(meet_s=120, step_s=device_s, size_s=0.05), sizes_bytes=(1024, 65536),
    )  # fmt: skip
    return group.all_reduce(plan, report=lambda words: None, clock=SystemClock())


def _judged(found: AllReduce) -> list[Finding]:
    measured = Measured(level="standard", begun_s=0, duration_s=1, all_reduces=(found,))
    return list(active_findings(Bundle(schema=1, llmdeploy="0", hosts=(), measured=measured)))


def test_a_group_sums_what_is_known_and_has_a_curve() -> None:
    found = _group()
    assert [(s.stage, s.wrong, s.error) for s in found.states] == [("done", 0, None)] * 2
    assert [sample.size_bytes for sample in found.samples] == [1024, 65536]
    assert _judged(found)[0].status == Status.PASS


def _before_second_size(line: str) -> str:
    place = '        show("enter", stage=f"summing {size_bytes} bytes")\n'
    assert place in text("collective")
    return text("collective").replace(place, f"        if size_bytes > 1024: {line}\n{place}")


@pytest.mark.parametrize(("what", "line"), [("hangs", "time.sleep(600)"), ("dies", "os._exit(9)")])
def test_a_peer_that_hangs_or_dies_is_named_and_the_watchdog_bounds_it(
    what: str, line: str
) -> None:
    begun_s = time.monotonic()
    found = _group(source=("", _before_second_size(line)))
    named = [f for f in _judged(found) if f.status == Status.FAIL]
    assert [f.subject for f in named] == ["h1"], named
    assert time.monotonic() - begun_s < group.Limits(meet_s=120, step_s=8).whole_s(2)
    left = subprocess.run(["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True)
    assert '"rank_first"' not in left.stdout
    print(f"a peer that {what}: {time.monotonic() - begun_s:.1f} s")


def test_an_answer_that_one_host_spoils_names_it() -> None:
    spoilt = text("collective").replace(
        '    """The answer as it came."""\n    return data', "    data[0] += 1\n    return data"
    )
    assert spoilt != text("collective")
    (named,) = [f for f in _judged(_group(source=("", spoilt))) if f.status == Status.FAIL]
    assert (named.subject, "wrong" in named.found) == ("h1", True)

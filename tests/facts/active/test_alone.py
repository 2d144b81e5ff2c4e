"""Tests of single hosts, from what a host's programs print."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from llmdeploy.edge import Completed
from llmdeploy.facts.active import alone, send
from llmdeploy.facts.active.send import Seat
from llmdeploy.facts.bundle import HostFacts

from ...fakes import FakeClock, FakeShell
from .. import hosts, spoiled


def _seat(*lines: Mapping[str, Any], code: int = 0, stderr: str = "") -> Seat:
    """A host whose program prints these lines and ends so."""

    def ran(argv: tuple[str, ...], stdin: str) -> Completed:
        out = "".join(f"{json.dumps(line)}\n" for line in lines)
        return Completed(argv=argv, exit_code=code, stdout=out, stderr=stderr)

    return Seat(host="a", python="~/venv/bin/python", shell=FakeShell(on_run=ran))


def _facts(**changed: Any) -> dict[str, HostFacts]:
    return {"a": hosts.facts(**changed).model_copy(update={"host": "a"})}


def _cards(count: int) -> dict[str, HostFacts]:
    return _facts(accelerators=spoiled.cards(count))


def _untested(seat: Seat, facts: dict[str, HostFacts]) -> dict[str, str]:
    found = alone.devices([seat], facts, test_s=1.0, clock=FakeClock())
    return {one.test: one.reason for one in found.untested}


DEVICES = {"kind": "devices", "accelerators": 0, "built": "no accelerator"}
ENTER = {"kind": "enter", "test": "pattern", "device": "cpu"}
DONE = {"kind": "done"}


def test_cards_that_torch_does_not_see_are_unknown_whatever_the_processor_did() -> None:
    found = _untested(_seat(DEVICES, DONE), _cards(8))
    assert set(found) == {"gpu.compute.golden", "gpu.vram.pattern", "fab.p2p.actual"}
    assert found["gpu.vram.pattern"] == (
        "torch sees 0 of the 8 cards that the driver shows: its torch is built for no accelerator"
    )


def test_a_host_without_cards_misses_nothing() -> None:
    assert _untested(_seat(DEVICES, DONE), _cards(0)) == {}


def test_a_program_that_hangs_names_where_it_was() -> None:
    found = _untested(_seat(DEVICES, ENTER, code=142), _cards(0))
    assert found == {"cpu.memory.pattern": "pattern on cpu: its watchdog ended it"}


def test_a_device_that_raises_is_unknown_with_its_words() -> None:
    error = {"kind": "error", "test": "product", "device": "cuda:3", "reason": "CUDA error: 700"}
    found = _untested(_seat({**DEVICES, "accelerators": 4}, error, DONE), _cards(4))
    assert found == {"gpu.compute.golden": "cuda:3: CUDA error: 700"}


def test_without_torch_every_test_of_the_host_is_unknown() -> None:
    problem = {"kind": "problem", "reason": "torch does not import: ModuleNotFoundError"}
    assert set(_untested(_seat(problem), _cards(0))) == {"cpu.compute.golden", "cpu.memory.pattern"}
    assert len(_untested(_seat(problem), _cards(2))) == 3


def test_lines_that_are_cut_off_and_noise_are_no_answer() -> None:
    def ran(argv: Sequence[str], stdin: str) -> Completed:
        out = f'warning: x\n{json.dumps(DEVICES)}\n{{"kind": "prod'
        return Completed(argv=tuple(argv), exit_code=-14, stdout=out, stderr="")

    seat = Seat(host="a", python="python3", shell=FakeShell(on_run=ran))
    said = send.ask(seat, "compute", {}, limit_s=1)
    assert said.lines == (DEVICES,)
    assert said.why == "its watchdog ended it"


def test_secrets_in_what_a_program_prints_are_hidden() -> None:
    seat = _seat(code=1, stderr="proxy http://user:hunter2@10.0.0.9 refused")
    assert "hunter2" not in str(send.ask(seat, "wire", {}, limit_s=1).why)


class _Clocked(FakeShell):
    """A host whose clock is off, reached in a round trip that takes time."""

    def __init__(self, clock: FakeClock, *, offset_s: float, trips_s: Sequence[float]) -> None:
        super().__init__()
        self.clock, self.offset_s, self.trips_s = clock, offset_s, list(trips_s)

    def run(self, argv: Sequence[str], *, timeout_s: float, stdin: str = "",
            env: Mapping[str, str] | None = None) -> Completed:  # fmt: skip
        trip_s = self.trips_s.pop(0)
        self.clock.sleep(trip_s / 2)
        now_s = self.clock.now_s() + self.offset_s
        self.clock.sleep(trip_s / 2)
        return Completed(argv=tuple(argv), exit_code=0, stdout=f"{now_s:.9f}\n", stderr="")


def test_the_shortest_round_trip_bounds_the_clock() -> None:
    clock = FakeClock()
    shell = _Clocked(clock, offset_s=-2.5, trips_s=(0.4, 0.2, 0.02, 0.3, 0.1))
    ((found,), untested) = alone.clocks([Seat(host="a", python="", shell=shell)], clock=clock)
    assert untested == ()
    assert abs(found.offset_s + 2.5) < 1e-6
    assert abs(found.uncertainty_s - 0.01) < 1e-6


def test_a_date_without_fractions_is_as_vague_as_a_second() -> None:
    def ran(argv: tuple[str, ...], stdin: str) -> Completed:
        return Completed(argv=argv, exit_code=0, stdout=f"{int(clock.now_s())}.%N\n", stderr="")

    clock = FakeClock()
    seat = Seat(host="a", python="", shell=FakeShell(on_run=ran))
    ((found,), _) = alone.clocks([seat], clock=clock)
    assert found.uncertainty_s == 0.5
    assert abs(found.offset_s) <= 0.5


def test_no_date_at_all_is_untested() -> None:
    (found, untested) = alone.clocks([_seat(code=127)], clock=FakeClock())
    assert found == ()
    assert untested[0].test == "time.skew"


def test_the_largest_file_of_the_model_is_read_where_it_is_there() -> None:
    disk = {"kind": "disk", "read_bytes": 1 << 28, "duration_s": 0.1, "past_cache": "O_DIRECT",
            "own": False, "wrong": 0}  # fmt: skip
    seat = _seat(disk)
    ((found,), _) = alone.disks([seat], _facts(), clock=FakeClock())
    assert (found.of, found.correct) == ("the model's largest file", None)
    assert round(found.bytes_per_s) == 2684354560
    shell = seat.shell
    assert isinstance(shell, FakeShell)
    assert json.loads(shell.ran[0][-1])["file"] == "/srv/models/tiny/model.safetensors"

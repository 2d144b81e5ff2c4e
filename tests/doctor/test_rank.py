"""The first cause over the logs of all ranks; what follows from it is told as that."""

import pathlib

import pytest
import yaml

from llmdeploy.doctor import Log, Question, diagnose
from llmdeploy.doctor.rank import ranked
from llmdeploy.observe.signatures import signature

CASES = pathlib.Path(__file__).parents[1] / "cases" / "logs" / "failed"
OOM, TIMEOUT = signature("memory.cuda").match, "Watchdog caught collective operation timeout"


def diagnosis(*logs):
    return diagnose(Question(logs=tuple(logs), year=2026))


@pytest.mark.parametrize("name", sorted(path.name for path in CASES.iterdir()))
def test_the_first_cause_of_a_case_is_found(name):
    expected = yaml.safe_load((CASES / name / "expect.yaml").read_text())
    files = sorted((CASES / name).glob("*.log"))
    found = diagnosis(*(Log(name=file.name, text=file.read_text()) for file in files))
    assert found.suspects[0].id == expected["first"]
    assert {one.id for one in found.consequences} == set(expected["consequences"])
    backwards = diagnosis(*(Log(name=f.name, text=f.read_text()) for f in reversed(files)))
    assert backwards.suspects[0].id == expected["first"]


def test_the_evidence_is_file_line_rank_and_time():
    text = f"ok\n[2026-11-30 08:00:01 TP3] {OOM}"
    (evidence,) = diagnosis(Log(name="gpu-2.log", text=text)).suspects[0].evidence
    assert (evidence.source, evidence.line_number, evidence.rank) == ("gpu-2.log", 2, "TP3")
    assert evidence.at_s == 1_796_025_601
    assert "CUDA out of memory" in evidence.line


def test_the_earlier_of_two_own_failures_is_the_first():
    late = Log(name="a", text=f"[2026-11-30 08:00:09 TP0] {OOM}")
    early = Log(name="b", text="[2026-11-30 08:00:01 TP1] ValueError: heads must be divisible by 2")
    assert [s.id for s in diagnosis(late, early).suspects] == ["weights.heads", "memory.cuda"]


def test_a_hosts_wrong_clock_is_put_right():
    a = Log(name="a", text=f"[2026-11-30 08:00:09 TP0] {OOM}", shift_s=3600.0)
    b = Log(name="b", text="[2026-11-30 07:30:00 TP1] OSError: [Errno 24] Too many open files")
    assert [s.id for s in diagnosis(a, b).suspects] == ["memory.cuda", "host.files"]


def test_waiting_in_vain_is_the_cause_when_failures_come_only_well_after_it():
    waits = Log(name="a", text=f"[2026-11-30 08:00:00 TP0] {TIMEOUT}")
    later = Log(name="b", text="[2026-11-30 08:05:00 TP1] OSError: [Errno 24] Too many open files")
    assert diagnosis(waits, later).suspects[0].id == "comm.nccl_timeout"
    sooner = Log(name="b", text="[2026-11-30 07:50:00 TP1] OSError: [Errno 24] Too many open files")
    assert diagnosis(waits, sooner).suspects[0].id == "host.files"


def test_stamps_without_a_year_take_it_from_the_other_logs():
    a = Log(name="a", text=f"INFO 11-30 08:00:09 [a.py:1] {OOM}")
    b = Log(name="b", text="[2024-11-30 08:00:10 TP0] Load weight begin.")
    found = ranked((a, b), year=2026)
    assert found.first[0][0].evidence.at_s == pytest.approx(1_732_953_609)


def test_of_several_starts_in_a_log_the_last_one_that_failed_is_told():
    start = "INFO 11-30 0{}:00:00 [api_server.py:1] vLLM API server version 0.11.0"
    old = [start.format(7), "INFO 11-30 07:00:09 x OSError: [Errno 24] Too many open files"]
    new = [start.format(8), f"ERROR 11-30 08:00:09 x {OOM}"]
    both = "\n".join([*old, *new])
    assert [s.id for s in diagnosis(Log(name="a", text=both)).suspects] == ["memory.cuda"]
    mended = "\n".join([*old, start.format(8), "INFO 11-30 08:00:09 ready"])
    assert [s.id for s in diagnosis(Log(name="a", text=mended)).suspects] == ["host.files"]


def test_wrappers_alone_are_no_cause_and_say_so():
    found = diagnosis(Log(name="a", text="ERROR Engine core initialization failed."))
    assert found.suspects == ()
    assert found.consequences[0].id == "engine.wrapper"
    assert "another process's log" in found.notes[0]
    assert found.unknown[0].lines == ("ERROR Engine core initialization failed.",)
    assert not found.decided

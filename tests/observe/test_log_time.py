"""A line's time is read in every form in which programs stamp their lines."""

import datetime

import pytest

from llmdeploy.observe.log_time import line_time_s, stamp_s, year_of


def at(year, month, day, hour=0, minute=0, second=0.0):
    whole = datetime.datetime(year, month, day, hour, minute, tzinfo=datetime.UTC)
    return whole.timestamp() + second


@pytest.mark.parametrize(
    ("line", "expected_s"),
    [
        ('{"at_s": 1800000000.25, "event": "start"}', 1_800_000_000.25),
        ("1800000000.5 gpu-1 kernel: NVRM: Xid", 1_800_000_000.5),
        ("INFO 11-30 08:00:05 [core.py:1] x", at(2026, 11, 30, 8, 0, 5)),
        ("(Worker_TP1 pid=9) WARNING 11-30 08:00:05 [a.py:1]", at(2026, 11, 30, 8, 0, 5)),
        ("[2025-05-12 11:20:01 TP0] Load weight", at(2025, 5, 12, 11, 20, 1)),
        ("2025-05-12 11:20:01,250 - INFO - x", at(2025, 5, 12, 11, 20, 1.25)),
        ("2025-05-12T11:20:01.5+0800 gpu-1 kernel: x", at(2025, 5, 12, 3, 20, 1.5)),
        ("2025-05-12T11:20:01Z stdout F x", at(2025, 5, 12, 11, 20, 1)),
        ("[rank1]:[E1130 08:00:05.500000000 a.cpp:616]", at(2026, 11, 30, 8, 0, 5.5)),
        ("Nov  3 08:00:05 gpu-1 kernel: NVRM", at(2026, 11, 3, 8, 0, 5)),
        ("[ERROR] HCCL(9,python):2025-05-12-11:20:01.250.000 x", at(2025, 5, 12, 11, 20, 1.25)),
        ("Traceback (most recent call last):", None),
        ("2025-99-99 11:20:01 no date", None),
    ],
)  # fmt: skip
def test_a_stamp_is_read(line, expected_s):
    assert stamp_s(line, year=2026) == expected_s


def test_a_line_without_a_stamp_takes_the_one_above_it():
    lines = ["INFO 11-30 08:00:05 x", "Traceback", "ValueError: y"]
    assert line_time_s(lines, 2, year=2026) == at(2026, 11, 30, 8, 0, 5)
    assert line_time_s(["a", "b"], 1) is None


def test_the_year_is_that_of_the_first_stamp_that_has_one():
    assert year_of(["INFO 11-30 08:00:05 x", "[2025-05-12 11:20:01 TP0] y"]) == 2025
    assert year_of(["INFO 11-30 08:00:05 x"]) is None

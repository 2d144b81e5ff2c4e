"""`llmdeploy plan` with records of former releases, and the report it writes."""

import pathlib

import pytest

from llmdeploy.document import parse
from llmdeploy.estimate.calibration import Compared, Forecast, line
from llmdeploy.plan import Plan

from .test_plan import folder, plan

__all__ = ["folder"]


def record(measured_per_s: float) -> bytes:
    compared = Compared(name="output_tokens_per_s", predicted=100.0, measured=measured_per_s)
    return line(
        Forecast(
            schema=1,
            at_s=1.0,
            service="chat",
            release="0123456789ab",
            model="tiny",
            device="cpu",
            engine="embedded",
            requests=16,
            compared=(compared,),
        )
    )


def made(folder: pathlib.Path) -> dict[str, Plan]:
    return {
        path.parent.name: parse(path.read_text(), Plan, place=str(path))
        for path in folder.glob("plans/chat/*/plan.yaml")
    }


def test_a_report_lies_beside_the_plan(folder: pathlib.Path) -> None:
    plan(folder)
    (place,) = (folder / "plans" / "chat").iterdir()
    page = (place / "report.html").read_text()
    assert place.name in page
    assert "Latency against concurrency" in page
    assert "Memory per device" in page


def test_records_of_the_service_are_told_and_change_nothing(folder: pathlib.Path) -> None:
    plan(folder)
    before = made(folder)
    (folder / "state" / "chat").mkdir(parents=True)
    (folder / "state" / "chat" / "forecasts.jsonl").write_bytes(record(50))
    ended = plan(folder)
    assert ended.exit_code == 0
    assert "50 measured, 100 predicted (-50 %)" in ended.stderr
    assert "--forecasts" in ended.stderr
    assert made(folder) == before


def test_records_that_are_given_scale_the_predicted_speed(folder: pathlib.Path) -> None:
    plan(folder)
    (plain,) = made(folder).values()
    (folder / "past.jsonl").write_bytes(record(50))
    ended = plan(folder, "--forecasts", str(folder / "past.jsonl"))
    assert ended.exit_code == 0
    (scaled,) = [one for one in made(folder).values() if one.id != plain.id]
    rates = [next(f for f in one.figures if f.name == "matmul_rate") for one in (plain, scaled)]
    assert rates[1].value == pytest.approx(rates[0].value / 2)
    assert "x 0.50 (0.33 to 0.75), the median of 1 forecast(s)" in rates[1].formula


@pytest.mark.parametrize(("text", "what"), [(None, "no readable file"), ("{}\n", "past.jsonl:1:")])
def test_a_wrong_file_of_records_is_named(
    folder: pathlib.Path, text: str | None, what: str
) -> None:
    if text is not None:
        (folder / "past.jsonl").write_text(text)
    ended = plan(folder, "--forecasts", str(folder / "past.jsonl"))
    assert ended.exit_code == 2
    assert what in ended.stderr

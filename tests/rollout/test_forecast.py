"""A release that goes live leaves a record of its forecast; one that does not leaves none."""

import pathlib

from llmdeploy.document import parse
from llmdeploy.estimate.calibration import FILE, forecasts
from llmdeploy.plan import Plan
from llmdeploy.rollout.forecast import forecast, keep_forecast
from llmdeploy.rollout.outcome import Result
from llmdeploy.verdict.acceptance import AcceptanceRecord
from llmdeploy.verdict.speed import Speed

from .world import LAYOUT, World

PLANS = pathlib.Path(__file__).parents[2] / "plans" / "chat"
PLAN = parse(next(PLANS.glob("*/plan.yaml")).read_text(), Plan, place="plans/chat")


def accepted(*, speed: Speed | None) -> AcceptanceRecord:
    return AcceptanceRecord(release=PLAN.id, at_s=5.0, took_s=1.0, findings=(), speed=speed)


def test_a_release_that_went_live_leaves_one_record() -> None:
    world = World()
    measured = accepted(speed=Speed(requests=16, output_tokens=512, elapsed_s=4.0))
    path = f"{LAYOUT.run(PLAN.id)}/acceptance.json"
    world.shell.write(path, measured.model_dump_json().encode())
    assert keep_forecast(PLAN, PLAN.id, site=world.site) is None
    text = world.shell.read(f"{LAYOUT.root}/{FILE}")
    assert text is not None
    (kept,) = forecasts(text.decode(), place=FILE)
    assert (kept.release, kept.requests, kept.model) == (PLAN.id, 16, PLAN.model.id)


def test_a_promotion_without_figures_is_a_promotion_all_the_same() -> None:
    world = World()
    world.launch()
    assert world.verify().result == Result.PROMOTED
    assert world.shell.read(f"{LAYOUT.root}/{FILE}") is None


def test_the_forecast_is_the_plans_pace_at_the_measured_load() -> None:
    plan = PLAN
    record = accepted(speed=Speed(requests=16, output_tokens=512, elapsed_s=4.0))
    made = forecast(plan, record)
    assert made is not None
    (compared,) = made.compared
    assert compared.measured == 128
    assert 0 < compared.predicted <= plan.promises.output_tokens_per_s * 1.5


def test_nothing_is_kept_of_what_was_not_measured() -> None:
    plan = PLAN
    record = accepted(speed=None)
    assert forecast(plan, record) is None

"""Paces and devices corrected by what former releases measured."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

from llmdeploy.estimate.calibration import Compared, Forecast
from llmdeploy.plan.calibrated_pace import calibrated_pace


@dataclass(frozen=True)
class Plain:
    method: str = "roofline"
    spread_ratio: float = 0.5

    def decode_step_s(self, batch: float, context_tokens: float) -> float:
        return 0.01 * batch

    def prefill_s(self, tokens: float, context_tokens: float = 0) -> float:
        return 0.001 * tokens


def record(measured: float) -> Forecast:
    compared = Compared(name="output_tokens_per_s", predicted=100.0, measured=measured)
    return Forecast(
        schema=1, at_s=1.0, service="chat", release="a", model="m", device="rtx4090",
        engine="vllm", requests=8, compared=(compared,),
    )  # fmt: skip


def case(device: str) -> Any:
    return SimpleNamespace(device=SimpleNamespace(id=device), engine=SimpleNamespace(name="vllm"))


def test_times_grow_where_releases_came_out_slower() -> None:
    paces = calibrated_pace(cast(Any, lambda _: Plain()), [record(50)], model="m")
    found = paces(case("rtx4090"))
    assert found.decode_step_s(2, 100) == pytest.approx(0.04)
    assert found.prefill_s(10) == pytest.approx(0.02)
    assert found.method == "calibrated"
    assert found.spread_ratio == pytest.approx((1.5 - 1 / 1.5) / 2)


def test_devices_without_records_keep_their_pace() -> None:
    paces = calibrated_pace(cast(Any, lambda _: Plain()), [record(50)], model="m")
    assert paces(case("l40s")) == Plain()

"""What records of forecasts against actuals teach."""

import pytest

from llmdeploy.catalog import devices
from llmdeploy.errors import InputError
from llmdeploy.estimate.calibration import (
    Compared,
    Forecast,
    calibration,
    forecasts,
    line,
    measured,
    told,
)


def record(
    measured_per_s: float, *, at_s: float = 1.0, device: str = "cpu", model: str = "m"
) -> Forecast:
    compared = Compared(name="output_tokens_per_s", predicted=100.0, measured=measured_per_s)
    return Forecast(
        schema=1, at_s=at_s, service="chat", release=f"r{at_s:g}", model=model, device=device,
        engine="embedded", requests=16, compared=(compared,),
    )  # fmt: skip


def test_records_come_back_from_their_lines_in_order() -> None:
    newer, older = record(90, at_s=2), record(80, at_s=1)
    text = (line(newer) + b"\n" + line(older)).decode()
    assert forecasts(text, place="f.jsonl") == (older, newer)


def test_a_damaged_line_is_named() -> None:
    text = line(record(90)).decode() + '{"schema": 1}\n'
    with pytest.raises(InputError, match=r"f\.jsonl:2: at_s: Field required") as caught:
        forecasts(text, place="f.jsonl")
    assert caught.value.fix == "remove line 2 of f.jsonl"


def test_the_median_scales_and_the_spread_holds_all_records() -> None:
    found = calibration(
        [record(80, at_s=1), record(90, at_s=2), record(120, at_s=3)],
        device="cpu", engine="embedded",
    )  # fmt: skip
    assert found is not None
    assert (found.ratio, found.records) == (0.9, 3)
    assert found.low <= 0.8
    assert found.high >= 1.2


def test_one_record_says_little_and_many_narrow() -> None:
    lone = calibration([record(90)], device="cpu", engine="embedded")
    many = calibration([record(90, at_s=i) for i in range(1, 17)], device="cpu", engine="embedded")
    assert lone is not None
    assert many is not None
    assert lone.high / lone.low == pytest.approx(1.5**2)
    assert many.high / many.low == pytest.approx(1.5 ** (2 / 4))


def test_other_devices_engines_and_broken_runs_do_not_count() -> None:
    assert calibration([record(90)], device="cuda", engine="embedded") is None
    assert calibration([record(90)], device="cpu", engine="vllm") is None
    assert calibration([record(1)], device="cpu", engine="embedded") is None
    both = [record(50, model="a"), record(90, model="b")]
    own = calibration(both, device="cpu", engine="embedded", model="b")
    assert own is not None
    assert own.ratio == 0.9


def test_only_the_newest_records_count() -> None:
    aged = [record(50, at_s=i) for i in range(1, 30)]
    fresh = [record(100, at_s=100 + i) for i in range(20)]
    found = calibration([*fresh, *aged], device="cpu", engine="embedded")
    assert found is not None
    assert (found.ratio, found.records) == (1.0, 20)


def test_how_far_the_last_forecast_was_off_is_told_in_words() -> None:
    (words,) = told([record(80, at_s=1), record(90, at_s=2)])
    assert "embedded on cpu, release r2 at 16 requests" in words
    assert "90 measured, 100 predicted (-10 %)" in words
    assert "x 0.85" in words


def test_a_measured_rate_takes_the_data_sheets_place() -> None:
    spec = devices.find("h100-sxm")
    sound = measured(
        spec,
        matmul_flops_per_s=spec.bf16_flops_per_s * 0.78,
        memory_read_bytes_per_s=spec.memory_bytes_per_s * 0.90,
    )
    assert sound.bf16_flops_per_s == pytest.approx(spec.bf16_flops_per_s)
    assert sound.memory_bytes_per_s == pytest.approx(spec.memory_bytes_per_s)
    slow = measured(spec, matmul_flops_per_s=spec.bf16_flops_per_s * 0.39)
    assert slow.bf16_flops_per_s == pytest.approx(spec.bf16_flops_per_s / 2)
    assert slow.fp8_flops_per_s == pytest.approx((spec.fp8_flops_per_s or 0) / 2)
    assert slow.memory_bytes_per_s == spec.memory_bytes_per_s
    assert "measured on this host" in slow.source
    assert measured(spec) == spec

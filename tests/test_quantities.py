"""Quantities are read with their units and shown in words."""

import pytest

from llmdeploy import units


def test_gigabytes_are_decimal_and_gibibytes_binary() -> None:
    assert units.parse_bytes("80GB") == 80 * 10**9
    assert units.parse_bytes("80 GiB") == 80 * 2**30
    assert units.parse_bytes("1.5KiB") == 1536


def test_durations_rates_and_shares_are_si_inside() -> None:
    assert units.parse_seconds("250ms") == 0.25
    assert units.parse_seconds("90d") == 90 * 86400
    assert units.parse_rate_per_s("86400/day") == 1.0
    assert units.parse_ratio("0.1%") == 0.001


@pytest.mark.parametrize("value", [80, "80", "80G", "GiB", "-1GiB", None, True])
def test_a_size_without_a_known_unit_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="needed a number with its unit, like 80GiB"):
        units.parse_bytes(value)


@pytest.mark.parametrize("value", [2, "2", "2 weeks", "2S"])
def test_a_duration_without_a_known_unit_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="like 2s"):
        units.parse_seconds(value)


def test_shown_quantities_read_well() -> None:
    assert units.show_bytes(269_060_552) == "256.6 MiB"
    assert units.show_bytes(12) == "12 B"
    assert units.show_seconds(0.0123) == "12.3 ms"
    assert units.show_seconds(200) == "3 min 20 s"
    assert units.show_seconds(7500) == "2 h 5 min"
    assert [units.show_number(n) for n in (15063.4, 903.61, 14.0, 0.00001234, 1e300 * 0)] == [
        "15060", "903.6", "14", "0.00001234", "0",
    ]  # fmt: skip
    assert units.show_ratio(0.001) == "0.1 %"


def test_a_bandwidth_is_bytes_a_second() -> None:
    assert units.parse_bytes_per_s("200MB/s") == 200e6
    assert units.parse_bytes_per_s("1.5 GiB/s") == 1.5 * 2**30


@pytest.mark.parametrize("value", [200, "200MB", "200Mbit/s", "200MB/min", "/s"])
def test_a_bandwidth_without_its_unit_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="needed"):
        units.parse_bytes_per_s(value)

"""What collectives take by link, and the names that links have."""

import json
import pathlib
import statistics

import pytest

from llmdeploy.catalog import devices, links
from llmdeploy.errors import InputError

KNOWLEDGE = pathlib.Path(__file__).parents[3] / "shared" / "knowledge"
COLLECTIVES = KNOWLEDGE / "collective_latency.jsonl"
NVLINK4, PCIE5 = links.find("nvlink4"), links.find("pcie5")
NAMES = {
    ("NVLink (DGX H100)", None): "nvlink4",
    ("18x 4th Gen NVLink, 900GB/s; host: PCIe Gen5 x16; net: Ethernet", None): "nvlink4",
    ("NVLink", "a100-80-sxm"): "nvlink3",
    ("NVLink", "b200-sxm"): "nvlink5",
    ("NVLink NVL72", None): "nvlink5-nvl72",
    ("PCIe Gen4, no NVLink", None): "pcie4",
    ("PCIe, not NVLink (README)", "rtx4090"): "pcie4-host",
    ("PCIe Gen5, no NVLink", "rtxpro6000-server"): "pcie5",
    ("Infinity Fabric xGMI", None): "xgmi",
    ("HCCS", None): "hccs",
    ("25GbE", None): "ethernet-25g",
    ("RoCE 100G", None): "ethernet-100g",
    ("400Gb/s InfiniBand", None): "infiniband-400g",
    ("IB NDR", None): "infiniband-400g",
    ("not stated", "mi300x"): "xgmi",
}


@pytest.mark.parametrize(("printed", "expected"), NAMES.items())
def test_a_printed_link_is_found(printed, expected):
    name, device = printed
    assert links.find(name, devices.find(device) if device else None).id == expected


def test_an_unknown_link_is_refused_with_the_known_ones():
    with pytest.raises(InputError) as refused:
        links.find("wet string")
    assert "nvlink4" in refused.value.fix


def test_a_collective_takes_the_faster_of_two_protocols():
    # nvlink4, 8 devices, 64 MiB without the engines' own kernel: the wide protocol,
    # 50 us + 2 x 7/8 x 67,108,864 bytes / 438 GB/s = 318 us
    seconds = links.all_reduce_s(NVLINK4, 8, 64 * 2**20, custom=False)
    assert seconds == pytest.approx(50e-6 + 1.75 * 64 * 2**20 / 438e9)
    # 8 KiB: the near one, 17 us + 1.75 x 8,192 / 202 GB/s
    seconds = links.all_reduce_s(NVLINK4, 8, 8192, custom=False)
    assert seconds == pytest.approx(17e-6 + 1.75 * 8192 / 202e9)


def test_the_engines_own_all_reduce_is_used_below_8_mib_only():
    small, large = 2**20, 16 * 2**20
    assert links.all_reduce_s(NVLINK4, 8, small) < links.all_reduce_s(
        NVLINK4, 8, small, custom=False
    )
    assert links.all_reduce_s(NVLINK4, 8, large) == links.all_reduce_s(
        NVLINK4, 8, large, custom=False
    )
    assert links.custom_cap_bytes(PCIE5, 4) == 0  # only pairs over PCIe


def test_one_device_sends_nothing():
    assert links.all_reduce_s(NVLINK4, 1, 2**20) == 0
    assert links.all_to_all_s(NVLINK4, 1, 2**20) == 0


def test_a_measured_curve_overrides_the_table():
    curve = (
        links.Sample(size_bytes=2**20, duration_s=1e-3),
        links.Sample(size_bytes=2**22, duration_s=4e-3),
    )
    # between: 2 MiB lies halfway by the logarithm, so 2 ms; above the last at its rate
    assert links.all_reduce_s(NVLINK4, 8, 2**21, measured=curve) == pytest.approx(2e-3)
    assert links.all_reduce_s(NVLINK4, 8, 2**23, measured=curve) == pytest.approx(8e-3)
    assert links.all_reduce_s(NVLINK4, 8, 10, measured=curve) == 1e-3


def test_every_link_gets_slower_with_size_and_never_free():
    for link in links.all_links():
        for devices_count in (2, 3, 4, 8, 16):
            taken = [
                links.all_reduce_s(link, devices_count, 2**n, custom=False) for n in (10, 20, 26)
            ]
            assert 0 < taken[0] < taken[1] < taken[2], link.id


@pytest.mark.skipif(not COLLECTIVES.exists(), reason="../shared/knowledge is not here")
def test_measured_collectives_are_met():
    systems = {
        "h100_sxm": "nvlink4", "h200_sxm": "nvlink4", "b200_sxm": "nvlink5", "b300_sxm": "nvlink5",
        "a100_sxm": "nvlink3", "gb200": "nvlink5-nvl72", "rtx_pro_6000_server": "pcie5",
    }  # fmt: skip
    misses = []
    for line in COLLECTIVES.read_text().splitlines():
        row = json.loads(line)
        if row["system"] in systems and row["collective"] == "all_reduce" and "NCCL" in row["impl"]:
            link = links.find(systems[row["system"]])
            foretold = links.all_reduce_s(link, row["num_gpus"], row["message_bytes"], custom=False)
            misses.append(abs(foretold / (row["latency_us"] * 1e-6) - 1))
    assert statistics.median(misses) < 0.07
    assert sorted(misses)[int(0.9 * len(misses))] < 0.2


def test_a_measured_curve_as_protocols_is_met_at_its_points():
    curve = ((1024, 10e-6), (2048, 12e-6), (4096, 15e-6))
    made = links.curve_lines(curve)
    for size, duration_s in curve:
        assert links.least_s(made, size) == pytest.approx(duration_s)
    # to no bytes: 10 us - 1,024 bytes x 2 us / 1,024 bytes = 8 us
    assert links.least_s(made, 0) == pytest.approx(8e-6)
    # beyond the last: 15 us + 4,096 bytes x 3 us / 2,048 bytes = 21 us
    assert links.least_s(made, 8192) == pytest.approx(21e-6)


def test_noise_in_a_measured_curve_makes_no_message_faster_than_measured():
    curve = ((1024, 10e-6), (2048, 9e-6), (4096, 30e-6), (8192, 31e-6))
    made = links.curve_lines(curve)
    assert all(links.least_s(made, size) >= 0.999 * duration_s for size, duration_s in curve)
    assert all(line.latency_s > 0 for line in made)


def test_a_slow_network_is_not_taken_for_a_faster_one():
    assert links.find("2.5 GbE").id == "ethernet-1g"
    assert links.find("ethernet-1g").bytes_per_s == 0.125e9

"""Every name that drivers, logs and people print finds its device; others get near matches."""

import json
import pathlib
import typing

import pytest

from llmdeploy.catalog import devices, links
from llmdeploy.catalog.types import Vendor
from llmdeploy.errors import InputError

KNOWLEDGE = pathlib.Path(__file__).parents[3] / "shared" / "knowledge"
GIB = 2**30
PRINTED = {
    "NVIDIA GeForce RTX 4090": "rtx4090",
    "A100-SXM4-80GB": "a100-80-sxm",
    "NVIDIA A100-PCIE-40GB": "a100-40-pcie",
    "NVIDIA A100 80GB PCIe": "a100-80-pcie",
    "AMD Instinct MI300X": "mi300x",
    "AMD Instinct MI300X VF": "mi300x",
    "Ascend910B2": "ascend910b2",
    "Ascend 910B4": "ascend910b4",
    "910B3": "ascend910b",
    "NVIDIA H100 80GB HBM3": "h100-sxm",
    "NVIDIA H100 NVL": "h100-nvl",
    "NVIDIA H100 PCIe": "h100-pcie",
    "8xH100": "h100-sxm",
    "NVIDIA H200": "h200-sxm",
    "NVIDIA H20-3e": "h20-141",
    "NVIDIA GH200 480GB": "gh200-96",
    "NVIDIA L40S": "l40s",
    "NVIDIA L40": "l40",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "rtxpro6000-server",
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "rtxpro6000-ws",
    "NVIDIA A800 80GB PCIe": "a800-80-pcie",
    "Tesla T4": "t4",
    "Tesla V100-SXM2-16GB": "v100-sxm2-16",
    "NVIDIA GeForce RTX 3080 12GB": "rtx3080-12",
    "NVIDIA GeForce RTX 4090 D": "rtx4090d",
    "NVIDIA RTX 6000 Ada Generation": "rtx6000ada",
    "Quadro RTX 6000": "quadrortx6000",
    "NVIDIA GB10": "dgx-spark",
    "AMD Radeon AI PRO R9700": "r9700",
    "Intel(R) Arc(TM) Pro B60 Graphics": "b60",
    "HL-225H": "gaudi2",
    "Intel(R) Xeon(R) Platinum 8480+": "xeon-8480",
    "h100_sxm": "h100-sxm",
    "RTX4090-24GB": "rtx4090",
    "NVIDIA A10G (g5.48xlarge)": "a10g",
}


@pytest.mark.parametrize(("printed", "expected"), PRINTED.items())
def test_a_printed_name_finds_its_device(printed, expected):
    assert devices.find(printed).id == expected
    assert devices.find(printed.upper()).id == expected


def test_every_id_finds_itself():
    assert {d.id for d in devices.all_devices()} == {
        devices.find(d.id).id for d in devices.all_devices()
    }
    assert all(devices.find(d.id).id == d.id for d in devices.all_devices())


@pytest.mark.parametrize("unknown", ["rtx 9999", "GeForce RTX 4090 Laptop GPU", "A100 MIG 1g.10gb"])
def test_an_unknown_name_is_refused_with_near_matches(unknown):
    with pytest.raises(InputError) as refused:
        devices.find(unknown)
    assert unknown in str(refused.value)
    assert "did you mean" in refused.value.fix


def test_a_name_near_nothing_shows_what_a_name_is():
    with pytest.raises(InputError) as refused:
        devices.find("Frobnicator")
    assert "h100-sxm" in refused.value.fix


def test_every_row_is_whole_and_plausible():
    known = {link.id for link in links.all_links()}
    for device in devices.all_devices():
        assert device.vendor in typing.get_args(Vendor)
        assert device.link in known, device.id
        assert 0.6 * device.memory_bytes <= device.usable_memory_bytes <= device.memory_bytes
        assert 50e9 < device.memory_bytes_per_s < 2e13
        assert 1e12 < device.bf16_flops_per_s < 1e16
        assert device.source
        assert (device.compute_capability is not None) == (device.vendor == "nvidia")


def test_totals_are_those_that_engines_print():
    # vLLM's start logs: 39.4, 79.2, 14.6, 23.6 and 139.7 GiB
    printed = {
        "a100-40-sxm": 39.4,
        "h100-sxm": 79.2,
        "t4": 14.56,
        "rtx4090": 23.6,
        "h200-sxm": 139.72,
    }
    for name, gib in printed.items():
        assert devices.find(name).usable_memory_bytes == pytest.approx(gib * GIB, rel=0.005)


def test_there_are_at_least_45_devices_of_eight_makers():
    assert len(devices.all_devices()) >= 45
    assert len({d.vendor for d in devices.all_devices()}) >= 8


@pytest.mark.skipif(not KNOWLEDGE.exists(), reason="../shared/knowledge is not here")
def test_names_in_public_logs_and_tables_find_a_device():
    names = {row["id"] for row in json.loads((KNOWLEDGE / "gpus.json").read_text())["gpus"]}
    for file in ("engine_memory_logs.jsonl", "throughput_measured.jsonl"):
        for line in (KNOWLEDGE / file).read_text().splitlines():
            row = json.loads(line)
            gpu = row.get("gpu")
            names.add(gpu.get("name") if isinstance(gpu, dict) else gpu)
    found = {name: devices.find(name).memory_bytes for name in names - {None}}
    assert len(found) > 45
    assert [name for name, size_bytes in found.items() if size_bytes < 8 * GIB] == []

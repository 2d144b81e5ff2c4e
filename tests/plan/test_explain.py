"""Every figure's sum, computed as it stands, gives the figure."""

import math
import re

import pytest

from llmdeploy.plan import make
from llmdeploy.plan.document import Origin

from .cases import GIB, H100, INVENTORY, MODEL, bundle, service

CASES = {
    "two cores": ({}, {}),
    "sixteen cores": ({}, {"cpu_cores": 16, "cpu_ids": tuple(range(16))}),
    "measured": ({}, {"memory_read_bytes_per_s": 26e9, "core_matmul_flops_per_s": 206e9}),
    "nf4": ({"model": {"quantization": "nf4"}}, {}),
    "float32": ({"model": {"dtype": "float32"}}, {}),
    "one release": ({"release": {"side_by_side": False}}, {"memory_limit_bytes": 8 * GIB}),
    "asked batch": ({"engine": {"max_num_seqs": 7}}, {}),
    "card": ({}, {"accelerators": (H100,), "torch_cuda_devices": 1}),
}


def figures(name):
    parts, facts = CASES[name]
    return make(service(**parts), INVENTORY, bundle(**facts), MODEL).figures


@pytest.mark.parametrize("name", CASES)
def test_every_written_sum_gives_its_figure(name):
    computed = 0
    for figure in figures(name):
        words, _, result = figure.formula.rpartition(" = ")
        assert float(result) == figure.value, figure.name
        sum_ = words.rpartition(": ")[2]
        if not re.fullmatch(r"(?:floor|ceil|[\d.()+\-/x\s])+", sum_):
            continue
        found = eval(sum_.replace("x", "*"), {"floor": math.floor, "ceil": math.ceil})
        assert found == pytest.approx(figure.value, rel=2e-3), figure.formula
        computed += 1
    assert computed >= 15


@pytest.mark.parametrize("name", CASES)
def test_every_figure_says_unit_and_origin_once(name):
    found = figures(name)
    assert len({f.name for f in found}) == len(found)
    units = {
        "bytes",
        "tokens",
        "s",
        "requests/s",
        "tokens/s",
        "ratio",
        "count",
        "bytes/s",
        "FLOP/s",
    }
    assert {f.unit for f in found} <= units
    assert all(f.formula for f in found)


def test_memory_needed_is_all_that_a_release_takes():
    by_name = {f.name: f.value for f in figures("two cores")}
    parts = ("weights", "packed_weights", "overhead_estimate", "workspace")
    kv = by_name["kv_cache"] * by_name["kv_per_token"]
    assert by_name["memory_needed"] == sum(by_name[name] for name in parts) + kv
    assert by_name["memory_needed"] <= by_name["allowed_memory"]


def test_nothing_computed_from_an_assumption_is_called_derived():
    origins = {f.name: f.origin for f in figures("two cores")}
    for name in ("tpot", "predicted_throughput", "replicas", "utilisation", "ttft_p95"):
        assert origins[name] == Origin.ASSUMED
    for name in ("kv_per_token", "kv_budget", "needed_throughput"):
        assert origins[name] == Origin.DERIVED

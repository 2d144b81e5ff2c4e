"""Rates that active tests measured take the place of data sheets and of the catalog's links."""

import pytest

from llmdeploy.catalog import devices, links
from llmdeploy.document import parse
from llmdeploy.estimate import memory
from llmdeploy.facts.active.measured import (
    AllReduce,
    DiskRate,
    LinkRate,
    Measured,
    Pattern,
    Product,
    RankState,
    Sample,
)
from llmdeploy.facts.bundle import Bundle
from llmdeploy.inventory import Inventory
from llmdeploy.plan import make
from llmdeploy.plan.cluster_make import PlannableModel, make_for_cluster
from llmdeploy.plan.document import Origin
from llmdeploy.plan.engine_pace import engine_pace
from llmdeploy.plan.pool import Rates, from_facts
from llmdeploy.plan.size import Estimators

from .cases import H100, MODEL, facts
from .cases import service as small
from .stand_ins import LLAMA_70B, service, shape

NAME = H100.name
REAL = Estimators(memory=memory.estimate, pace=engine_pace)


def measured(**changes) -> Measured:
    return Measured(level="deep", begun_s=0.0, duration_s=1.0, **changes)


def usual_s(devices: int, size_bytes: int, *, custom: bool = False) -> float:
    return links.all_reduce_s(links.find("nvlink4"), devices, size_bytes, custom=custom)


def curve(times: float, *, ranks: int = 4, **changes) -> AllReduce:
    """The catalog's curve of NVLink 4 with its times multiplied."""
    sizes = [4**power for power in range(5, 15)]
    samples = tuple(Sample(size_bytes=n, duration_s=times * usual_s(ranks, n)) for n in sizes)
    values = {
        "hosts": ("local",), "backend": "nccl", "device": NAME, "ranks": ranks, "samples": samples,
        "states": (RankState(host="local", steps=1, stage="done"),), "at_s": 0.0,
    }  # fmt: skip
    return AllReduce(**values | changes)


def product(flops_per_s: float, **changes) -> Product:
    values = {
        "host": "local", "device": "cuda:0", "name": NAME, "dtype": "bfloat16", "size": 8192,
        "flops_per_s": flops_per_s, "wrong": 0, "at_s": 0.0,
    }  # fmt: skip
    return Product(**values | changes)


def bundle(found: Measured | None, cards: int = 4) -> Bundle:
    accelerators = tuple(H100.model_copy(update={"index": n}) for n in range(cards))
    hosts = (facts(accelerators=accelerators),)
    return Bundle(schema=1, llmdeploy="0", hosts=hosts, measured=found)


def made(found: Measured | None):
    inventory = parse("hosts: [{name: local}]", Inventory, place="cluster.yaml")
    pools = from_facts(inventory, bundle(found))
    model = PlannableModel(id="org/model", shape=shape(LLAMA_70B))
    wanted = service(engine={"tensor_parallel": 4, "max_model_len": 4096, "max_num_seqs": 64})
    return make_for_cluster(wanted, inventory, pools, model, using=REAL)


def value(plan, name):
    return next(figure for figure in plan.figures if figure.name == name)


def test_without_a_test_the_catalogs_link_and_the_data_sheet_are_used():
    plan = made(None)
    assert value(plan, "all_reduce").origin is Origin.TABLE
    assert value(plan, "matmul_rate").origin is Origin.TABLE
    assert value(plan, "memory_read_rate").value == devices.find("h100-sxm").memory_bytes_per_s
    assert not any("Measured on these hosts" in note for note in plan.notes)


def test_a_measured_curve_reaches_the_plan_and_says_so():
    usual, slow = made(None), made(measured(all_reduces=(curve(8.0),)))
    assert value(slow, "all_reduce").origin is Origin.MEASURED
    ratio = value(slow, "all_reduce").value / value(usual, "all_reduce").value
    assert ratio == pytest.approx(8, rel=0.1)
    assert value(slow, "tpot").value > 1.1 * value(usual, "tpot").value
    (words,) = [note for note in slow.notes if "Measured on these hosts" in note]
    assert "over 4 devices" in words


def test_measured_rates_of_the_devices_slow_the_plan_and_say_so():
    half = measured(
        products=(product(989e12 * 0.78 / 2), product(989e12)),
        patterns=(Pattern(host="local", device="cuda:0", tested_bytes=1, wrong=0,
                          read_bytes_per_s=3.35e12 * 0.9 / 2, at_s=0.0),),
        disks=(DiskRate(host="local", folder="/m", read_bytes=1, bytes_per_s=5e9,
                        past_cache="O_DIRECT", of="a nameless file", at_s=0.0),),
    )  # fmt: skip
    usual, slow = made(None), made(half)
    assert value(slow, "matmul_rate").origin is Origin.MEASURED
    assert value(slow, "matmul_rate").value == pytest.approx(989.5e12 / 2, rel=0.01)
    assert value(slow, "memory_read_rate").value == pytest.approx(3.35e12 / 2, rel=0.01)
    assert 1.4 < value(slow, "step_time").value / value(usual, "step_time").value < 2.2
    assert value(slow, "load_time").value == pytest.approx(141e9 / 5e9, rel=0.05)
    (words,) = [note for note in slow.notes if "Measured on these hosts" in note]
    assert "39 % of the data sheet" in words


@pytest.mark.parametrize(
    "found",
    [
        measured(all_reduces=(curve(8.0, states=(RankState(host="local", steps=1, stage="x",
                                                           error="hung"),)),)),
        measured(all_reduces=(curve(8.0, device="cpu"),)),
        measured(all_reduces=(curve(8.0, hosts=("a", "b")),)),
        measured(products=(product(1e12, wrong=3), product(1e12, dtype="float32"))),
        measured(products=(product(1e9, device="cpu", name="cpu"),)),
    ],
)  # fmt: skip
def test_tests_that_failed_or_are_of_something_else_change_nothing(found):
    assert made(found).figures == made(None).figures


def test_a_curve_of_more_devices_is_scaled_as_the_catalogs_link_does():
    link, size = links.find("nvlink4"), 2**20
    whole = Rates(all_reduce=((size, 1e-3),), all_reduce_devices=8)
    ((_, duration_s),) = whole.curve(4, link)
    assert duration_s == pytest.approx(1e-3 * usual_s(4, size, custom=True) / usual_s(8, size))
    assert whole.curve(1, link) == ()


def test_engines_own_kernel_is_as_much_faster_than_the_measured_library_as_the_catalog_says():
    link = links.find("nvlink4")
    usual = Rates(
        all_reduce=tuple((n, usual_s(8, n)) for n in (2**16, 2**26)), all_reduce_devices=8
    )
    small, large = usual.curve(8, link)
    assert small[1] == pytest.approx(usual_s(8, 2**16, custom=True))
    assert large[1] == pytest.approx(usual_s(8, 2**26))


def test_a_network_that_nobody_named_is_the_ethernet_that_the_slowest_pair_reaches():
    ways = [("a", "b", 2.9e9), ("b", "a", 5e9), ("a", "c", 1e6)]
    rates = tuple(
        LinkRate(source=s, target=t, streams=4, bytes_per_s=rate, at_s=0.0) for s, t, rate in ways
    )
    hosts = tuple(
        facts(accelerators=(H100,)).model_copy(update={"host": name}) for name in ("a", "b")
    )
    found = Bundle(schema=1, llmdeploy="0", hosts=hosts, measured=measured(links=rates))
    inventory = parse("hosts: [{name: a}, {name: b}]", Inventory, place="cluster.yaml")
    (pool,) = from_facts(inventory, found)
    assert pool.network is not None
    assert pool.network.id == "ethernet-25g"


def test_prices_and_links_of_cluster_yaml_hold_beside_facts():
    text = (
        "hosts: [{name: local, devices: [{device: H100, count: 4, link: pcie5,"
        " price_per_hour: 2.5}]}]"
    )
    inventory = parse(text, Inventory, place="cluster.yaml")
    (pool,) = from_facts(inventory, bundle(None))
    assert (pool.link.id, pool.price_per_hour) == ("pcie5", 2.5)


def test_a_single_hosts_card_and_disk_are_planned_as_measured():
    asked = small(workload={"requests_per_day": 1000})
    half = measured(
        products=(product(989e12 * 0.78 / 2),),
        disks=(DiskRate(host="local", folder="/m", read_bytes=1, bytes_per_s=2.69e8,
                        past_cache="O_DIRECT", of="a nameless file", at_s=0.0),),
    )  # fmt: skip
    found = bundle(half, cards=1)
    host = found.hosts[0].model_copy(update={"torch_cuda_devices": 1})
    found = found.model_copy(update={"hosts": (host,)})
    plan = make(asked, Inventory.model_validate_json("{}"), found, MODEL)
    assert value(plan, "matmul_rate").origin is Origin.MEASURED
    assert value(plan, "matmul_rate").value == 490e12
    assert value(plan, "memory_read_rate").value == 3.35e12
    assert value(plan, "load_time").value == pytest.approx(1.0, rel=0.01)

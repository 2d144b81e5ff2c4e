"""Link domains inside a host and racks over hosts: declared, drawn by drivers, planned within."""

import pytest

from llmdeploy.catalog import devices, links
from llmdeploy.errors import InputError
from llmdeploy.facts.card import Topology
from llmdeploy.plan.place import place
from llmdeploy.plan.pool import declared, groups_that_fit
from llmdeploy.plan.pool.from_facts import drawn
from llmdeploy.plan.proposal import Proposal
from llmdeploy.plan.rank import best
from llmdeploy.plan.rules import first_broken
from llmdeploy.plan.search import search
from llmdeploy.plan.weights import plain

from .clusters import inventory, plan
from .stand_ins import LLAMA_8B, LLAMA_70B, QWEN_14B, USING, VLLM, service, shape

PAIRS = """
hosts:
  - name: gpu
    devices: [{device: A100 PCIe 80GB, count: 4, link: nvlink3-pair, link_domains: 2}]
"""
RACK = """
hosts:
  - {name: tray, count: 18, devices: [{device: GB200, count: 4}]}
network: infiniband-400g
"""


def proposal(text: str, **changes) -> Proposal:
    (pool,) = declared(inventory(text))
    values = {
        "pool": pool, "engine": VLLM, "weights": plain(service(), shape(LLAMA_70B), pool.device),
        "dtype": "bf16", "kv_cache_dtype": None, "tensor_parallel": 1,
    }  # fmt: skip
    return Proposal(**values | changes)


def test_pairs_are_two_domains_with_pcie_between_them():
    (pool,) = declared(inventory(PAIRS))
    assert pool.hosts[0].domains == ((0, 1), (2, 3))
    assert (pool.link.id, pool.between and pool.between.id) == ("nvlink3-pair", "pcie4")
    assert pool.domain_devices == 2
    assert pool.link_of(2).id == "nvlink3-pair"
    assert pool.link_of(4).id == "pcie4"


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("3", "needed a divisor"), ("[[0, 1], [2]]", "needed each of the devices 0 to 3 once"),
        ("[[0, 1], [1, 2, 3]]", "needed each of"), ("0", "needed 1 to"), ("[[]]", "empty domain"),
        ("6", "needed a multiple"),
    ],
)  # fmt: skip
def test_domains_that_are_none_name_their_place_and_the_fix(said, found):
    with pytest.raises(InputError) as error:
        declared(inventory(PAIRS.replace("link_domains: 2", f"link_domains: {said}")))
    assert "link_domains" in str(error.value)
    assert found in str(error.value)
    assert error.value.fix


def test_a_tensor_group_that_leaves_its_pair_is_rejected_where_a_pair_is_enough():
    broken = first_broken(proposal(PAIRS, tensor_parallel=4), shape(QWEN_14B))
    assert broken is not None
    assert broken.rule == "tp-link-domain"
    assert "leaves its link domain of 2 devices on nvlink3-pair and sums over pcie4" in broken.words
    assert first_broken(proposal(PAIRS, tensor_parallel=2), shape(QWEN_14B)) is None


def test_a_model_that_no_pair_holds_may_be_cut_over_both_at_the_slower_link():
    wide = proposal(PAIRS, tensor_parallel=4)
    assert first_broken(wide, shape(LLAMA_70B)) is None
    assert wide.case(service(), shape(LLAMA_70B), max_num_seqs=8).link == links.find("pcie4")
    staged = proposal(PAIRS, tensor_parallel=2, pipeline_parallel=2)
    assert staged.case(service(), shape(LLAMA_70B), max_num_seqs=8).link.id == "nvlink3-pair"
    assert (staged.hosts, staged.replicas_that_fit) == (1, 1)


def test_replicas_are_placed_within_pairs_that_are_no_neighbours():
    text = PAIRS.replace("link_domains: 2", "link_domains: [[0, 2], [1, 3]]")
    made = plan(QWEN_14B, text, service(engine={"tensor_parallel": 2, "max_model_len": 4096}))
    placed = {replica.members[0].device_ids for replica in made.replicas if replica.members}
    assert placed <= {(0, 2), (1, 3)}


def test_odd_domains_leave_devices_that_no_pair_can_use():
    assert groups_that_fit(((3, 3), 0), 2) == 2
    assert groups_that_fit(((3, 3), 0), 6) == 1
    assert groups_that_fit(((4,), 0), 2) == 2


def test_a_rack_joins_the_devices_of_its_hosts():
    (pool,) = declared(inventory(RACK))
    assert (len(pool.hosts), pool.devices, pool.rack_host_devices) == (1, 72, 4)
    group = proposal(RACK, tensor_parallel=8)
    assert (group.hosts, group.machines, group.replicas_that_fit) == (1, 2, 9)
    assert proposal(RACK, tensor_parallel=6).replicas_that_fit == 0
    assert proposal(RACK, tensor_parallel=2).replicas_that_fit == 36


def test_a_replica_in_a_rack_names_its_hosts_and_their_devices():
    (pool,) = declared(inventory(RACK))
    found = search(
        service(engine={"tensor_parallel": 8}), shape(LLAMA_70B), (pool,), engine=VLLM, using=USING
    )
    placed = place(best(found.options))
    assert [member.host for member in placed[0].members] == ["tray-1", "tray-2"]
    assert [member.device_ids for member in placed[0].members] == [(0, 1, 2, 3)] * 2
    assert [member.position for member in placed[0].members] == [0, 1]


def test_hosts_that_fill_no_rack_stand_alone():
    pools = declared(inventory(RACK.replace("count: 18", "count: 20")))
    assert [pool.devices for pool in pools] == [72, 8]
    assert pools[1].rack_host_devices is None


def topology(*rows: str) -> Topology:
    links_ = tuple(tuple(row.split()) for row in rows)
    cards = tuple(range(len(rows)))
    return Topology(
        vendor="nvidia", cards=cards, links=links_, numa=(None,) * len(cards),
        cpus=(None,) * len(cards),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("device", "rows", "expected"),
    [
        ("a100-pcie-80gb", ("X NV12 SYS SYS", "NV12 X SYS SYS", "SYS SYS X NV12", "SYS SYS NV12 X"),
         ("nvlink3-pair", "pcie4", ((0, 1), (2, 3)))),
        ("h100-sxm", ("X NV18", "NV18 X"), ("nvlink4", None, ((0, 1),))),
        ("l40s", ("X PIX SYS SYS", "PIX X SYS SYS", "SYS SYS X PIX", "SYS SYS PIX X"),
         ("pcie4", "pcie4-host", ((0, 1), (2, 3)))),
        ("l40s", ("X SYS", "SYS X"), ("pcie4", None, ((0, 1),))),
    ],
)  # fmt: skip
def test_domains_are_those_that_the_driver_draws(device, rows, expected):
    spec = devices.find(device)
    link, between, domains = drawn(topology(*rows), range(len(rows)), links.find(spec.link))
    assert (link.id, between and between.id, domains) == expected


def test_one_card_needs_no_domain():
    link, between, domains = drawn(topology("X"), (0,), links.find("pcie4"))
    assert (link.id, between, domains) == ("pcie4", None, ((0,),))


def test_domains_show_in_the_plans_words():
    made = plan(LLAMA_8B, PAIRS, service(engine={"max_model_len": 4096}))
    assert made.cluster is not None
    words = " ".join(rejected.words for rejected in made.cluster.rejected)
    assert "leaves its link domain" in words

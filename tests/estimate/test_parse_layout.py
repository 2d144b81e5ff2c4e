"""What counts of devices mean when some are missing, and which are refused."""

import pytest

from llmdeploy.catalog import devices
from llmdeploy.errors import InputError
from llmdeploy.estimate.parse import CaseLine
from llmdeploy.estimate.parse_layout import allowed_tensor_parallel, layout
from llmdeploy.model import CacheLayers, Experts, ModelShape

LLAMA = ModelShape(
    architecture="LlamaForCausalLM", layers=32, hidden_size=4096, intermediate_size=14336,
    attention_heads=32, kv_heads=8, head_dim=128, vocabulary_size=128256, max_positions=131072,
    tied_embeddings=False, dtype="bfloat16",
)  # fmt: skip
QWEN = LLAMA.model_copy(update={"attention_heads": 28, "kv_heads": 4})
MIXTRAL = LLAMA.model_copy(
    update={"experts": Experts(layers=32, count=8, active=2, intermediate_size=14336)}
)
DEEPSEEK = MIXTRAL.model_copy(
    update={
        "attention_heads": 128,
        "kv_heads": 128,
        "cache": (CacheLayers(kind="latent", layers=61, latent_dim=576),),
    }
)


def spread(shape=LLAMA, *, engine="vllm", holds=None, device=None, joined=False, **keys):
    line = CaseLine(model="x", **keys)
    return layout(
        line, shape, engine=engine, place="cases.jsonl:7", holds=holds, device=device, joined=joined
    )


def counts(found):
    return found.tensor_parallel, found.pipeline_parallel, found.data_parallel


def refused(shape=LLAMA, **keys):
    with pytest.raises(InputError) as error:
        spread(shape, **keys)
    return str(error.value), error.value.fix


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, (1, 1, 1)),
        ({"tensor_parallel": 4}, (4, 1, 1)),
        ({"pipeline_parallel": 2, "tensor_parallel": 4}, (4, 2, 1)),
        ({"gpus": 8}, (8, 1, 1)),
        ({"gpus": 8, "tensor_parallel": 2}, (2, 1, 4)),
        ({"gpus": 8, "pipeline_parallel": 2}, (4, 2, 1)),
        ({"gpus": 8, "data_parallel": 4}, (2, 1, 4)),
        ({"gpus": 8, "tensor_parallel": 4, "data_parallel": 2}, (4, 1, 2)),
        ({"gpus": 16}, (8, 1, 2)),
        ({"gpus": 16, "hosts": 1}, (16, 1, 1)),
        ({"gpus": 8, "hosts": 4}, (2, 1, 4)),
        ({"gpus": 8, "tensor_parallel": 4, "data_parallel": 1}, (4, 1, 1)),
    ],
)
def test_missing_counts_follow_from_the_others(keys, expected):
    assert counts(spread(**keys)) == expected


def test_unknown_tp_is_the_smallest_that_holds_the_weights_and_the_rest_are_replicas():
    found = spread(gpus=8, holds=lambda devices: devices >= 2)
    assert counts(found) == (2, 1, 4)
    assert found.assumptions == (
        "tensor_parallel is not given: 2 and data_parallel 4 on 8 devices",
    )
    assert counts(spread(gpus=8, holds=lambda _: False)) == (8, 1, 1)


def test_under_load_an_unknown_number_of_devices_holds_the_weights():
    found = spread(concurrency=8, holds=lambda devices: devices >= 3)
    assert (counts(found), found.guessed) == ((8, 1, 1), True)
    assert found.assumptions == (
        "gpus and tensor_parallel are not given: 8 devices; the weights need 4 or more",
    )
    assert counts(spread(concurrency=8, holds=lambda devices: devices > 8)) == (16, 1, 1)


def test_without_load_or_where_one_will_do_it_is_one_device():
    small = spread(concurrency=8, holds=lambda _: True)
    assert (counts(small), small.guessed) == ((1, 1, 1), False)
    assert counts(spread(holds=lambda devices: devices >= 4)) == (1, 1, 1)
    assert counts(spread(concurrency=8, tensor_parallel=2, holds=lambda _: False)) == (2, 1, 1)


def test_each_missing_count_is_said():
    assert spread(gpus=8).assumptions == ("tensor_parallel is not given: 8 on 8 devices",)
    assert spread(gpus=8, tensor_parallel=2).assumptions == (
        "data_parallel is not given: 8 / 2 = 4",
    )
    assert spread(gpus=8, tensor_parallel=4, data_parallel=1).assumptions == (
        "4 of 8 devices are not used by tp x pp x dp",
    )
    assert spread(gpus=16, tensor_parallel=16, data_parallel=1).assumptions == (
        "hosts is not given: 2 with 8 devices each; speed's intervals hold for one with 16 too",
    )
    assert spread(gpus=1, tensor_parallel=1, data_parallel=1).assumptions == ()
    assert spread(gpus=3, tensor_parallel=2).assumptions == (
        "1 of 3 devices is not used by tp x pp x dp",
    )


def test_unknown_tp_is_one_that_the_heads_allow():
    # 28 heads and 4 KV heads: 8 devices take TP 4 twice
    assert counts(spread(QWEN, gpus=8)) == (4, 1, 2)


def test_a_tp_that_does_not_divide_the_heads_is_told_those_that_do():
    what, fix = refused(tensor_parallel=3)
    assert what == (
        "cases.jsonl:7: tensor_parallel: 3 does not divide 32 attention heads and 8 KV heads,"
        " needed one of 1, 2, 4, 8, 16, 32"
    )
    assert fix == "set tensor_parallel to 4"


@pytest.mark.parametrize(
    ("shape", "fitting"),
    [
        (LLAMA, (1, 2, 4, 8, 16, 32)),
        (QWEN, (1, 2, 4, 28)),  # 7 and 14 split 28 heads, but not 4 KV heads
        (DEEPSEEK, (1, 2, 4, 8, 16, 32, 64)),
    ],
)
def test_tp_divides_heads_and_splits_or_copies_kv_heads(shape, fitting):
    assert allowed_tensor_parallel(shape) == fitting


def test_more_ranks_than_devices_are_refused():
    what, fix = refused(gpus=2, tensor_parallel=4)
    assert "tensor_parallel: 4 x pipeline_parallel 1 need 4 devices, gpus says 2" in what
    assert fix == "set gpus to 4, or tensor_parallel to 2"
    what, fix = refused(gpus=8, tensor_parallel=4, data_parallel=4)
    assert "data_parallel: 4 x 4 devices of tensor and pipeline parallel are 16" in what
    assert fix == "set gpus to 16, or data_parallel to 2"
    assert "gpus: 9 devices cannot be shared" in refused(gpus=9, pipeline_parallel=2)[0]


def test_data_parallel_attention_lies_within_tp():
    found = spread(
        DEEPSEEK, engine="sglang", gpus=16, tensor_parallel=16, data_parallel=4, expert_parallel=16
    )
    assert counts(found) == (16, 1, 4)
    assert found.attention_data_parallel
    assert found.expert_parallel


def test_a_tp_that_only_data_parallel_attention_can_run_is_taken_as_that():
    found = spread(DEEPSEEK, engine="sglang", gpus=72, tensor_parallel=72, expert_parallel=72)
    assert counts(found) == (72, 1, 72)
    assert found.attention_data_parallel
    assert found.assumptions[0] == (
        "72 does not divide the heads: attention is data parallel over 72 devices"
    )


def test_experts_are_shared_only_where_there_are_some_and_somebody():
    assert not spread(LLAMA, tensor_parallel=2, expert_parallel=True).expert_parallel
    assert spread(MIXTRAL, tensor_parallel=2, expert_parallel=True).expert_parallel
    assert spread(MIXTRAL, tensor_parallel=2, expert_parallel=2).expert_parallel
    assert not spread(MIXTRAL, tensor_parallel=2, expert_parallel=1).expert_parallel
    assert not spread(MIXTRAL, tensor_parallel=2).expert_parallel


def test_llama_cpp_gives_devices_whole_layers():
    found = spread(engine="llama.cpp", gpus=6)
    assert counts(found) == (1, 6, 1)
    assert found.assumptions == (
        "tensor_parallel is not given: llama.cpp splits layers over 6 devices",
    )


def test_a_rack_with_one_nvlink_domain_is_one_host():
    found = spread(gpus=32, interconnect="NVLink NVL72", tensor_parallel=32)
    assert (found.hosts, counts(found)) == (1, (32, 1, 1))


def test_more_stages_than_layers_are_refused():
    what, fix = refused(pipeline_parallel=33)
    assert "pipeline_parallel: found 33 stages for 32 layers" in what
    assert fix == "set pipeline_parallel to 32 or less"


def test_more_hosts_than_devices_are_refused():
    what, fix = refused(gpus=2, hosts=5)
    assert "hosts: found 5 hosts for 2 gpus" in what
    assert fix.startswith("set hosts to 2 or less")


SPREAD = {"tensor_parallel": 4, "data_parallel": 4, "expert_parallel": 16}
"""Attention copies over tensor groups, as benchmarks write it: 16 devices, hosts not told."""


def test_copies_of_a_tensor_group_without_hosts_are_two_usual_hosts_or_one_large_one():
    found = spread(MIXTRAL, device=devices.find("h100-sxm"), **SPREAD)
    assert (counts(found), found.hosts, found.other_hosts) == ((4, 1, 4), 2, 1)
    assert found.assumptions == (
        "hosts is not given: 2 with 8 devices each; speed's intervals hold for one with 16 too",
    )


def test_devices_on_a_named_link_within_hosts_are_one_host_and_may_be_two():
    found = spread(
        MIXTRAL, device=devices.find("h100-sxm"), joined=True, interconnect="NVLink", **SPREAD
    )
    assert (found.hosts, found.other_hosts) == (1, 2)
    assert found.assumptions == (
        "hosts is not given: one with 16 devices on NVLink; speed's intervals hold for 2 with 8"
        " devices each too",
    )
    many = spread(gpus=32, tensor_parallel=32, joined=True, interconnect="NVLink")
    assert (many.hosts, many.other_hosts) == (4, None)  # no host has 32
    said = spread(MIXTRAL, hosts=2, joined=True, interconnect="NVLink", gpus=16, **SPREAD)
    assert (said.hosts, said.other_hosts) == (2, None)


@pytest.mark.parametrize(
    ("device", "hosts"), [("gb200", 1), ("h100-sxm", 2), ("mi300x", 2), ("dgx-spark", 16)]
)
def test_hosts_that_are_not_given_have_as_many_devices_as_the_devices_usual_ones(device, hosts):
    assert spread(device=devices.find(device), gpus=16, tensor_parallel=1).hosts == hosts


def test_absurd_counts_are_answered_at_once():
    assert "a layer in each" in refused(gpus=10**12, pipeline_parallel=10**12)[0]
    assert counts(spread(gpus=10**12, hosts=1, holds=lambda tp: tp > 8)) == (16, 1, 10**12 // 16)

"""What a release may use of a host, out of its facts."""

import pytest

from llmdeploy.errors import Refused
from llmdeploy.plan.device import choose_device
from llmdeploy.plan.document import Origin

from .cases import GIB, H100, facts, service


def device(parts=None, **changes):
    return choose_device(facts(**changes), service(**(parts or {})))


def cores(count):
    return {"cpu_cores": count, "cpu_ids": tuple(range(count))}


@pytest.mark.parametrize(
    ("count", "slots"),
    [
        (1, ((0,),)),
        (2, ((0,), (1,))),
        (3, ((0,), (1,))),
        (4, ((0, 1), (2, 3))),
    ],
)
def test_side_by_side_halves_the_cores(count, slots):
    assert device(**cores(count)).core_slots == slots


def test_one_release_at_a_time_has_all_cores():
    found = device({"release": {"side_by_side": False}}, **cores(4))
    assert found.core_slots == ((0, 1, 2, 3),)
    assert found.slots == 1


def test_one_core_still_shares_its_memory_between_two_releases():
    assert device(**cores(1)).slots == 2


def test_the_cgroup_limit_is_the_memory():
    found = device(memory_limit_bytes=4 * GIB)
    assert found.memory_bytes == 4 * GIB
    assert found.memory_source == "the cgroup's limit"


def test_a_limit_above_the_memory_does_not_count():
    assert device(memory_limit_bytes=64 * GIB).memory_bytes == 24 * GIB


def test_the_cgroups_quota_and_affinity_decide_the_cores():
    assert device(cpu_ids=(4, 5, 6, 7), cpu_cores=4, cpu_quota_cores=2.5).core_ids == (4, 5)
    assert device(**cores(4), cpu_quota_cores=0.5).core_ids == (0,)


def test_speeds_are_assumed_where_none_was_measured():
    found = device().speed
    assert found.origin == Origin.ASSUMED
    assert found.read_bytes_per_s == 13e9


def test_an_assumed_core_of_a_large_host_has_its_share_of_two_memory_channels():
    assert device(**cores(16)).speed.read_bytes_per_s == 60e9 / 16


def test_measured_speeds_are_kept_to_two_digits():
    found = device(memory_read_bytes_per_s=26.3e9, core_matmul_flops_per_s=205.9e9).speed
    assert found.origin == Origin.MEASURED
    assert (found.read_bytes_per_s, found.matmul_flops_per_s) == (13e9, 210e9)


@pytest.mark.parametrize("fact", ["memory_total_bytes", "cpu_cores"])
def test_an_unknown_fact_is_never_guessed(fact):
    with pytest.raises(Refused, match=f"{fact} is unknown"):
        device(**{fact: None})


def test_a_usable_card_is_chosen_before_the_cpu():
    found = device(accelerators=(H100,), torch_cuda_devices=1)
    assert (found.kind, found.memory_bytes, found.core_slots) == ("cuda", 80 * GIB, ())
    assert found.speed.read_bytes_per_s == 3350e9


def test_a_card_that_torch_cannot_use_is_no_device():
    assert device(accelerators=(H100,), torch_cuda_devices=0).kind == "cpu"
    with pytest.raises(Refused, match="no CUDA card that torch can use"):
        device({"engine": {"device": "cuda"}}, accelerators=(H100,), torch_cuda_devices=0)


def test_the_cpu_can_be_asked_for_on_a_host_with_cards():
    found = device({"engine": {"device": "cpu"}}, accelerators=(H100,), torch_cuda_devices=1)
    assert found.kind == "cpu"


def test_a_card_without_known_speed_is_refused_rather_than_guessed():
    unknown = H100.model_copy(update={"name": "NVIDIA Z9"})
    with pytest.raises(Refused, match="NVIDIA Z9 is in no table of speeds"):
        device(accelerators=(unknown,), torch_cuda_devices=1)


def test_more_ranks_than_cards_are_refused():
    with pytest.raises(Refused, match="found 1 CUDA cards, needed 3"):
        device({"engine": {"tensor_parallel": 3}}, accelerators=(H100,), torch_cuda_devices=1)


@pytest.mark.parametrize(
    ("devices", "formats"), [(("cpu",), ("int8", "nf4")), (("cuda",), ()), (None, ())]
)
def test_bitsandbytes_counts_only_where_it_says_so(devices, formats):
    assert device(bitsandbytes_devices=devices).quantizations == formats

"""Pools: equal hosts and devices once, unequal ones apart, memory as engines see it."""

import pytest

from llmdeploy.errors import InputError
from llmdeploy.plan.pool import declared, from_facts

from .cases import H100, bundle
from .clusters import inventory

GIB = 2**30


def pools(text: str):
    return declared(inventory(text))


def test_equal_hosts_are_one_pool_and_keep_their_names():
    (pool,) = pools("hosts: [{name: a, count: 3, devices: [{device: RTX 4090, count: 2}]}]")
    assert (pool.name, pool.devices) == ("rtx4090", 6)
    assert [host.name for host in pool.hosts] == ["a-1", "a-2", "a-3"]


def test_the_same_device_by_two_names_is_one_pool_and_hosts_may_differ_in_size():
    (pool,) = pools(
        "hosts: [{name: a, devices: [{device: RTX 4090, count: 4}]},"
        " {name: b, devices: [{device: NVIDIA GeForce RTX 4090, count: 1}]}]"
    )
    assert pool.per_host == {4: 1, 1: 1}
    assert pool.most_per_host == 4


@pytest.mark.parametrize(
    "second",
    ["{device: L40S}", "{device: RTX 4090, memory: 20GiB}", "{device: RTX 4090, link: pcie5}",
     "{device: RTX 4090, price_per_hour: 2}"],
)  # fmt: skip
def test_what_differs_is_another_pool_of_the_same_host(second):
    first, other = pools(
        f"hosts: [{{name: a, devices: [{{device: RTX 4090, count: 2}}, {second}]}}]"
    )
    assert [host.first_device for host in (*first.hosts, *other.hosts)] == [0, 2]


def test_declared_memory_is_nominal_above_what_engines_see_and_taken_as_it_is_below():
    (whole,) = pools("hosts: [{name: a, devices: [{device: RTX 4090, memory: 24GiB}]}]")
    (known,) = pools("hosts: [{name: a, devices: [{device: RTX 4090}]}]")
    (less,) = pools("hosts: [{name: a, devices: [{device: RTX 4090, memory: 20GiB}]}]")
    assert whole.usable_bytes == pytest.approx(known.usable_bytes, rel=0.001)
    assert less.usable_bytes == 20 * GIB


def test_addresses_that_the_inventory_lacks_are_named_by_their_host():
    (one,) = pools("hosts: [{name: a, devices: [{device: L4}]}]")
    assert one.hosts[0].data_address == "127.0.0.1"
    (two,) = pools(
        "hosts: [{name: a, data_address: 10.0.0.1, devices: [{device: L4}]},"
        " {name: b, devices: [{device: L4}]}]"
    )
    assert [host.data_address for host in two.hosts] == ["10.0.0.1", "{b}"]


def test_facts_give_the_cards_that_drivers_answer_for():
    second = H100.model_copy(update={"index": 1})
    (pool,) = from_facts(inventory("schema: 1"), bundle(accelerators=(H100, second)))
    assert (pool.name, pool.devices) == ("h100-sxm", 2)
    with pytest.raises(InputError, match="no accelerator on any host"):
        from_facts(inventory("schema: 1"), bundle())


def test_two_hosts_of_one_name_are_refused():
    with pytest.raises(InputError, match="found hosts named a-1 twice"):
        inventory("hosts: [{name: a-1}, {name: a, count: 2}]")


def test_the_same_devices_declared_twice_on_a_host_are_asked_for_as_one_entry():
    with pytest.raises(InputError, match=r"hosts/0/devices/2: found .*\(2 and 3 devices\)") as e:
        pools("hosts: [{name: a, devices: [{device: L4}, {device: RTX 4090, count: 2},"
              " {device: rtx4090, count: 3}]}]")  # fmt: skip
    assert e.value.fix == "write one entry with count: 5"


def test_equal_hosts_have_their_number_in_the_data_address():
    text = "hosts: [{name: a, count: 2, data_address: ADDRESS, devices: [{device: L4}]}]"
    (numbered,) = pools(text.replace("ADDRESS", "'10.0.0.{number}'"))
    assert [host.data_address for host in numbered.hosts] == ["10.0.0.1", "10.0.0.2"]
    (shared,) = pools(text.replace("ADDRESS", "10.0.0.1"))
    assert [host.data_address for host in shared.hosts] == ["{a-1}", "{a-2}"]

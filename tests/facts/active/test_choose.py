"""The address and interface by which peers reach a host."""

from llmdeploy.facts.active.choose import choose
from llmdeploy.facts.bundle import HostFacts
from llmdeploy.facts.interface import Interface

from .. import hosts


def _host(name: str, *interfaces: Interface) -> HostFacts:
    return hosts.facts(interfaces=interfaces).model_copy(update={"host": name})


def _card(
    name: str, network: str, *, kind: str = "physical", gbit: float | None = None, up: bool = True
) -> Interface:
    speed = None if gbit is None else gbit * 1.25e8
    return Interface(name=name, kind=kind, up=up, speed_bytes_per_s=speed, networks=(network,))


def test_the_network_that_all_share_wins_over_each_hosts_own() -> None:
    a = _host("a", _card("eth0", "192.168.1.5/24"), _card("eth1", "10.0.0.1/16"))
    b = _host("b", _card("ens3", "10.0.0.2/16"), _card("ens4", "172.16.0.9/24"))
    assert [(c.interface, c.address) for c in choose([a, b], {})] == [
        ("eth1", "10.0.0.1"),
        ("ens3", "10.0.0.2"),
    ]


def test_of_two_shared_networks_the_faster_wins() -> None:
    pair = [
        _host(f"h{n}", _card("eth0", f"10.0.0.{n}/24", gbit=1),
              _card("ib0", f"10.9.0.{n}/24", gbit=100))
        for n in (1, 2)
    ]  # fmt: skip
    assert [c.interface for c in choose(pair, {})] == ["ib0", "ib0"]


def test_bridges_vpns_and_interfaces_that_are_down_are_never_chosen() -> None:
    pair = [
        _host(
            f"h{n}",
            _card("docker0", "172.17.0.1/16", kind="bridge", gbit=10),
            _card("tailscale0", f"100.64.0.{n}/10", kind="vpn"),
            _card("eth9", f"10.5.0.{n}/24", gbit=100, up=False),
            _card("eth0", f"10.0.0.{n}/24"),
        )
        for n in (1, 2)
    ]
    assert [c.address for c in choose(pair, {})] == ["10.0.0.1", "10.0.0.2"]


def test_a_bridge_is_taken_where_nothing_else_reaches_all_but_never_dockers_own() -> None:
    pair = [
        _host(
            f"h{n}",
            _card("docker0", "172.17.0.1/16", kind="bridge", gbit=10),
            _card("br0", f"10.0.0.{n}/24", kind="bridge"),
            _card("eth0", f"192.168.{n}.1/24"),
        )
        for n in (1, 2)
    ]
    assert [c.interface for c in choose(pair, {})] == ["br0", "br0"]


def test_a_declared_address_wins_and_a_loopback_one_declares_nothing() -> None:
    pair = [_host(f"h{n}", _card("eth0", f"10.0.0.{n}/24"), _card("eth1", f"10.1.0.{n}/24"))
            for n in (1, 2)]  # fmt: skip
    chosen = choose(pair, {"h1": "10.1.0.1", "h2": "127.0.0.1"})
    assert [c.address for c in chosen] == ["10.1.0.1", "10.0.0.2"]
    assert chosen[0].reason == "data_address of cluster.yaml"


def test_a_declared_address_that_no_interface_has_is_no_choice() -> None:
    (chosen,) = choose([_host("h1", _card("eth0", "10.0.0.1/24"))], {"h1": "10.7.0.1"})
    assert chosen.address is None
    assert "10.7.0.1" in chosen.reason


def test_several_interfaces_in_the_network_are_told() -> None:
    (chosen,) = choose([_host("a", _card("eth0", "10.0.0.1/24"), _card("eth1", "10.0.0.9/24"))], {})
    assert (chosen.interface, chosen.also) == ("eth0", ("eth1",))


def test_a_host_outside_the_shared_network_says_where_it_is() -> None:
    rows = [_host("a", _card("eth0", "10.0.0.1/24")), _host("b", _card("eth0", "10.0.0.2/24")),
            _host("c", _card("eth0", "192.168.0.3/24"))]  # fmt: skip
    odd = choose(rows, {})[2]
    assert odd.address is None
    assert odd.reason == "it is in 192.168.0.0/24, not in 10.0.0.0/24 as most hosts are"

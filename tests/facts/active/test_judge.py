"""Findings of active tests, from plain measurements: who is named, how badly, and the fix."""

from collections.abc import Mapping
from typing import Any

from llmdeploy.facts.active.judge import CHECKS, active_findings
from llmdeploy.facts.active.judge_network import better, doubtful
from llmdeploy.facts.active.measured import (
    AllReduce,
    Choice,
    ClockOffset,
    Closed,
    DiskRate,
    LinkRate,
    Measured,
    Pattern,
    PeerCopy,
    PortRow,
    Product,
    RankState,
    Sample,
    Untested,
)
from llmdeploy.facts.bundle import Bundle
from llmdeploy.facts.finding import Finding, Remedy, Status
from llmdeploy.facts.interface import Interface

from .. import hosts

NAMES = ("a", "b", "c", "d")
PAIRS = [(one, other) for one in NAMES for other in NAMES if one != other]
Worse = Mapping[tuple[str, str], Mapping[str, Any]]


def _judged(mtu: Mapping[str, int] | None = None, **values: Any) -> list[Finding]:
    measured = Measured(level="standard", begun_s=1.8e9, duration_s=20.0, **values)
    facts = tuple(
        hosts.facts(
            interfaces=(Interface(name="eth0", kind="physical", up=True, mtu=(mtu or {}).get(n)),)
        ).model_copy(update={"host": n})
        for n in NAMES
    )
    bundle = Bundle(schema=1, llmdeploy="0.1.0", hosts=facts, measured=measured)
    assert Bundle.model_validate_json(bundle.model_dump_json(by_alias=True)) == bundle
    found = list(active_findings(bundle))
    assert {f.check for f in found} <= set(CHECKS)
    return found


def _only(findings: list[Finding], check: str) -> Finding:
    (found,) = [f for f in findings if f.check == check and f.status != Status.PASS]
    assert found.fix
    return found


def _links(worse: Worse | None = None) -> tuple[LinkRate, ...]:
    fine: dict[str, Any] = {
        "bytes_per_s": 1.2e9, "latency_p50_s": 5e-5, "latency_p99_s": 2e-4, "lost_ratio": 0.0,
        "path_mtu_bytes": 1500, "source_mtu_bytes": 1500,
    }  # fmt: skip
    return tuple(
        LinkRate(
            source=a, target=b, streams=4, at_s=1.8e9, **fine | dict((worse or {}).get((a, b), {}))
        )
        for a, b in PAIRS
    )


def _rows(closed: Mapping[tuple[str, str], int] | None = None) -> tuple[PortRow, ...]:
    return tuple(
        PortRow(
            source=a,
            target=b,
            opened=(21000,),
            closed=(Closed(port=closed[a, b], reason="no answer in 3 s"),)
            if closed and (a, b) in closed
            else (),
            at_s=1.8e9,
        )
        for a, b in PAIRS
    )


def _choices() -> tuple[Choice, ...]:
    return tuple(
        Choice(host=n, address=f"10.0.0.{i}", interface="eth0", network="10.0.0.0/24", reason="all",
               sources=(f"10.0.0.{i}",))
        for i, n in enumerate(NAMES, start=1)
    )  # fmt: skip


def test_quiet_hosts_have_one_pass_for_each_test() -> None:
    found = _judged(choices=_choices(), port_rows=_rows(), links=_links(), ports=(21000,))
    assert {f.status for f in found} == {Status.PASS}
    checks = [f.check for f in found if f.subject == "all hosts"]
    assert checks == ["net.ports.peer", "net.bandwidth", "net.latency", "net.loss", "net.path.mtu"]


def test_a_blocked_port_names_its_host_and_all_who_found_it_closed() -> None:
    closed = {("a", "c"): 21003, ("b", "c"): 21003, ("d", "c"): 21003}
    found = _only(_judged(port_rows=_rows(closed), ports=(21003,)), "net.ports.peer")
    assert (found.status, found.subject) == (Status.FAIL, "c")
    assert found.found == "closed from a, b, d: 21003: no answer in 3 s"


def test_ports_of_the_kernels_choice_are_said_to_be_such() -> None:
    closed = {("a", "c"): 40001, ("b", "c"): 40001, ("d", "c"): 40001}
    found = _only(_judged(port_rows=_rows(closed), ports=(21000,)), "net.ports.peer")
    assert "1 of the kernel's own" in found.found


def test_a_taken_port_is_unknown_and_does_not_pass() -> None:
    rows = [row.model_copy(update={"untested": (21001,)}) for row in _rows() if row.target == "b"]
    found = _judged(port_rows=tuple(rows), ports=(21001,))
    assert [(f.status, f.subject) for f in found] == [(Status.UNKNOWN, "b")]


def test_a_slow_host_is_named_against_the_median_with_its_asymmetry() -> None:
    slow = {(n, "c"): {"bytes_per_s": 1.2e6} for n in "abd"}
    found = _only(_judged(links=_links(slow)), "net.bandwidth")
    assert (found.status, found.subject, found.remedy) == (Status.FAIL, "c", Remedy.HARDWARE)
    assert found.found == "1.1 MiB/s from a, b, d; the other way 1.1 GiB/s"
    assert found.needed.endswith("the usual one: 1.1 GiB/s")


def test_of_three_hosts_the_one_slow_both_ways_is_named_though_most_pairs_are_slow() -> None:
    slow = {pair: {"bytes_per_s": 1.2e8} for pair in PAIRS if "c" in pair}
    links = tuple(link for link in _links(slow) if "d" not in (link.source, link.target))
    found = _only(_judged(links=links), "net.bandwidth")
    assert (found.status, found.subject) == (Status.WARN, "c")


def test_a_pair_at_a_third_of_the_median_is_a_warning() -> None:
    found = _only(_judged(links=_links({("a", "b"): {"bytes_per_s": 4e8}})), "net.bandwidth")
    assert (found.status, found.subject) == (Status.WARN, "b")


def test_doubtful_pairs_are_those_that_would_be_named_and_noise_is_forgiven() -> None:
    worse = {("a", "b"): {"bytes_per_s": 1e8}, ("c", "d"): {"lost_ratio": 0.3}}
    assert doubtful(_links(worse)) == [("a", "b"), ("c", "d")]
    assert doubtful(_links()) == []
    slow, fine = _links(worse)[0], _links()[0]
    assert better(slow, fine) == better(fine, slow) == fine
    gone = slow.model_copy(update={"bytes_per_s": None})
    assert better(gone, fine) == better(fine, gone) == fine


def test_a_pair_without_bandwidth_is_unknown_with_its_reason() -> None:
    gone = {("a", "b"): {"bytes_per_s": None, "problem": "bandwidth: timed out"}}
    found = _only(_judged(links=_links(gone)), "net.bandwidth")
    assert (found.status, found.found) == (Status.UNKNOWN, "from a: bandwidth: timed out")


def test_a_late_host_is_named_in_both_directions() -> None:
    late = {pair: {"latency_p50_s": 0.02} for pair in PAIRS if "d" in pair}
    found = _only(_judged(links=_links(late)), "net.latency")
    assert (found.status, found.subject) == (Status.WARN, "d")


def test_lost_datagrams_name_the_host() -> None:
    lost = {pair: {"lost_ratio": 0.1} for pair in PAIRS if "d" in pair}
    assert _only(_judged(links=_links(lost)), "net.loss").subject == "d"


def test_large_packets_that_vanish_in_the_switch_fail() -> None:
    short = {pair: {"path_mtu_bytes": 1404} for pair in PAIRS if "b" in pair}
    mtu = dict.fromkeys(NAMES, 1500)
    found = _only(_judged(mtu, links=_links(short), choices=_choices()), "net.path.mtu")
    assert (found.status, found.subject) == (Status.FAIL, "b")
    assert "1404 of 1500 bytes arrive between b and a, c, d, larger ones vanish" in found.found


def test_a_host_whose_own_interface_takes_less_is_a_warning() -> None:
    short = {(n, "b"): {"path_mtu_bytes": 1404} for n in "acd"}
    short |= {("b", n): {"path_mtu_bytes": 1400, "source_mtu_bytes": 1400} for n in "acd"}
    mtu = {**dict.fromkeys(NAMES, 1500), "b": 1400}
    found = _only(_judged(mtu, links=_links(short), choices=_choices()), "net.path.mtu")
    assert (found.status, found.subject) == (Status.WARN, "b")
    assert found.fix == "ip link set eth0 mtu 1500 on b"


def test_a_router_that_tells_its_size_is_named() -> None:
    short = {("a", "b"): {"path_mtu_bytes": 1400, "hop": "10.0.0.254 takes 1400"}}
    found = _only(_judged(links=_links(short), choices=_choices()), "net.path.mtu")
    assert found.status == Status.WARN
    assert found.found.endswith("10.0.0.254 takes 1400")


def test_without_udp_the_packet_size_is_unknown_once() -> None:
    mute = {pair: {"path_mtu_bytes": None, "lost_ratio": None} for pair in PAIRS if pair[1] == "b"}
    found = _only(_judged(links=_links(mute)), "net.path.mtu")
    assert (found.status, found.found) == (Status.UNKNOWN, "no datagram came back from a, c, d")


def test_a_kernel_that_sends_from_another_interface_fails() -> None:
    odd = [c.model_copy(update={"sources": ("192.168.1.9",)}) if c.host == "c" else c
           for c in _choices()]  # fmt: skip
    found = _only(_judged(choices=tuple(odd)), "net.ifname.route")
    assert (found.status, found.subject) == (Status.FAIL, "c")
    assert "the kernel sends from 192.168.1.9" in found.found


def test_two_interfaces_in_the_network_are_a_warning() -> None:
    odd = [c.model_copy(update={"also": ("eth1",)}) if c.host == "b" else c for c in _choices()]
    found = _only(_judged(choices=tuple(odd)), "net.ifname.route")
    assert (found.status, found.found) == (Status.WARN, "eth0 and eth1 are in 10.0.0.0/24")


def _clock(host: str, offset_s: float, uncertainty_s: float = 0.01) -> ClockOffset:
    return ClockOffset(host=host, offset_s=offset_s, uncertainty_s=uncertainty_s, at_s=1.8e9)


def test_clocks_are_judged_by_what_is_certain() -> None:
    found = _judged(clocks=(_clock("a", 0.02), _clock("b", -7200.0), _clock("c", 0.3),
                            _clock("d", 0.15, 0.2)))  # fmt: skip
    assert [(f.subject, f.status) for f in found] == [
        ("b", Status.FAIL), ("c", Status.WARN), ("d", Status.UNKNOWN), ("a", Status.PASS),
    ]  # fmt: skip


def _disk(host: str, bytes_per_s: float, *, correct: bool | None = True) -> DiskRate:
    return DiskRate(host=host, folder="/models", read_bytes=2**30, bytes_per_s=bytes_per_s,
                    past_cache="O_DIRECT", of="a nameless file", correct=correct,
                    at_s=1.8e9)  # fmt: skip


def test_a_slow_disk_is_named_against_the_median() -> None:
    disks = (_disk("a", 3e9), _disk("b", 2.8e9), _disk("c", 1e8))
    found = _only(_judged(disks=disks), "sto.disk.speed")
    assert (found.status, found.subject) == (Status.WARN, "c")
    assert found.found == "/models: 95.4 MiB/s, median 2.6 GiB/s"


def test_a_disk_that_gives_back_other_data_fails() -> None:
    found = _only(_judged(disks=(_disk("a", 3e9, correct=False),)), "sto.disk.speed")
    assert (found.status, found.remedy) == (Status.FAIL, Remedy.HARDWARE)


def _group(*states: tuple[str, int, str, str | None, int]) -> AllReduce:
    return AllReduce(
        hosts=tuple(state[0] for state in states), backend="gloo", device="cpu", ranks=len(states),
        samples=() if any(s[3] for s in states) else (Sample(size_bytes=1024, duration_s=1e-3),),
        states=tuple(
            RankState(host=host, steps=steps, stage=stage, error=error, wrong=wrong,
                      address=f"10.0.0.{number}")
            for number, (host, steps, stage, error, wrong) in enumerate(states, start=1)
        ),
        at_s=1.8e9,
    )  # fmt: skip


def test_a_group_that_ends_says_its_curve() -> None:
    found = _judged(all_reduces=(_group(("a", 9, "done", None, 0), ("b", 9, "done", None, 0)),))
    assert found[0].status == Status.PASS
    assert "1.0 KiB in 1 ms" in found[0].found


def test_the_host_that_is_behind_stopped_the_group() -> None:
    late = "Timed out waiting 30000ms for recv"
    group = _group(("a", 7, "summing 4096 bytes", late, 0),
                   ("b", 6, "after summing 1024 bytes", "its watchdog ended it", 0),
                   ("c", 7, "summing 4096 bytes", late, 0))  # fmt: skip
    found = _only(_judged(all_reduces=(group,)), "net.allreduce.cross")
    assert (found.status, found.subject) == (Status.FAIL, "b")
    assert found.found.endswith("its watchdog ended it; a, c waited for it")


def test_where_all_are_level_the_one_whose_connection_closed_is_named() -> None:
    closed = "Connection closed by peer [10.0.0.3]:41002"
    group = _group(("a", 7, "summing", closed, 0), ("b", 7, "summing", closed, 0),
                   ("c", 7, "summing", "it was killed", 0))  # fmt: skip
    assert _only(_judged(all_reduces=(group,)), "net.allreduce.cross").subject == "c"


def test_wrong_sums_on_one_host_are_its_own_and_on_all_nobodys() -> None:
    one = _group(("a", 9, "done", None, 0), ("b", 9, "done", None, 3), ("c", 9, "done", None, 0))
    every = _group(("a", 9, "done", None, 1), ("b", 9, "done", None, 1))
    assert _only(_judged(all_reduces=(one,)), "net.allreduce.cross").subject == "b"
    assert _only(_judged(all_reduces=(every,)), "net.allreduce.cross").subject == "all hosts"


def _product(host: str, flops_per_s: float, wrong: int = 0, device: str = "cuda:0") -> Product:
    return Product(host=host, device=device, name="H100", dtype="bfloat16", size=8192,
                   flops_per_s=flops_per_s, wrong=wrong, at_s=1.8e9)  # fmt: skip


def test_wrong_products_fail_and_a_straggler_is_warned() -> None:
    found = _judged(products=(_product("a", 7e14), _product("b", 7e14, wrong=2),
                              _product("c", 4e14)))  # fmt: skip
    assert [(f.subject, f.status) for f in found] == [
        ("a", Status.PASS), ("b", Status.FAIL), ("c", Status.WARN),
    ]  # fmt: skip


def test_spoilt_memory_and_spoilt_copies_name_their_devices() -> None:
    pattern = Pattern(host="a", device="cuda:1", tested_bytes=2**36, wrong=5, read_bytes_per_s=3e12,
                      at_s=1.8e9)  # fmt: skip
    copy = PeerCopy(host="a", source="cuda:0", target="cuda:1", direct=True, bytes_per_s=2e10,
                    wrong=7, at_s=1.8e9)  # fmt: skip
    found = _judged(patterns=(pattern,), copies=(copy,))
    assert [(f.check, f.status, f.found) for f in found] == [
        ("gpu.vram.pattern", Status.FAIL, "cuda:1: 5 wrong words"),
        ("fab.p2p.actual", Status.FAIL, "cuda:0 to cuda:1: 7 wrong words"),
    ]


def test_what_was_not_tested_is_unknown_once_with_all_reasons() -> None:
    told = (Untested(test="net.allreduce.cross", host="a", reason="torch is not installed"),
            Untested(test="net.allreduce.cross", host="a", reason="no address"))  # fmt: skip
    (found,) = _judged(untested=told)
    assert (found.status, found.found) == (Status.UNKNOWN, "torch is not installed; no address")
    assert "llmdeploy[engine]" in found.fix


def test_rates_to_plan_with_leave_out_what_was_wrong() -> None:
    measured = Measured(
        level="deep", begun_s=0.0, duration_s=1.0, links=_links(),
        disks=(_disk("a", 3e9), _disk("b", 1e9, correct=False)),
        products=(_product("a", 7e14), _product("a", 6e14, device="cuda:1"),
                  _product("b", 1e14, wrong=1)),
        all_reduces=(_group(("a", 9, "done", None, 0), ("b", 9, "done", None, 1)),),
    )  # fmt: skip
    assert measured.usable_disk_bytes_per_s("a") == 3e9
    assert measured.usable_disk_bytes_per_s("b") is None
    assert measured.usable_flops_per_s("a", dtype="bfloat16") == 6e14
    assert measured.usable_flops_per_s("b", dtype="bfloat16") is None
    assert measured.usable_link_bytes_per_s("a", "b") == 1.2e9
    assert measured.usable_all_reduce(hosts=2) is None

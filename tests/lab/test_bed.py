"""The bed of booted hosts: each of its faults does what it says, and heals."""

import contextlib
import pathlib
import time
from collections.abc import Iterator

import pytest

from llmdeploy.edge.ssh import SshShell
from llmdeploy.edge.ssh_config import Config, Target
from llmdeploy.edge.ssh_connect import Limits
from llmdeploy.edge.ssh_pool import Connections
from llmdeploy.errors import InputError, Unreachable

from .bed import Bed
from .build import Built, ini
from .machine import Machine

pytestmark = pytest.mark.end_to_end
LIMITS = Limits(connect_timeout_s=4.0, banner_timeout_s=3.0)


@pytest.fixture
def connections(bed: Bed) -> Iterator[Connections]:
    config = Config(str(bed.ssh / "config"), system_path="/nonexistent")
    with Connections(config=config, limits=LIMITS) as made:
        yield made


def _shell(machine: Machine, connections: Connections) -> SshShell:
    return SshShell(Target(name=machine.name, address=machine.name), connections)


def _said(machine: Machine, connections: Connections, *argv: str) -> str:
    return _shell(machine, connections).run(argv, timeout_s=30).stdout.strip()


def _reaches(machine: Machine, other: Machine, connections: Connections, port: int = 22) -> bool:
    program = f"import socket; socket.create_connection(('{other.address}', {port}), 2)"
    argv = ["/usr/bin/python3", "-c", program]
    return _shell(machine, connections).run(argv, timeout_s=20).exit_code == 0


def test_hosts_are_whole_machines(bed: Bed, connections: Connections) -> None:
    for machine in bed.machines:
        assert _said(machine, connections, "hostname") == machine.name
        assert _said(machine, connections, "cat", "/proc/1/comm") == "systemd"
        addresses = _said(machine, connections, "ip", "-o", "-4", "addr", "show", "eth0")
        assert machine.address in addresses
    ids = {_said(machine, connections, "cat", "/etc/machine-id") for machine in bed.machines}
    assert len(ids) == 3
    assert _reaches(bed.machines[0], bed.machines[1], connections)


def test_hosts_do_not_see_this_machines_files(bed: Bed, connections: Connections) -> None:
    assert _said(bed.machines[0], connections, "ls", "/root") == ""
    assert not (pathlib.Path("/root") / "seen-by-all").exists()
    _shell(bed.machines[0], connections).write("~/seen-by-all", b"x")
    assert not (pathlib.Path("/root") / "seen-by-all").exists()
    assert _said(bed.machines[1], connections, "ls", "/root") == ""


def test_a_partition_parts_hosts_and_leaves_the_controller(
    bed: Bed, connections: Connections
) -> None:
    one, two, three = bed.machines
    bed.network.partition([one.plug], [two.plug, three.plug])
    try:
        assert not _reaches(one, two, connections)
        assert _reaches(two, three, connections)
    finally:
        bed.network.mend()
    assert _reaches(one, two, connections)


def test_a_blocked_port_is_blocked_alone(bed: Bed, connections: Connections) -> None:
    one, two, _ = bed.machines
    two.run("systemd-run", "-q", "--unit=web", "/usr/bin/python3", "-m", "http.server", "8080")
    deadline_s = time.monotonic() + 20
    while not _reaches(one, two, connections, 8080) and time.monotonic() < deadline_s:
        time.sleep(0.2)
    bed.network.block(two.plug, port=8080)
    try:
        assert not _reaches(one, two, connections, 8080)
        assert _reaches(one, two, connections, 22)
    finally:
        bed.network.mend()
        two.run("systemctl", "stop", "web")


def test_a_shaped_link_is_slow(bed: Bed, connections: Connections) -> None:
    one = bed.machines[0]
    _said(one, connections, "true")

    def command_s() -> float:
        begun_s = time.monotonic()
        _said(one, connections, "true")
        return time.monotonic() - begun_s

    bed.network.shape(one.plug, delay_s=0.25)
    try:
        assert command_s() > 0.5
        bed.network.shape(one.plug, delay_s=0.0)
    finally:
        bed.network.unshape(one.plug)
    assert _said(one, connections, "echo", "in") == "in"


def test_a_limited_link_carries_less(bed: Bed, connections: Connections) -> None:
    shell = _shell(bed.machines[0], connections)
    content = b"x" * 1_000_000
    shell.write("/tmp/x", content)
    bed.network.limit(bed.machines[0].plug, rate_bits_per_s=4e6)
    try:
        begun_s = time.monotonic()
        shell.write("/tmp/x", content)
        took_s = time.monotonic() - begun_s
    finally:
        bed.network.limit(bed.machines[0].plug, rate_bits_per_s=None)
    assert took_s > 1.0


def test_a_lossy_link_still_connects(bed: Bed, connections: Connections) -> None:
    bed.network.lose(bed.machines[2].plug, ratio=0.05)
    try:
        assert _said(bed.machines[2], connections, "echo", "in") == "in"
    finally:
        bed.network.mend()


def test_a_cut_and_an_unplugged_host_are_gone_until_healed(
    bed: Bed, connections: Connections
) -> None:
    two = bed.machines[1]
    for harm, heal in (
        (bed.network.cut, bed.network.heal),
        (bed.network.unplug, bed.network.plug_in),
    ):
        connections.close()
        harm(two.plug)
        try:
            with pytest.raises(Unreachable, match=r"node2: .*(no answer in 4 s|no route)"):
                _said(two, connections, "true")
        finally:
            heal(two.plug)
        two.wait(limit_s=20)
        assert _said(two, connections, "echo", "in") == "in"


def test_a_frozen_host_accepts_and_says_nothing(bed: Bed, connections: Connections) -> None:
    two = bed.machines[1]
    two.freeze()
    try:
        with pytest.raises(Unreachable, match=r"node2: .*sent no SSH banner in 3 s"):
            _said(two, connections, "true")
    finally:
        two.thaw()
    assert _said(two, connections, "echo", "in") == "in"


def test_a_host_without_power_is_gone_and_boots_anew(bed: Bed, connections: Connections) -> None:
    three = bed.machines[2]
    _shell(three, connections).write("/var/lib/kept", b"kept")
    _shell(three, connections).write("/run/lost", b"lost")
    three.power_off()
    with pytest.raises(Unreachable):
        _said(three, connections, "true")
    three.power_on()
    bed.network.heal(three.plug)
    three.wait(limit_s=60)
    shell = _shell(three, connections)
    assert (shell.read("/var/lib/kept"), shell.read("/run/lost")) == (b"kept", None)


def test_a_host_reboots_itself(bed: Bed, connections: Connections) -> None:
    three = bed.machines[2]
    boot = ["cat", "/proc/sys/kernel/random/boot_id"]
    before = three.run(*boot).strip()
    three.run("systemctl", "--no-block", "reboot")
    deadline_s = time.monotonic() + 60
    connections.close()
    now = before
    while now == before and time.monotonic() < deadline_s:
        time.sleep(0.5)
        with contextlib.suppress(Unreachable):
            now = _said(three, connections, *boot) or before
    assert now != before, "node3 did not come back"


def test_a_full_disk_is_the_hosts_own(bed: Bed, connections: Connections) -> None:
    shell = _shell(bed.machines[0], connections)
    filled = shell.run(["dd", "if=/dev/zero", "of=/var/fill", "bs=1M", "count=900"], timeout_s=60)
    try:
        assert "No space left" in filled.stderr
        with pytest.raises(InputError, match=r"node1: /var/more: .*No space left") as caught:
            shell.write("/var/more", b"x" * 1_000_000)
        assert "disk has room" in caught.value.fix
        _shell(bed.machines[1], connections).write("/var/more", b"x" * 1_000_000)
    finally:
        shell.remove("/var/fill")


def test_a_new_installation_has_another_key(bed: Bed, connections: Connections) -> None:
    one = bed.machines[0]
    old = one.known_hosts_line
    one.new_host_key()
    connections.close()
    with pytest.raises(InputError, match=r"node1: .*host key changed: .*known_hosts:1"):
        _said(one, connections, "true")
    known = bed.ssh / "known_hosts"
    known.write_text(known.read_text().replace(old, one.known_hosts_line))
    assert _said(one, connections, "echo", "in") == "in"


def test_a_skewed_clock_is_off_for_new_programs(
    bed: Bed, connections: Connections, built: Built
) -> None:
    two = bed.machines[1]
    two.skew_clock(built, offset_s=-7200)
    try:
        offset_s = int(_said(two, connections, "date", "+%s")) - time.time()
    finally:
        two.skew_clock(built, offset_s=0)
    assert abs(offset_s + 7200) < 30
    assert abs(int(_said(two, connections, "date", "+%s")) - time.time()) < 30


def test_a_host_has_the_cards_it_is_given(bed: Bed, connections: Connections, built: Built) -> None:
    one = bed.machines[0]
    one.give_cards(built, ini("rtx4090x8"))
    query = ("nvidia-smi", "--query-gpu=index,memory.used", "--format=csv,noheader")
    assert _said(one, connections, *query).splitlines()[7] == "7, 2 MiB"
    one.change_cards("gpu.7", memory__used=20000)
    assert _said(one, connections, *query).splitlines()[7] == "7, 20000 MiB"
    one.change_cards("system", state="hang:30")
    with pytest.raises(Unreachable, match=r"node1: `nvidia-smi .* did not end in 2 s"):
        _shell(one, connections).run(query, timeout_s=2)

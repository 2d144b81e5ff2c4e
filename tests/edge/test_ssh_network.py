"""Hosts behind real links: what is noticed when one is cut, and how soon."""

import pathlib
import threading
import time
from collections.abc import Iterator

import pytest

from llmdeploy.edge.ssh import SshShell
from llmdeploy.errors import Unreachable

from ..lab.needs import need_namespaces, need_sshd
from ..lab.network import Network, Plug
from ..lab.sshd import Sshd
from .ssh_bed import Client

pytestmark = pytest.mark.end_to_end
NOTICED_S = 10.0


@pytest.fixture
def network() -> Iterator[Network]:
    need_sshd()
    need_namespaces()
    with Network("lde", size=2, prefix="10.78") as made:
        yield made


@pytest.fixture
def client(tmp_path: pathlib.Path, network: Network) -> Iterator[Client]:
    made = Client(tmp_path)
    yield made
    made.close()


@pytest.fixture
def servers(client: Client, network: Network, tmp_path: pathlib.Path) -> Iterator[list[Sshd]]:
    made = [
        Sshd(
            folder=tmp_path / plug.namespace,
            key=client.key,
            address=plug.address,
            port=22,
            namespace=plug.namespace,
        )
        for plug in network.plugs
    ]
    try:
        for number, server in enumerate(made, start=1):
            server.__enter__()
            client.knows(f"gpu{number}", server)
        yield made
    finally:
        for server in made:
            server.stop()


def _cut_during(shell: SshShell, network: Network, plug: Plug) -> tuple[float, str]:
    """Seconds from the cut to the error, and its words."""
    cut_s: list[float] = []

    def cut() -> None:
        cut_s.append(time.monotonic())
        network.cut(plug)

    timer = threading.Timer(1.0, cut)
    shell.run(["true"], timeout_s=20)
    timer.start()
    with pytest.raises(Unreachable) as caught:
        shell.run(["sleep", "120"], timeout_s=100)
    return time.monotonic() - cut_s[0], str(caught.value)


def test_a_link_cut_during_a_command_is_noticed(
    client: Client, network: Network, servers: list[Sshd]
) -> None:
    took_s, words = _cut_during(client.shell("gpu1"), network, network.plugs[0])
    print(f"cut noticed after {took_s:.1f} s: {words}")
    assert took_s < NOTICED_S
    assert words.startswith("gpu1: root@10.78.1.1:22: the connection was lost during `sleep 120`")
    network.heal(network.plugs[0])
    assert client.shell("gpu1").run(["echo", "back"], timeout_s=20).stdout == "back\n"


def test_a_link_cut_behind_a_jump_host_is_noticed_too(
    client: Client, network: Network, servers: list[Sshd]
) -> None:
    with client.config.open("a") as file:
        file.write(f"Host inner\n  HostName {servers[1].address}\n  User root\n  ProxyJump gpu1\n")
        file.write(f"  UserKnownHostsFile {client.known_hosts}\n  IdentityFile {client.key}\n")
    took_s, words = _cut_during(client.shell("inner"), network, network.plugs[1])
    print(f"cut behind a jump host noticed after {took_s:.1f} s: {words}")
    assert took_s < NOTICED_S
    assert words.startswith("inner: root@10.78.1.2:22 through root@10.78.1.1:22: the connection")


def test_a_cut_host_is_unreachable_before_long(
    client: Client, network: Network, servers: list[Sshd]
) -> None:
    network.cut(network.plugs[0])
    begun_s = time.monotonic()
    with pytest.raises(Unreachable, match=r"gpu1: .*(no answer in 8 s|no route)"):
        client.shell("gpu1").run(["true"], timeout_s=10)
    assert time.monotonic() - begun_s < NOTICED_S
    assert client.shell("gpu2").run(["echo", "in"], timeout_s=20).stdout == "in\n"


def test_an_address_nobody_has_is_no_route(client: Client, network: Network) -> None:
    with client.config.open("a") as file:
        file.write("Host gone\n  HostName 10.78.9.9\n  User root\n")
    with pytest.raises(Unreachable, match=r"gone: .*no route: No route to host") as caught:
        client.shell("gone").run(["true"], timeout_s=10)
    assert "ip route get 10.78.9.9" in caught.value.fix

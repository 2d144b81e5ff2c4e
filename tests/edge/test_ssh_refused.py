"""A real sshd that does not let us in: each reason has its own words and its own fix."""

import os
import pathlib
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest

from llmdeploy.edge.ssh_connect import Limits
from llmdeploy.edge.ssh_known import fingerprint
from llmdeploy.errors import InputError, Unreachable

from ..lab.needs import need_sshd
from ..lab.sshd import Sshd, free_port, make_key
from .ssh_bed import Client

pytestmark = pytest.mark.end_to_end
CANARY = "canary-passphrase-77"


@pytest.fixture
def client(tmp_path: pathlib.Path) -> Iterator[Client]:
    need_sshd()
    made = Client(tmp_path, limits=Limits(banner_timeout_s=2.0))
    yield made
    made.close()


@pytest.fixture
def server(client: Client, tmp_path: pathlib.Path) -> Iterator[Sshd]:
    with Sshd(folder=tmp_path / "one", key=client.key) as made:
        yield made


@pytest.fixture
def agent(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    path = str(tmp_path / "agent")
    process = subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL)
    try:
        while not os.path.exists(path):
            time.sleep(0.02)
        monkeypatch.setenv("SSH_AUTH_SOCK", path)
        yield path
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(5)


def _refused(client: Client, alias: str = "gpu1") -> InputError:
    with pytest.raises(InputError) as caught:
        client.shell(alias).run(["true"], timeout_s=10)
    assert str(caught.value).startswith(f"{alias}: root@127.0.0.1:")
    assert CANARY not in str(caught.value) + caught.value.fix
    return caught.value


def _silent(client: Client, alias: str = "gpu1") -> Unreachable:
    with pytest.raises(Unreachable) as caught:
        client.shell(alias).run(["true"], timeout_s=10)
    assert str(caught.value).startswith(f"{alias}: root@127.0.0.1:")
    return caught.value


def test_an_unknown_host_key_is_refused_with_its_fingerprint(client: Client, server: Sshd) -> None:
    client.names("gpu1", server)
    error = _refused(client)
    shown = subprocess.check_output(
        ["ssh-keygen", "-lf", str(server.folder / "host_key.pub")], text=True
    )
    assert f"host key unknown: found ssh-ed25519 {shown.split()[1]}" in str(error)
    assert f"ssh -p {server.port} root@127.0.0.1 true" in error.fix


def test_a_changed_host_key_names_the_host_and_the_line(client: Client, server: Sshd) -> None:
    client.knows("gpu1", server)
    client.shell("gpu1").run(["true"], timeout_s=10)
    server.new_host_key()
    error = _refused(client)
    assert "host key changed: found ssh-ed25519 SHA256:" in str(error)
    assert f"as in {client.known_hosts}:2" in str(error)
    assert f"ssh-keygen -R '[127.0.0.1]:{server.port}' -f {client.known_hosts}" in error.fix


def test_hashed_names_are_known(client: Client, server: Sshd) -> None:
    client.knows("gpu1", server)
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(client.known_hosts)], check=True,
                   capture_output=True)  # fmt: skip
    assert "|1|" in client.known_hosts.read_text()
    assert client.shell("gpu1").run(["echo", "in"], timeout_s=10).stdout == "in\n"


def test_a_host_with_several_keys_is_asked_for_the_known_one(
    client: Client, tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "two"
    folder.mkdir()
    subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-N", "", "-f",
                    str(folder / "rsa")], check=True)  # fmt: skip
    with Sshd(folder=folder, key=client.key, extra=f"HostKey {folder}/rsa\n") as server:
        client.names("gpu1", server)
        kind, key, *_ = (folder / "rsa.pub").read_text().split()
        client.known_hosts.write_text(f"[127.0.0.1]:{server.port} {kind} {key}\n")
        assert client.shell("gpu1").run(["echo", "in"], timeout_s=10).stdout == "in\n"


def test_a_refused_key_is_named(client: Client, server: Sshd, tmp_path: pathlib.Path) -> None:
    other = make_key(tmp_path / "other")
    client.knows("gpu1", server, settings=f"  IdentityFile {other}\n")
    error = _refused(client)
    assert f"took no key: {other} refused (it takes publickey)" in str(error)
    assert f"ssh-copy-id -p {server.port} root@127.0.0.1" in error.fix


def test_no_key_at_all_is_said(client: Client, server: Sshd) -> None:
    client.knows("gpu1", server, settings="  IdentityFile /nonexistent/id\n")
    assert "took no key: no key in ~/.ssh, none in the agent" in str(_refused(client))


def test_a_host_that_wants_a_password_is_told_apart(client: Client, tmp_path: pathlib.Path) -> None:
    only = "PubkeyAuthentication no\nPasswordAuthentication yes\nAuthenticationMethods password\n"
    with Sshd(folder=tmp_path / "pw", key=client.key, extra=only) as server:
        client.knows("gpu1", server)
        error = _refused(client)
    assert "takes only a password (password), needed a key" in str(error)
    assert "PubkeyAuthentication yes" in error.fix


def test_a_locked_key_asks_for_the_agent(
    client: Client, server: Sshd, tmp_path: pathlib.Path
) -> None:
    locked = make_key(tmp_path / "locked", passphrase=CANARY)
    client.knows("gpu1", server, settings=f"  IdentityFile {locked}\n")
    error = _refused(client)
    assert f"took no key: {locked} needs its passphrase" in str(error)
    assert error.fix.endswith(f"ssh-add {locked}")


def test_a_key_in_the_agent_is_taken(
    client: Client, server: Sshd, tmp_path: pathlib.Path, agent: str
) -> None:
    subprocess.run(["ssh-add", "-q", str(client.key)], check=True, capture_output=True)
    client.knows("gpu1", server, settings="  IdentityFile /nonexistent/id\n")
    assert client.shell("gpu1").run(["echo", "in"], timeout_s=10).stdout == "in\n"


def test_only_named_keys_of_the_agent_are_offered_where_it_is_asked_for(
    client: Client, server: Sshd, tmp_path: pathlib.Path, agent: str
) -> None:
    subprocess.run(["ssh-add", "-q", str(client.key)], check=True, capture_output=True)
    other = make_key(tmp_path / "other")
    settings = f"  IdentityFile {other}\n  IdentitiesOnly yes\n"
    client.knows("gpu1", server, settings=settings)
    assert "the agent" not in str(_refused(client))


def test_a_port_nobody_listens_on_is_told_apart(client: Client, server: Sshd) -> None:
    client.knows("gpu1", server)
    server.stop()
    error = _silent(client)
    assert f"nothing listens on TCP port {server.port}" in str(error)
    assert "systemctl start ssh" in error.fix


def test_a_frozen_sshd_is_told_apart(client: Client, server: Sshd) -> None:
    client.knows("gpu1", server)
    server.freeze()
    begun_s = time.monotonic()
    assert "accepts TCP but sent no SSH banner in 2 s" in str(_silent(client))
    assert time.monotonic() - begun_s < 8


def test_a_port_that_is_not_sshs_is_told_apart(client: Client, tmp_path: pathlib.Path) -> None:
    server = Sshd(folder=tmp_path / "none", key=client.key, port=free_port())
    client.names("gpu1", server)
    with socket.create_server(("127.0.0.1", server.port)):
        assert "port is not SSH" in str(_silent(client)).replace(f"port {server.port}", "port")


def test_a_name_that_does_not_resolve_is_bad_input(client: Client) -> None:
    with client.config.open("a") as file:
        file.write("Host gpu9\n  HostName gpu9.invalid\n  User root\n")
    with pytest.raises(InputError, match=r"gpu9: .*gpu9\.invalid cannot be resolved") as caught:
        client.shell("gpu9").run(["true"], timeout_s=10)
    assert "cluster.yaml" in caught.value.fix


def test_a_host_frozen_during_a_command_is_told_from_a_slow_command(
    client: Client, server: Sshd
) -> None:
    client.knows("gpu1", server)
    shell = client.shell("gpu1")
    shell.run(["true"], timeout_s=10)
    threading.Timer(1.0, server.freeze).start()
    begun_s = time.monotonic()
    with pytest.raises(Unreachable, match=r"did not end in 4 s and sshd .* the host is frozen"):
        shell.run(["sleep", "60"], timeout_s=4)
    assert time.monotonic() - begun_s < 15
    server.thaw()


def test_a_host_frozen_between_commands_opens_no_session(client: Client, server: Sshd) -> None:
    client.knows("gpu1", server)
    shell = client.shell("gpu1")
    shell.run(["true"], timeout_s=10)
    server.freeze()
    with pytest.raises(Unreachable, match=r"opened no session in 8 s: the host is frozen"):
        shell.run(["true"], timeout_s=5)
    server.thaw()
    assert shell.run(["echo", "back"], timeout_s=20).stdout == "back\n"


def test_a_jump_host_leads_on(client: Client, server: Sshd, tmp_path: pathlib.Path) -> None:
    with Sshd(folder=tmp_path / "door", key=client.key) as door:
        client.knows("door", door)
        client.knows("gpu1", server, settings="  ProxyJump door\n")
        client.knows("gpu2", server, settings="  ProxyJump door\n  User root\n")
        connections = client.connections()
        shell = client.shell("gpu1", connections=connections)
        assert shell.run(["echo", "in"], timeout_s=20).stdout == "in\n"
        client.shell("gpu2", connections=connections).run(["true"], timeout_s=20)
        assert door.connections() == 1
        connections.close()
        assert shell.run(["echo", "anew"], timeout_s=20).stdout == "anew\n"


def test_a_jump_host_that_cannot_reach_it_is_named(
    client: Client, server: Sshd, tmp_path: pathlib.Path
) -> None:
    with Sshd(folder=tmp_path / "door", key=client.key) as door:
        client.knows("door", door)
        client.knows("gpu1", server, settings="  ProxyJump door\n")
        server.stop()
        with pytest.raises(
            Unreachable, match=r"gpu1: .*root@127.* cannot reach it: Conn"
        ) as caught:
            client.shell("gpu1").run(["true"], timeout_s=10)
    assert f"nc -vz 127.0.0.1 {server.port}" in caught.value.fix


def test_a_jump_hosts_key_is_strict_too(
    client: Client, server: Sshd, tmp_path: pathlib.Path
) -> None:
    with Sshd(folder=tmp_path / "door", key=client.key) as door:
        client.names("door", door)
        client.knows("gpu1", server, settings="  ProxyJump door\n")
        with pytest.raises(InputError, match=r"gpu1: .*host key unknown"):
            client.shell("gpu1").run(["true"], timeout_s=10)


def test_the_fingerprint_is_the_one_that_ssh_shows(tmp_path: pathlib.Path) -> None:
    need_sshd()
    import base64

    key = make_key(tmp_path / "k")
    blob = base64.b64decode(key.with_name("k.pub").read_text().split()[1])
    assert fingerprint(blob) in subprocess.check_output(["ssh-keygen", "-lf", str(key)], text=True)

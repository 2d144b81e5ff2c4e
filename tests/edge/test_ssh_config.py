"""The way to a host, as ~/.ssh/config and the inventory say it together."""

import pathlib

import pytest

from llmdeploy.edge.ssh_config import Config, Route, Target
from llmdeploy.errors import InputError


def _route(folder: pathlib.Path, text: str, target: Target) -> Route:
    (folder / "config").write_text(text)
    return Config(str(folder / "config"), system_path="/nonexistent").route(target)


def _key(folder: pathlib.Path, name: str) -> str:
    (folder / name).write_text("key")
    return str(folder / name)


def test_an_alias_is_filled_in_from_the_configuration(tmp_path: pathlib.Path) -> None:
    key = _key(tmp_path, "k")
    text = f"Host gpu*\n  HostName 10.0.0.%h\n  Port 2222\n  User llm\n  IdentityFile {key}\n"
    text += "  IdentitiesOnly yes\n  UserKnownHostsFile /a /b\n  GlobalKnownHostsFile none\n"
    route = _route(tmp_path, text.replace("%h", "7"), Target(name="g", address="gpu1"))
    assert (route.address, route.port, route.user) == ("10.0.0.7", 2222, "llm")
    assert (route.keys, route.only_these_keys) == ((key,), True)
    assert route.known_as == "[10.0.0.7]:2222"
    assert route.known_hosts == ("/a", "/b")
    assert route.shown == "llm@10.0.0.7:2222"


def test_the_inventory_wins_over_the_configuration(tmp_path: pathlib.Path) -> None:
    mine, theirs = _key(tmp_path, "mine"), _key(tmp_path, "theirs")
    text = f"Host *\n  User other\n  Port 1\n  IdentityFile {theirs}\n"
    target = Target(name="g", address="10.0.0.7", user="llm", port=22, key=mine)
    route = _route(tmp_path, text, target)
    assert (route.user, route.port, route.keys) == ("llm", 22, (mine, theirs))
    assert route.known_as == "10.0.0.7"


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("llm@h:2022", ("llm", "h", 2022)),
        ("llm@h", ("llm", "h", 22)),
        ("llm@[fe80::1]:2022", ("llm", "fe80::1", 2022)),
        ("llm@fe80::1", ("llm", "fe80::1", 22)),
    ],
)
def test_an_address_may_hold_user_and_port(
    tmp_path: pathlib.Path, address: str, found: tuple[str, str, int]
) -> None:
    route = _route(tmp_path, "", Target(name="g", address=address))
    assert (route.user, route.address, route.port) == found


def test_jump_hosts_are_a_chain_through_their_own_entries(tmp_path: pathlib.Path) -> None:
    text = (
        "Host inner\n  HostName 10.1.0.9\n  ProxyJump door,ops@middle:2200\n"
        "Host door\n  HostName door.example.org\n  User guest\n"
        "Host *\n  User llm\n"
    )
    route = _route(tmp_path, text, Target(name="g", address="inner"))
    assert route.shown == (
        "llm@10.1.0.9:22 through ops@middle:2200 through guest@door.example.org:22"
    )


def test_jumps_in_a_circle_are_named(tmp_path: pathlib.Path) -> None:
    text = "Host a\n  ProxyJump b\nHost b\n  ProxyJump a\n"
    with pytest.raises(InputError, match="in a circle") as caught:
        _route(tmp_path, text, Target(name="g", address="a"))
    assert "ssh -G b" in caught.value.fix


def test_a_jump_of_none_is_none(tmp_path: pathlib.Path) -> None:
    text = "Host a\n  ProxyJump none\nHost *\n  ProxyJump door\n"
    assert _route(tmp_path, text, Target(name="g", address="a")).via is None


def test_a_proxy_command_is_refused_with_the_way_out(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InputError, match="ProxyCommand, which cannot be given a deadline") as error:
        _route(tmp_path, "Host a\n  ProxyCommand nc %h %p\n", Target(name="g", address="a"))
    assert "ProxyJump HOST" in error.value.fix


def test_included_files_count(tmp_path: pathlib.Path) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "one").write_text("Host gpu1\n  HostName 10.0.0.1\n")
    (tmp_path / "conf.d" / "two").write_text("Host gpu2\n  HostName 10.0.0.2\n")
    route = _route(tmp_path, "Include conf.d/*\n", Target(name="g", address="gpu2"))
    assert route.address == "10.0.0.2"


def test_an_alias_of_a_host_key_is_what_known_hosts_has(tmp_path: pathlib.Path) -> None:
    text = "Host a\n  HostName 10.0.0.1\n  HostKeyAlias rack7\n"
    assert _route(tmp_path, text, Target(name="g", address="a")).known_as == "rack7"


def test_a_missing_key_of_the_inventory_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InputError, match=r"gpu1: key: found no file /no/key") as caught:
        _route(tmp_path, "", Target(name="gpu1", address="a", key="/no/key"))
    assert "cluster.yaml" in caught.value.fix


def test_a_configuration_that_cannot_be_parsed_is_named(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InputError, match="config: cannot be read as SSH configuration"):
        _route(tmp_path, "Host a\n  Match exec true\n  User x\n=\n", Target(name="g", address="a"))


def test_a_wrong_port_is_named() -> None:
    with pytest.raises(InputError, match="found port '99999', needed 1 to 65535"):
        Config("/nonexistent", system_path="/nonexistent").route(
            Target(name="g", address="h:99999")
        )


@pytest.mark.parametrize(
    ("hostname", "port", "address", "known_as"),
    [
        ("fd00:10::7", 22, "fd00:10::7", "fd00:10::7"),
        ("fd00:10::7", 2222, "fd00:10::7", "[fd00:10::7]:2222"),
        ("FD00:10:0:0:0:0:0:7", 22, "fd00:10::7", "fd00:10::7"),
        ("fe80::5054:ff:fe12:3456%%eth0", 22, "fe80::5054:ff:fe12:3456%eth0",
         "fe80::5054:ff:fe12:3456%eth0"),
        ("GPU7.example", 2222, "GPU7.example", "[GPU7.example]:2222"),
        ("10.0.0.7", 2222, "10.0.0.7", "[10.0.0.7]:2222"),
    ],
)  # fmt: skip
def test_a_host_name_may_be_an_ipv6_address(
    tmp_path: pathlib.Path, hostname: str, port: int, address: str, known_as: str
) -> None:
    text = f"Host gpu7\n  HostName {hostname}\n  Port {port}\n"
    route = _route(tmp_path, text, Target(name="g", address="gpu7"))
    assert (route.address, route.port, route.known_as) == (address, port, known_as)


@pytest.mark.parametrize(
    ("address", "found", "shown"),
    [
        ("fd00::7", ("fd00::7", 22), "llm@[fd00::7]:22"),
        ("[fd00::7]", ("fd00::7", 22), "llm@[fd00::7]:22"),
        ("[fd00:0::7]:2222", ("fd00::7", 2222), "llm@[fd00::7]:2222"),
        ("llm@[fe80::1%eth0]:2222", ("fe80::1%eth0", 2222), "llm@[fe80::1%eth0]:2222"),
        ("llm@fe80::1%eth0", ("fe80::1%eth0", 22), "llm@[fe80::1%eth0]:22"),
    ],
)
def test_the_inventory_may_hold_an_ipv6_address(
    tmp_path: pathlib.Path, address: str, found: tuple[str, int], shown: str
) -> None:
    route = _route(tmp_path, "", Target(name="g", address=address, user="llm"))
    assert (route.address, route.port) == found
    assert route.shown == shown


def test_entries_and_jump_hosts_of_ipv6_are_found(tmp_path: pathlib.Path) -> None:
    text = (
        "Host fd00:10::*\n  User rack\n  ProxyJump ops@[fd00:9::1]:2200,fd00:9::2\n"
        "Host fd00:9::2\n  User door\n"
    )
    route = _route(tmp_path, text, Target(name="g", address="fd00:10::7"))
    assert route.via is not None
    assert route.via.via is not None
    assert route.via.via.place == "ops@[fd00:9::1]:2200"
    assert route.shown == (
        "rack@[fd00:10::7]:22 through door@[fd00:9::2]:22 through ops@[fd00:9::1]:2200"
    )

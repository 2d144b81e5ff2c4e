"""Host keys are strict: what each kind of known_hosts line lets in, and what it keeps out."""

import base64
import dataclasses
import hashlib
import hmac
import pathlib
import subprocess

import pytest

from llmdeploy.edge.ssh_config import Route
from llmdeploy.edge.ssh_known import check, fingerprint, known_keys, preferred
from llmdeploy.errors import InputError

KEY, OTHER = b"a host key", b"another one"
KIND = "ssh-ed25519"


def _line(names: str, key: bytes = KEY, kind: str = KIND) -> str:
    return f"{names} {kind} {base64.b64encode(key).decode()} comment\n"


def _hashed(name: str) -> str:
    salt = bytes(range(20))
    digest = hmac.new(salt, name.encode(), hashlib.sha1).digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


def _route(folder: pathlib.Path, text: str, *, port: int = 22) -> Route:
    (folder / "known").write_text(text)
    return Route(
        address="10.0.0.7",
        port=port,
        user="llm",
        keys=(),
        only_these_keys=False,
        known_as="10.0.0.7" if port == 22 else f"[10.0.0.7]:{port}",
        known_hosts=("/nonexistent", str(folder / "known")),
    )


@pytest.mark.parametrize(
    "names",
    ["10.0.0.7", "gpu1,10.0.0.7", "10.0.0.?", "10.*,!10.0.1.*", _hashed("10.0.0.7")],
)
def test_a_known_key_is_let_in(tmp_path: pathlib.Path, names: str) -> None:
    check("gpu1", KIND, KEY, route=_route(tmp_path, _line("other", OTHER) + _line(names)))


def test_a_port_of_its_own_stands_in_brackets(tmp_path: pathlib.Path) -> None:
    check("gpu1", KIND, KEY, route=_route(tmp_path, _line("[10.0.0.7]:2222"), port=2222))
    with pytest.raises(InputError, match="unknown"):
        check("gpu1", KIND, KEY, route=_route(tmp_path, _line("[10.0.0.7]:2223"), port=2222))


@pytest.mark.parametrize("names", ["10.0.0.8", "!10.0.0.7,10.*", _hashed("10.0.0.8"), "|1|x|y"])
def test_an_unknown_key_is_refused_with_its_fingerprint(tmp_path: pathlib.Path, names: str) -> None:
    with pytest.raises(InputError, match=r"gpu1: .*host key unknown") as caught:
        check("gpu1", KIND, KEY, route=_route(tmp_path, _line(names)))
    assert fingerprint(KEY) in str(caught.value)
    assert caught.value.fix.endswith("ssh -p 22 llm@10.0.0.7 true")


def test_a_changed_key_names_the_host_and_the_line(tmp_path: pathlib.Path) -> None:
    text = "# comment\n\n" + _line("other", KEY) + _line("10.0.0.7", OTHER)
    with pytest.raises(InputError) as caught:
        check("gpu1", KIND, KEY, route=_route(tmp_path, text))
    assert str(caught.value) == (
        f"gpu1: llm@10.0.0.7:22: host key changed: found ssh-ed25519 {fingerprint(KEY)}, needed "
        f"ssh-ed25519 {fingerprint(OTHER)} as in {tmp_path}/known:4"
    )
    assert f"ssh-keygen -R '10.0.0.7' -f {tmp_path}/known" in caught.value.fix


def test_a_revoked_key_is_refused_though_known(tmp_path: pathlib.Path) -> None:
    text = _line("10.0.0.7") + "@revoked " + _line("*")
    with pytest.raises(InputError, match=r"is revoked by .*known:2"):
        check("gpu1", KIND, KEY, route=_route(tmp_path, text))


def test_a_certificate_authority_does_not_vouch_for_a_plain_key(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InputError, match="unknown"):
        check("gpu1", KIND, KEY, route=_route(tmp_path, "@cert-authority " + _line("*")))


def test_the_host_is_asked_for_a_key_that_can_be_compared(tmp_path: pathlib.Path) -> None:
    text = _line("10.0.0.7", kind="ssh-rsa") + _line("10.0.0.7", kind="ecdsa-sha2-nistp256")
    assert preferred(_route(tmp_path, text)) == (
        "rsa-sha2-512",
        "rsa-sha2-256",
        "ecdsa-sha2-nistp256",
    )


def test_a_damaged_line_is_passed_over(tmp_path: pathlib.Path) -> None:
    text = "10.0.0.7 ssh-ed25519 ###\n10.0.0.7\n" + _line("10.0.0.7")
    check("gpu1", KIND, KEY, route=_route(tmp_path, text))


ED25519 = "AAAAC3NzaC1lZDI1NTE5AAAAI" + "A" * 43
"""ssh-keygen hashes only lines whose key it can read."""


def _v6(folder: pathlib.Path, text: str, *, known_as: str) -> Route:
    route = _route(folder, text)
    return dataclasses.replace(route, address="fd00:10::7", known_as=known_as)


@pytest.mark.parametrize(
    ("names", "known_as"),
    [
        ("fd00:10::7", "fd00:10::7"),
        ("gpu7,fd00:10::7", "fd00:10::7"),
        ("[fd00:10::7]:2222", "[fd00:10::7]:2222"),
        ("[gpu7]:2222,[fd00:10::7]:2222", "[fd00:10::7]:2222"),
        ("fd00:10::*", "fd00:10::7"),
        ("[fd00:10::*]:2222", "[fd00:10::7]:2222"),
        (_hashed("[fd00:10::7]:2222"), "[fd00:10::7]:2222"),
        (_hashed("fe80::1%eth0"), "fe80::1%eth0"),
        (_hashed("[gpu7.example]:2222"), "[GPU7.example]:2222"),
    ],
)
def test_an_ipv6_host_is_known_by_the_names_that_ssh_writes(
    tmp_path: pathlib.Path, names: str, known_as: str
) -> None:
    check("gpu7", KIND, KEY, route=_v6(tmp_path, _line(names), known_as=known_as))


@pytest.mark.parametrize("names", ["[fd00:10::7]:2222", "fd00:10::70", "[fd00:10::7]"])
def test_another_port_or_address_of_ipv6_is_unknown(tmp_path: pathlib.Path, names: str) -> None:
    with pytest.raises(InputError, match=r"llm@\[fd00:10::7\]:22: host key unknown"):
        check("gpu7", KIND, KEY, route=_v6(tmp_path, _line(names), known_as="fd00:10::7"))


def test_names_that_ssh_keygen_hashed_are_found(tmp_path: pathlib.Path) -> None:
    """ssh-keygen's own hash of each name, with a port and of IPv6."""
    key = base64.b64encode(KEY).decode()
    for number, name in enumerate(("fd00:10::7", "[fd00:10::7]:2222")):
        folder = tmp_path / str(number)
        folder.mkdir()
        plain = folder / "plain"
        plain.write_text(f"{name} {KIND} {ED25519}\n")
        subprocess.run(
            ["ssh-keygen", "-q", "-H", "-f", str(plain)], check=True, capture_output=True
        )
        hashed = plain.read_text()
        assert hashed.startswith("|1|")
        route = _v6(folder, hashed.replace(ED25519, key), known_as=name)
        check("gpu7", KIND, KEY, route=route)


def test_a_line_that_is_added_later_is_seen(tmp_path: pathlib.Path) -> None:
    """The file is kept in memory while it stays as it is, and no longer."""
    route = _route(tmp_path, _line("other"))
    with pytest.raises(InputError, match="unknown"):
        check("gpu1", KIND, KEY, route=route)
    _route(tmp_path, _line("other") + _line("10.0.0.7"))
    check("gpu1", KIND, KEY, route=route)


def test_plain_names_and_patterns_keep_the_order_of_their_lines(tmp_path: pathlib.Path) -> None:
    text = _line("10.*", OTHER) + _line("10.0.0.7", KEY, "ecdsa-sha2-nistp256") + _line("10.0.0.?")
    known = known_keys(_route(tmp_path, text))
    assert [line.place.rpartition(":")[2] for line in known] == ["1", "2", "3"]

import json

import jwt
import pytest
from jwt.algorithms import OKPAlgorithm

from llmdeploy.errors import InputError, Refused
from llmdeploy.gateway import keys
from llmdeploy.gateway.filters import ISSUER
from llmdeploy.gateway.state import ClientLimit
from llmdeploy.release.layout import ServiceLayout
from tests.fakes import FakeClock, FakeShell

LAYOUT = ServiceLayout(root="/srv/chat")


@pytest.fixture
def edges():
    return {"layout": LAYOUT, "shell": FakeShell(), "clock": FakeClock()}


def add(edges, client="alice", *, expires_s=3600.0, rate_per_s=None):
    return keys.add(client, service="chat", expires_s=expires_s, rate_per_s=rate_per_s, **edges)


def test_a_token_names_client_key_service_and_end_and_verifies_with_the_public_key(edges):
    issued = add(edges)
    public = OKPAlgorithm.from_jwk(json.loads(keys.rules(**edges).public_keys[0]))
    claims = jwt.decode(
        issued.token.get_secret_value(), public, algorithms=["EdDSA"], audience="llmdeploy/chat",
        issuer=ISSUER, options={"verify_exp": False, "verify_iat": False},
    )  # fmt: skip
    now_s = int(edges["clock"].now_s())
    assert (claims["sub"], claims["jti"]) == ("alice", issued.record.id)
    assert (claims["iat"], claims["exp"]) == (now_s, now_s + 3600)


def test_no_token_and_no_private_key_leave_the_signing_file(edges):
    token = add(edges).token
    files = edges["shell"].files
    private = json.loads(files[f"{LAYOUT.keys}/signing.json"])["d"]
    others = {name: text for name, text in files.items() if not name.endswith("signing.json")}
    assert others
    assert not [n for n, text in others.items() if token.get_secret_value().encode() in text]
    assert not [n for n, text in others.items() if private.encode() in text]
    assert private not in keys.rules(**edges).model_dump_json()
    assert token.get_secret_value() not in repr(add(edges))


def test_all_keys_are_signed_with_the_key_made_first(edges):
    first = keys.rules(**edges)
    add(edges)
    assert keys.rules(**edges) == first


def test_a_revoked_key_is_denied_until_it_would_have_expired(edges):
    record = add(edges, expires_s=3600.0).record
    assert keys.rules(**edges).revoked == ()
    keys.revoke(record.id, **edges)
    assert keys.rules(**edges).revoked == (record.id,)
    edges["clock"].sleep(3601)
    assert keys.rules(**edges).revoked == ()


def test_revoking_twice_keeps_the_first_time(edges):
    record = add(edges).record
    first = keys.revoke(record.id, **edges)
    edges["clock"].sleep(10)
    assert keys.revoke(record.id, **edges) == first


def test_an_unknown_id_is_answered_with_the_known_ones(edges):
    record = add(edges).record
    with pytest.raises(InputError, match=f"no key with id abc, needed one of: {record.id}"):
        keys.revoke("abc", **edges)


def test_the_newest_valid_key_with_a_rate_sets_the_clients_rate(edges):
    add(edges, rate_per_s=5.0)
    newest = add(edges, rate_per_s=20.0).record
    add(edges, "bob")
    assert keys.rules(**edges).client_limits == (ClientLimit(client="alice", rate_per_s=20.0),)
    keys.revoke(newest.id, **edges)
    assert keys.rules(**edges).client_limits == (ClientLimit(client="alice", rate_per_s=5.0),)


@pytest.mark.parametrize("client", ["", "a b", "-x", "a" * 64, "x\r\ny", "../x"])
def test_a_client_name_that_cannot_stand_in_a_header_is_refused(edges, client):
    with pytest.raises(InputError, match="client: found"):
        add(edges, client)
    assert edges["shell"].files == {}


def test_a_rate_that_the_gateway_cannot_hold_is_refused_before_the_key_is_kept(edges):
    with pytest.raises(InputError, match=r"rate: found 1e\+12/s, needed at most 1e\+06/s"):
        add(edges, rate_per_s=1e12)
    assert keys.records(LAYOUT, shell=edges["shell"]) == ()


@pytest.mark.parametrize(("days", "found"), [(0, "0d"), (99999999, "1e\\+08d")])
def test_a_life_of_nothing_or_beyond_the_calendar_is_refused(edges, days, found):
    with pytest.raises(InputError, match=f"expires: found {found}, needed more than 0"):
        add(edges, expires_s=days * 86400.0)
    assert keys.records(LAYOUT, shell=edges["shell"]) == ()


def test_a_rate_of_nothing_is_refused(edges):
    with pytest.raises(InputError, match=r"rate: found 0/s, needed at least 0\.000277778/s"):
        add(edges, rate_per_s=0.0)


@pytest.mark.parametrize("text", [b"", b"{}", b'{"kty": "OKP", "crv": "Ed25519", "x": "AA"', b"[]"])
def test_a_damaged_signing_key_is_named(edges, text):
    edges["shell"].files[f"{LAYOUT.keys}/signing.json"] = text
    with pytest.raises(Refused, match=r"signing.json: found no Ed25519 key"):
        add(edges)


def test_a_damaged_list_is_named(edges):
    edges["shell"].files[f"{LAYOUT.keys}/records.json"] = b'[{"id": 3}]'
    with pytest.raises(InputError, match=r"records.json: found \d+ entries"):
        keys.records(LAYOUT, shell=edges["shell"])


def test_standing_tells_valid_expired_and_revoked(edges):
    record = add(edges, expires_s=100.0).record
    now_s = edges["clock"].now_s()
    assert record.standing(now_s) == "valid"
    assert record.standing(now_s + 100) == "expired"
    assert keys.revoke(record.id, **edges).standing(now_s) == "revoked"

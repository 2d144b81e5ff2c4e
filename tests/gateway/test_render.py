import json

import pytest

from llmdeploy.errors import InputError
from llmdeploy.gateway.change import with_release, with_weights
from llmdeploy.gateway.filters import bucket
from llmdeploy.gateway.render import render
from llmdeploy.gateway.routes import parts
from llmdeploy.gateway.state import ClientLimit, GatewayRelease, GatewayState, Weight
from llmdeploy.release.layout import ServiceLayout
from llmdeploy.release.state import Endpoint

LAYOUT = ServiceLayout(root="/srv/llmdeploy/chat")
OLD, NEW = "0123456789ab", "cdef01234567"
PUBLIC = json.dumps(
    {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
     "kid": "f00d", "alg": "EdDSA", "use": "sig"}
)  # fmt: skip


def release(name, *ports, max_concurrency=8):
    endpoints = tuple(
        Endpoint(replica=f"{i}", host="local", address="127.0.0.1", port=port)
        for i, port in enumerate(ports)
    )
    return GatewayRelease(id=name, endpoints=endpoints, max_concurrency=max_concurrency)


def state(**changes):
    settings = {
        "service": "chat", "host": "127.0.0.1", "port": 8080,
        "allow": ("127.0.0.0/8", "::1/128"), "key_rate_per_s": 50.0, "public_keys": (PUBLIC,),
        "max_queue": 64, "body_limit_bytes": 4 * 2**20, "request_timeout_s": 120.0,
        "releases": (release(OLD, 21000, 21001),),
    }  # fmt: skip
    return GatewayState(**{**settings, **changes})


def gray(**changes):
    live = with_weights(state(**changes), {OLD: 1.0})
    both = with_release(live, release(NEW, 21008))
    return with_weights(both, {OLD: 0.95, NEW: 0.05})


def ruled():
    return gray(
        revoked=("6a7f", "91ce"),
        client_limits=(
            ClientLimit(client="alice", rate_per_s=200.0),
            ClientLimit(client="bob", rate_per_s=0.5),
        ),
        tls_certificate="/etc/llmdeploy/tls.crt",
        tls_key="/etc/llmdeploy/tls.key",
    )


@pytest.mark.parametrize(
    ("case", "made"),
    [("one_release", lambda: with_weights(state(), {OLD: 1.0})), ("gray", gray), ("rules", ruled)],
)
def test_all_files_of_a_state_are_as_reviewed(check_golden, case, made):
    files = render(made(), LAYOUT)
    for name, text in sorted(files.items()):
        check_golden(f"gateway/{case}/{name}", text)
    assert render(made(), LAYOUT) == files


def test_a_weight_change_touches_the_routes_and_the_order_of_fallback_alone():
    before, after = gray(), with_weights(gray(), {OLD: 0.5, NEW: 0.5})
    changed = {n for n, text in render(after, LAYOUT).items() if render(before, LAYOUT)[n] != text}
    assert changed == {"rds.json"}


def test_a_revocation_touches_the_routes_alone():
    before, after = render(gray(), LAYOUT), render(gray(revoked=("1",)), LAYOUT)
    assert {name for name in after if before[name] != after[name]} == {"rds.json"}


def test_a_new_rate_touches_the_limits_alone():
    limit = ClientLimit(client="bob", rate_per_s=2.0)
    before, after = render(gray(), LAYOUT), render(gray(client_limits=(limit,)), LAYOUT)
    assert {name for name in after if before[name] != after[name]} == {"ecds-limits.json"}


def test_nothing_of_a_release_stands_in_the_listeners():
    files = render(gray(), LAYOUT)
    assert OLD not in files["lds.json"]
    assert NEW not in files["lds.json"]


def test_the_candidate_falls_back_to_the_live_release_and_never_the_other_way():
    clusters = json.loads(render(gray(), LAYOUT)["cds.json"])["resources"]
    order = {
        c["name"]: c["cluster_type"]["typed_config"]["clusters"]
        for c in clusters
        if "cluster_type" in c
    }
    assert order == {f"{OLD}-first": [OLD], f"{NEW}-first": [NEW, OLD]}


def test_a_release_is_bounded_by_its_concurrency_and_the_queue():
    clusters = json.loads(render(state(max_queue=3), LAYOUT)["cds.json"])["resources"]
    assert clusters[0]["circuit_breakers"]["thresholds"][0]["max_requests"] == 8 + 3


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ((1.0,), (10000,)),
        ((0.95, 0.05), (9500, 500)),
        ((0.99999, 0.00001), (10000, 0)),
        ((1 / 3, 1 / 3, 1 / 3), (3334, 3333, 3333)),
        ((0.7, 0.2, 0.1), (7000, 2000, 1000)),
    ],
)
def test_parts_sum_to_ten_thousand_exactly(shares, expected):
    weights = [Weight(release=str(i), share=share) for i, share in enumerate(shares)]
    assert parts(weights) == expected
    assert sum(parts(weights)) == 10000


@pytest.mark.parametrize(
    ("rate_per_s", "tokens", "interval", "burst"),
    [
        (0.5, 1, "2.000000000s", 1),
        (1.0, 1, "1.000000000s", 1),
        (2.5, 1, "0.400000000s", 3),
        (50.0, 3, "0.060000000s", 50),
        (1000.0, 50, "0.050000000s", 1000),
    ],
)
def test_a_bucket_fills_at_exactly_its_rate(rate_per_s, tokens, interval, burst):
    found = bucket(rate_per_s)
    assert found == {"max_tokens": burst, "tokens_per_fill": tokens, "fill_interval": interval}
    assert tokens / float(interval[:-1]) == pytest.approx(rate_per_s)


def test_a_network_that_is_none_is_named():
    with pytest.raises(InputError, match=r"gateway/allow: found '10\.0\.0\.0/33'"):
        render(state(allow=("10.0.0.0/33",)), LAYOUT)


def test_no_network_means_nobody():
    routes = json.loads(render(state(allow=()), LAYOUT)["rds.json"])["resources"][0]
    rules = routes["virtual_hosts"][0]["typed_per_filter_config"]["networks"]["rbac"]["rules"]
    assert rules == {"action": "ALLOW", "policies": {}}

from types import SimpleNamespace

import pytest

from llmdeploy.errors import InputError
from llmdeploy.gateway.change import (
    state_for,
    with_keys,
    with_release,
    with_weights,
    without_release,
)
from llmdeploy.gateway.state import ClientLimit, GatewayRelease, GatewayState, KeyRules
from llmdeploy.release.state import Endpoint
from llmdeploy.service import Gateway

A, B, C = "aaaa", "bbbb", "cccc"


def release(name, port=21000):
    endpoint = Endpoint(replica="0", host="local", address="127.0.0.1", port=port)
    return GatewayRelease(id=name, endpoints=(endpoint,), max_concurrency=8)


def state(*releases):
    found = GatewayState(
        service="chat", host="127.0.0.1", port=8080, allow=("127.0.0.0/8",), key_rate_per_s=50.0,
        public_keys=("{}",), max_queue=64, body_limit_bytes=4096, request_timeout_s=120.0,
    )  # fmt: skip
    for name in releases:
        found = with_release(found, release(name))
    return found


def shares(found):
    return {weight.release: weight.share for weight in found.weights}


def test_a_new_release_has_no_traffic():
    assert with_release(state(), release(A)).weights == ()


def test_a_known_release_gets_new_endpoints_and_keeps_its_weight():
    live = with_weights(state(A), {A: 1.0})
    moved = with_release(live, release(A, port=21008))
    assert moved.releases[0].endpoints[0].port == 21008
    assert shares(moved) == {A: 1.0}


def test_who_had_all_traffic_becomes_the_fallback_of_the_candidate():
    live = with_weights(state(A, B), {A: 1.0})
    assert live.fallback is None
    gray = with_weights(live, {A: 0.95, B: 0.05})
    assert (shares(gray), gray.fallback) == ({A: 0.95, B: 0.05}, A)
    further = with_weights(gray, {A: 0.5, B: 0.5})
    assert further.fallback == A
    promoted = with_weights(further, {B: 1.0})
    assert (shares(promoted), promoted.fallback) == ({B: 1.0}, A)


def test_what_is_rolled_back_from_is_nobodys_fallback():
    promoted = with_weights(with_weights(state(A, B), {A: 1.0}), {B: 1.0})
    back = with_weights(promoted, {A: 1.0})
    assert (shares(back), back.fallback) == ({A: 1.0}, A)


def test_a_promoted_release_is_the_fallback_of_the_next_candidate():
    promoted = with_weights(with_weights(state(A, B), {A: 1.0}), {B: 1.0})
    nxt = with_weights(with_release(promoted, release(C)), {B: 0.95, C: 0.05})
    assert nxt.fallback == B


def test_setting_the_same_weights_again_changes_nothing():
    gray = with_weights(with_weights(state(A, B), {A: 1.0}), {A: 0.5, B: 0.5})
    assert with_weights(gray, {A: 0.5, B: 0.5}) == gray
    live = with_weights(gray, {A: 1.0})
    assert with_weights(live, {A: 1.0}) == live


def test_a_release_without_traffic_can_go_and_is_no_fallback_any_more():
    promoted = with_weights(with_weights(state(A, B), {A: 1.0}), {B: 1.0})
    gone = without_release(promoted, A)
    assert [r.id for r in gone.releases] == [B]
    assert (shares(gone), gone.fallback) == ({B: 1.0}, None)


def test_a_release_with_traffic_cannot_go():
    gray = with_weights(state(A, B), {A: 0.95, B: 0.05})
    with pytest.raises(InputError, match="bbbb has 5% of the traffic, needed 0%"):
        without_release(gray, B)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({A: 0.5, B: 0.4}, "shares sum to 0.9, needed 1"),
        ({C: 1.0}, "weight for release cccc, needed one of aaaa, bbbb"),
        ({A: 1.5, B: -0.5}, "aaaa has share 1.5, needed 0 to 1"),
    ],
)
def test_impossible_weights_are_refused_with_both_numbers(wanted, words):
    with pytest.raises(InputError, match=words):
        with_weights(state(A, B), wanted)


def test_a_plan_with_other_settings_keeps_releases_weights_and_fallback():
    before = with_weights(with_weights(state(A, B), {A: 1.0}), {A: 0.5, B: 0.5})
    serve = SimpleNamespace(request_timeout_s=60.0)
    plan = SimpleNamespace(
        service="chat", gateway=Gateway(max_queue=5), replicas=(SimpleNamespace(serve=serve),)
    )
    rules = KeyRules(public_keys=("{}",), revoked=("1",))
    after = state_for(plan, keys=rules, before=before)
    assert (after.max_queue, after.request_timeout_s, after.revoked) == (5, 60.0, ("1",))
    kept = (after.releases, after.weights, after.fallback)
    assert kept == (before.releases, before.weights, before.fallback)


def test_new_keys_change_nothing_but_the_keys():
    before = with_weights(state(A), {A: 1.0})
    limit = ClientLimit(client="bob", rate_per_s=2.0)
    rules = KeyRules(public_keys=("{}", "[]"), revoked=("9",), client_limits=(limit,))
    after = with_keys(before, rules)
    assert (after.public_keys, after.revoked, after.client_limits) == (
        ("{}", "[]"),
        ("9",),
        (limit,),
    )
    assert with_keys(after, KeyRules(public_keys=("{}",))) == before

"""Changes of the gateway as new states: releases come and go, weights move, keys change."""

import math
from collections.abc import Mapping

from llmdeploy.errors import InputError
from llmdeploy.gateway.state import GatewayRelease, GatewayState, KeyRules, Weight
from llmdeploy.plan.document import Plan

TOLERANCE_RATIO = 1e-6
"""How far shares may be from a sum of 1."""


def state_for(plan: Plan, *, keys: KeyRules, before: GatewayState | None = None) -> GatewayState:
    """The gateway as `plan` wants it: its listener, limits and time-outs, and the keys.

    Releases and weights are those of `before`; the first state of a service has none.
    """
    wanted = plan.gateway
    return GatewayState(
        service=plan.service,
        host=wanted.host,
        port=wanted.port,
        allow=wanted.allow,
        key_rate_per_s=wanted.key_rate_per_s,
        client_limits=keys.client_limits,
        public_keys=keys.public_keys,
        revoked=keys.revoked,
        max_queue=wanted.max_queue,
        body_limit_bytes=wanted.body_limit_bytes,
        request_timeout_s=max(replica.serve.request_timeout_s for replica in plan.replicas),
        tls_certificate=wanted.tls_certificate,
        tls_key=wanted.tls_key,
        releases=before.releases if before else (),
        weights=before.weights if before else (),
        fallback=before.fallback if before else None,
    )


def with_keys(state: GatewayState, keys: KeyRules) -> GatewayState:
    """The state with these signing keys, revocations and limits."""
    return state.model_copy(
        update={
            "public_keys": keys.public_keys,
            "revoked": keys.revoked,
            "client_limits": keys.client_limits,
        }
    )


def with_release(state: GatewayState, release: GatewayRelease) -> GatewayState:
    """The state that knows `release`: health-checked and open to probes, no traffic yet.

    One that is known already gets the new endpoints and keeps its weight.
    """
    known = [r.id for r in state.releases]
    if release.id in known:
        releases = tuple(release if r.id == release.id else r for r in state.releases)
    else:
        releases = (*state.releases, release)
    return state.model_copy(update={"releases": releases})


def without_release(state: GatewayState, release_id: str) -> GatewayState:
    """The state that no longer knows the release; InputError while it has traffic."""
    share = state.share(release_id)
    if share > 0:
        raise InputError(
            f"gateway of {state.service}: release {release_id} has {share:.0%} of the traffic, "
            "needed 0% before it can go",
            fix=f"llmdeploy rollback {state.service}, or verify another release first",
        )
    return state.model_copy(
        update={
            "releases": tuple(r for r in state.releases if r.id != release_id),
            "weights": tuple(w for w in state.weights if w.release != release_id),
            "fallback": None if state.fallback == release_id else state.fallback,
        }
    )


def with_weights(state: GatewayState, shares: Mapping[str, float]) -> GatewayState:
    """The state with these shares (0 to 1, sum 1); releases left out get none.

    Who had all traffic so far becomes the fallback of the others, unless all traffic now goes
    back to the present fallback: what is rolled back from answers for nobody.
    """
    _check(state, shares)
    full = next((w.release for w in state.weights if w.share == 1), None)
    back = shares.get(state.fallback or "", 0) == 1
    moves = full is not None and shares.get(full, 0) != 1
    weights = tuple(
        Weight(release=release.id, share=shares[release.id])
        for release in state.releases
        if shares.get(release.id, 0) > 0
    )
    fallback = full if moves and not back else state.fallback
    return state.model_copy(update={"weights": weights, "fallback": fallback})


def _check(state: GatewayState, shares: Mapping[str, float]) -> None:
    place = f"gateway of {state.service}"
    known = [r.id for r in state.releases]
    for release, share in shares.items():
        if release not in known:
            raise InputError(
                f"{place}: weight for release {release}, needed one of {', '.join(known) or '-'}",
                fix="launch the release first",
            )
        if not 0 <= share <= 1:
            raise InputError(
                f"{place}: release {release} has share {share:g}, needed 0 to 1",
                fix="give shares as numbers between 0 and 1",
            )
    total = math.fsum(shares.values())
    if shares and abs(total - 1) > TOLERANCE_RATIO:
        raise InputError(
            f"{place}: shares sum to {total:g}, needed 1", fix="make the shares sum to 1"
        )

"""Envoy routes: weights, allowed networks, revoked tokens, time-outs and retries."""

import ipaddress
from collections.abc import Sequence

from llmdeploy.errors import InputError
from llmdeploy.gateway.clusters import FIRST, METADATA
from llmdeploy.gateway.state import GatewayState, Weight
from llmdeploy.gateway.xds import Tree, extension, typed

NETWORKS = "networks"
REVOKED = "revoked"
BUFFER = "envoy.filters.http.buffer"
RELEASE_HEADER = "x-llmdeploy-release"
"""In an answer: the release that was picked. On the dark listener, in a request: the one wanted."""
SERVED_HEADER = "x-llmdeploy-served-by"
TOTAL_WEIGHT = 10_000
TOKEN_METADATA = "token"
"""Key under which jwt_authn leaves the verified claims."""


def public_routes(state: GatewayState) -> Tree:
    """Routes of the public listener. Everything that changes while requests run stands here or
    in the filters' own files, never in the listener: changing that would cut long streams."""
    return typed(
        "config.route.v3.RouteConfiguration",
        name="public",
        virtual_hosts=[
            {
                "name": "public",
                "domains": ["*"],
                "request_body_buffer_limit": state.body_limit_bytes,
                "typed_per_filter_config": {
                    NETWORKS: _per_route(_networks(state.allow)),
                    REVOKED: _per_route(_revoked(state.revoked)),
                    BUFFER: body_limit(state.body_limit_bytes),
                },
                "routes": [
                    _says({"path": "/healthz"}, 200, "ok\n"),
                    _api(state),
                    _says({"prefix": "/"}, 404, "no such path; the API is below /v1/"),
                ],
            }
        ],
    )


def dark_routes(state: GatewayState) -> Tree:
    """Routes of the dark listener: the header names the release, which alone answers."""
    return typed(
        "config.route.v3.RouteConfiguration",
        name="dark",
        virtual_hosts=[
            {
                "name": "dark",
                "domains": ["*"],
                "request_body_buffer_limit": state.body_limit_bytes,
                "typed_per_filter_config": {BUFFER: body_limit(state.body_limit_bytes)},
                "routes": [
                    *(_dark(release.id, state) for release in state.releases),
                    _says({"prefix": "/"}, 404, f"{RELEASE_HEADER} names no release"),
                ],
            }
        ],
    )


def parts(weights: Sequence[Weight]) -> tuple[int, ...]:
    """The weights as whole parts of 10,000 that sum exactly to it: largest remainders first."""
    exact = [weight.share * TOTAL_WEIGHT for weight in weights]
    floors = [int(part) for part in exact]
    missing = TOTAL_WEIGHT - sum(floors)
    by_rest = sorted(range(len(exact)), key=lambda i: (floors[i] - exact[i], i))
    return tuple(floor + (i in by_rest[:missing]) for i, floor in enumerate(floors))


def body_limit(limit_bytes: int) -> Tree:
    """The largest request body that is passed on; a larger one is answered 413."""
    return typed(
        "extensions.filters.http.buffer.v3.BufferPerRoute",
        buffer={"max_request_bytes": limit_bytes},
    )


def _api(state: GatewayState) -> Tree:
    if not state.weights:
        return _says({"prefix": "/v1/"}, 503, "no release is live")
    clusters = [
        {
            "name": f"{weight.release}{FIRST}",
            "weight": part,
            "response_headers_to_add": [_header(RELEASE_HEADER, weight.release)],
        }
        for weight, part in zip(state.weights, parts(state.weights), strict=True)
    ]
    return {
        "match": {"prefix": "/v1/"},
        "response_headers_to_add": [_served_by()],
        "route": {
            "weighted_clusters": {"clusters": clusters},
            **_time_outs(state),
            "retry_policy": _retries(),
        },
    }


def _dark(release: str, state: GatewayState) -> Tree:
    wanted = {"name": RELEASE_HEADER, "string_match": {"exact": release}}
    return {
        "match": {"prefix": "/", "headers": [wanted]},
        "response_headers_to_add": [_header(RELEASE_HEADER, release), _served_by()],
        "route": {"cluster": release, **_time_outs(state)},
    }


def _time_outs(state: GatewayState) -> Tree:
    whole = f"{state.request_timeout_s:.3f}s"
    return {"timeout": whole, "idle_timeout": whole}


def _retries() -> Tree:
    """Only before the answer has begun, each time on another replica, then on the fallback.

    `reset` is needed beside `reset-before-request`: a killed engine frees gigabytes of memory
    first and closes its sockets last, and requests sent in that time would fail (8 of 715 with
    3 GB, against 0 of 743).
    """
    return {
        "retry_on": "connect-failure,refused-stream,reset-before-request,reset,"
        "retriable-status-codes",
        "retriable_status_codes": [503],
        "num_retries": 3,
        "retry_priority": extension(
            "envoy.retry_priorities.previous_priorities",
            "extensions.retry.priority.previous_priorities.v3.PreviousPrioritiesConfig",
            update_frequency=1,
        ),
        "retry_back_off": {"base_interval": "0.025s", "max_interval": "0.25s"},
        "host_selection_retry_max_attempts": 5,
        "retry_host_predicate": [
            extension(
                "envoy.retry_host_predicates.previous_hosts",
                "extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate",
            )
        ],
    }


def _per_route(rbac: Tree) -> Tree:
    return typed("extensions.filters.http.rbac.v3.RBACPerRoute", rbac=rbac)


def _networks(allow: Sequence[str]) -> Tree:
    """Only these networks; none means nobody."""
    principals = [{"direct_remote_ip": _cidr(network)} for network in allow]
    policy = {"permissions": [{"any": True}], "principals": principals}
    return {"rules": {"action": "ALLOW", "policies": {"allow": policy} if principals else {}}}


def _cidr(network: str) -> Tree:
    try:
        parsed = ipaddress.ip_network(network, strict=False)
    except ValueError as error:
        raise InputError(
            f"gateway/allow: found {network!r}, needed a network such as 10.0.0.0/8 or ::1/128",
            fix="correct it under gateway, allow in service.yaml and plan again",
        ) from error
    return {"address_prefix": str(parsed.network_address), "prefix_len": parsed.prefixlen}


def _revoked(ids: Sequence[str]) -> Tree:
    if not ids:
        return {}
    principals = [
        {
            "sourced_metadata": {
                "metadata_matcher": {
                    "filter": "envoy.filters.http.jwt_authn",
                    "path": [{"key": TOKEN_METADATA}, {"key": "jti"}],
                    "value": {"string_match": {"exact": token_id}},
                },
                "metadata_source": "DYNAMIC",
            }
        }
        for token_id in ids
    ]
    policy = {"permissions": [{"any": True}], "principals": principals}
    return {"rules": {"action": "DENY", "policies": {"revoked": policy}}}


def _says(match: Tree, status: int, text: str) -> Tree:
    return {
        "match": match,
        "direct_response": {"status": status, "body": {"inline_string": text}},
    }


def _served_by() -> Tree:
    return _header(SERVED_HEADER, f"%UPSTREAM_METADATA({METADATA}:release)%")


def _header(name: str, value: str) -> Tree:
    return {
        "header": {"key": name, "value": value},
        "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
    }

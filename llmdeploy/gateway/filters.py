"""HTTP filters of the gateway: keys, limits, body size, token counts.

Keys and limits are separate files (extension discovery), so that changing them touches no
listener and no route: the buckets of the rate limit live on, and no stream is cut.
"""

import json
import math
from collections.abc import Sequence

from llmdeploy.gateway.access_log import USAGE
from llmdeploy.gateway.replies import RETRY_AFTER
from llmdeploy.gateway.routes import BUFFER, NETWORKS, REVOKED, TOKEN_METADATA
from llmdeploy.gateway.state import GatewayState
from llmdeploy.gateway.xds import Tree, extension, file_source, typed

CLIENT_HEADER = "x-client-id"
ISSUER = "llmdeploy"
CLOCK_SKEW_S = 5
_JWT = "extensions.filters.http.jwt_authn.v3.JwtAuthentication"
_LIMIT = "extensions.filters.http.local_ratelimit.v3.LocalRateLimit"
_UNBOUNDED = {"max_tokens": 1_000_000, "tokens_per_fill": 1_000_000, "fill_interval": "1s"}


def audience(service: str) -> str:
    """Who a token is for: one service."""
    return f"llmdeploy/{service}"


def public_filters(state: GatewayState, *, folder: str) -> list[Tree]:
    """Network, key, revocation, rate, size, in this order; then token counts and the router."""
    return [
        _rbac(NETWORKS),
        _discovered("jwt", f"{folder}/ecds-jwt.json", _JWT),
        _rbac(REVOKED),
        _discovered("limits", f"{folder}/ecds-limits.json", _LIMIT),
        *dark_filters(state),
    ]


def dark_filters(state: GatewayState) -> list[Tree]:
    """Body size, token counts and the router: who reaches the dark socket owns the service."""
    return [
        extension(
            BUFFER,
            "extensions.filters.http.buffer.v3.Buffer",
            max_request_bytes=state.body_limit_bytes,
        ),
        _counts_json(),
        _counts_sse(),
        extension(
            "envoy.filters.http.router",
            "extensions.filters.http.router.v3.Router",
            suppress_envoy_headers=True,
        ),
    ]


def jwt(state: GatewayState) -> Tree:
    """Who is who: tokens of this service signed by one of its keys, verified without any list.

    The verified subject becomes `x-client-id`; the token itself goes no further.
    """
    keys = [json.loads(key) for key in state.public_keys]
    provider = {
        "issuer": ISSUER,
        "audiences": [audience(state.service)],
        "require_expiration": True,
        "clock_skew_seconds": CLOCK_SKEW_S,
        "local_jwks": {"inline_string": json.dumps({"keys": keys}, sort_keys=True)},
        # named, so that a token in the query (and with it in a log) is no key
        "from_headers": [{"name": "Authorization", "value_prefix": "Bearer "}],
        "payload_in_metadata": TOKEN_METADATA,
        "claim_to_headers": [{"header_name": CLIENT_HEADER, "claim_name": "sub"}],
    }
    rules = [
        {"match": {"path": "/healthz"}},
        {"match": {"prefix": "/"}, "requires": {"provider_name": "keys"}},
    ]
    config = typed(_JWT, providers={"keys": provider}, rules=rules)
    return typed("config.core.v3.TypedExtensionConfig", name="jwt", typed_config=config)


def limits(state: GatewayState) -> Tree:
    """Requests per second of each client: its own rate, or the service's for all others."""
    own = [
        {
            "entries": [{"key": "client", "value": limit.client}],
            "token_bucket": bucket(limit.rate_per_s),
        }
        for limit in state.client_limits
    ]
    others = {"entries": [{"key": "client"}], "token_bucket": bucket(state.key_rate_per_s)}
    always = {"default_value": {"numerator": 100, "denominator": "HUNDRED"}}
    by_client = {"header_name": CLIENT_HEADER, "descriptor_key": "client"}
    config = typed(
        _LIMIT,
        stat_prefix="limits",
        token_bucket=_UNBOUNDED,
        filter_enabled=always,
        filter_enforced=always,
        always_consume_default_token_bucket=False,
        max_dynamic_descriptors=10_000,
        enable_x_ratelimit_headers="DRAFT_VERSION_03",
        response_headers_to_add=[RETRY_AFTER],
        rate_limits=[{"actions": [{"request_headers": by_client}]}],
        descriptors=[*own, others],
    )
    return typed("config.core.v3.TypedExtensionConfig", name="limits", typed_config=config)


def bucket(rate_per_s: float) -> Tree:
    """A token bucket of one second's requests, at least one, filled at exactly that rate.

    Envoy fills whole tokens at least 50 ms apart: fast rates get several at once.
    """
    tokens = max(1, math.ceil(rate_per_s * 0.05))
    return {
        "max_tokens": max(1, math.ceil(rate_per_s), tokens),
        "tokens_per_fill": tokens,
        "fill_interval": f"{tokens / rate_per_s:.9f}s",
    }


def _rbac(name: str) -> Tree:
    return extension(name, "extensions.filters.http.rbac.v3.RBAC")


def _discovered(name: str, path: str, message: str) -> Tree:
    urls = [f"type.googleapis.com/envoy.{message}"]
    return {
        "name": name,
        "config_discovery": {"config_source": file_source(path), "type_urls": urls},
    }


def _counts_json() -> Tree:
    """Token counts of whole answers; event streams are not of these content types and pass."""
    return extension(
        "envoy.filters.http.json_to_metadata",
        "extensions.filters.http.json_to_metadata.v3.JsonToMetadata",
        response_rules={
            "rules": _usage_rules(),
            "allow_content_types": ["application/json", "application/json; charset=utf-8"],
        },
    )


def _counts_sse() -> Tree:
    """Token counts of streamed answers, read while they pass; nothing is held back."""
    parser = extension(
        "envoy.content_parsers.json",
        "extensions.content_parsers.json.v3.JsonContentParser",
        rules=[{"rule": rule} for rule in _usage_rules()],
    )
    return extension(
        "envoy.filters.http.sse_to_metadata",
        "extensions.filters.http.sse_to_metadata.v3.SseToMetadata",
        response_rules={"content_parser": parser},
    )


def _usage_rules() -> Sequence[Tree]:
    return [
        {
            "selectors": [{"key": "usage"}, {"key": name}],
            "on_present": {"metadata_namespace": USAGE, "key": name, "type": "NUMBER"},
        }
        for name in ("prompt_tokens", "completion_tokens")
    ]

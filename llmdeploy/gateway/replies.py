"""The gateway's own answers: OpenAI's error JSON, and 429 with Retry-After for a full queue."""

from dataclasses import dataclass

from llmdeploy.gateway.xds import Tree

BODY = "%LOCAL_REPLY_BODY%"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What clients read for one status code; `message` may hold Envoy's access-log operators."""

    status: int
    kind: str
    code: str
    message: str


REPLIES = (
    Reply(
        status=401,
        kind="invalid_request_error",
        code="invalid_api_key",
        message=f"the API key is missing, expired or not valid ({BODY}); "
        "send it as `Authorization: Bearer KEY`",
    ),
    Reply(
        status=403,
        kind="permission_error",
        code="forbidden",
        message="this key is revoked or of another service, or this address may not connect",
    ),
    Reply(status=404, kind="invalid_request_error", code="not_found", message=BODY),
    Reply(
        status=413,
        kind="invalid_request_error",
        code="request_too_large",
        message="the request body is larger than this service accepts",
    ),
    Reply(
        status=429,
        kind="rate_limit_error",
        code="rate_limit_exceeded",
        message="this key has used up its requests per second; try again after Retry-After",
    ),
    Reply(status=503, kind="server_error", code="unavailable", message=BODY),
    Reply(
        status=504,
        kind="server_error",
        code="timeout",
        message="the request took longer than this service allows",
    ),
)
QUEUE_FULL = Reply(
    status=429,
    kind="rate_limit_error",
    code="queue_full",
    message="all places and the queue of this service are taken; try again after Retry-After",
)
OTHER = Reply(status=500, kind="server_error", code="gateway_error", message=BODY)
RETRY_AFTER = {"header": {"key": "retry-after", "value": "1"}}


def replies() -> Tree:
    """Envoy's `local_reply_config`; the first mapper that fits is used."""
    return {
        "body_format": _body(OTHER),
        "mappers": [
            _queue_full(),
            {
                "filter": _status_is(200),
                "body_format_override": {"text_format_source": {"inline_string": BODY}},
            },
            *(
                {"filter": _status_is(reply.status), "body_format_override": _body(reply)}
                for reply in REPLIES
            ),
        ],
    }


def _queue_full() -> Tree:
    return {
        "filter": {"response_flag_filter": {"flags": ["UO"]}},
        "status_code": QUEUE_FULL.status,
        "headers_to_add": [RETRY_AFTER],
        "body_format_override": _body(QUEUE_FULL),
    }


def _body(reply: Reply) -> Tree:
    error = {"message": reply.message, "type": reply.kind, "code": reply.code}
    return {"json_format": {"error": error}}


def _status_is(status: int) -> Tree:
    value = {"default_value": status, "runtime_key": "llmdeploy.none"}
    return {"status_code_filter": {"comparison": {"op": "EQ", "value": value}}}

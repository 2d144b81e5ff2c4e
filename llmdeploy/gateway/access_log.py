"""What the gateway writes down per request: a JSON line, a TTFT histogram and token counters.

Never the text of a prompt, a key or a token: the path stands without its query and cut to a
length in which no signed token fits.
"""

from llmdeploy.gateway.clusters import METADATA
from llmdeploy.gateway.xds import Tree, extension

USAGE = "usage"
"""Namespace in which the token counts of an answer are left by the filters."""
_SERVED_BY = f"%UPSTREAM_METADATA({METADATA}:release)%"
_TTFT = "%COMMON_DURATION(DS_RX_BEG:US_RX_BODY_BEG:{unit})%"


def access_logs(path: str, *, probe: bool) -> list[Tree]:
    """The loggers of a listener; only client traffic is counted in the metrics."""
    file = extension(
        "envoy.access_loggers.file",
        "extensions.access_loggers.file.v3.FileAccessLog",
        path=path,
        log_format={"json_format": _fields(probe)},
    )
    return [file] if probe else [file, _metrics()]


def _fields(probe: bool) -> Tree:
    return {
        "at_s": "%START_TIME(%s.%6f)%",
        "id": "%REQ(X-REQUEST-ID)%",
        "probe": probe,
        "client": "%REQ(X-CLIENT-ID):64%",
        "source": "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
        "method": "%REQ(:METHOD):16%",
        "path": "%PATH(NQ):64%",
        "status": "%RESPONSE_CODE%",
        "details": "%RESPONSE_CODE_DETAILS%",
        "flags": "%RESPONSE_FLAGS%",
        "pick": "%UPSTREAM_CLUSTER_RAW%",
        "served_by": _SERVED_BY,
        "upstream": "%UPSTREAM_HOST%",
        "attempts": "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
        "bytes_in": "%BYTES_RECEIVED%",
        "bytes_out": "%BYTES_SENT%",
        "duration_us": "%COMMON_DURATION(DS_RX_BEG:DS_TX_END:us)%",
        "duration_ms": "%DURATION%",
        "content_type": "%RESP(CONTENT-TYPE):32%",
        "ttft_us": _TTFT.format(unit="us"),
        "user_agent": "%REQ(USER-AGENT):64%",
        "tls": "%DOWNSTREAM_TLS_VERSION%",
        "prompt_tokens": f"%DYNAMIC_METADATA({USAGE}:prompt_tokens)%",
        "completion_tokens": f"%DYNAMIC_METADATA({USAGE}:completion_tokens)%",
    }


def _metrics() -> Tree:
    """`envoy_llmdeploy_*` under /stats/prometheus, for requests with a valid key."""
    served_by = [{"name": "release", "value_format": _SERVED_BY}]
    content_type = {"name": "content_type", "value_format": "%RESP(CONTENT-TYPE):32%"}
    picked = [
        {"name": "pick", "value_format": "%UPSTREAM_CLUSTER_RAW%"},
        *served_by,
        {"name": "client", "value_format": "%REQ(X-CLIENT-ID)%"},
        {"name": "code", "value_format": "%RESPONSE_CODE%"},
        {"name": "flags", "value_format": "%RESPONSE_FLAGS%"},
    ]
    tokens = [
        {
            "stat": {"name": name, "tags": served_by},
            "value_format": f"%DYNAMIC_METADATA({USAGE}:{name})%",
        }
        for name in ("prompt_tokens", "completion_tokens")
    ]
    logger = extension(
        "envoy.access_loggers.stats",
        "extensions.access_loggers.stats.v3.Config",
        stats_scope={"prefix": "llmdeploy"},
        histograms=[
            {
                # the content type tells streamed answers from whole ones
                "stat": {"name": "ttft_ms", "tags": [*served_by, content_type]},
                "unit": "Milliseconds",
                "value_format": _TTFT.format(unit="ms"),
            }
        ],
        counters=[{"stat": {"name": "requests", "tags": picked}, "value_fixed": 1}, *tokens],
    )
    known_client = {"header": {"name": "x-client-id", "present_match": True}}
    return {**logger, "filter": {"header_filter": known_client}}

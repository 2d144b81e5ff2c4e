"""Requests as the gateway saw them: one record per line of the access log."""

import json
from collections.abc import Mapping
from enum import StrEnum

from llmdeploy.document import Document
from llmdeploy.gateway.clusters import FIRST


class Ending(StrEnum):
    """How a request ended, from the client's side."""

    OK = "ok"
    FAILED = "failed"
    """5xx, a reset, or a stream that broke after its first byte."""
    REJECTED = "rejected"
    """4xx: the client's fault or a limit; neither success nor failure of a release."""
    CANCELLED = "cancelled"
    """The client went away: neither success nor failure."""


class RequestRecord(Document):
    """One finished request."""

    id: str
    started_s: float
    """Seconds since 1970, when the gateway got the first byte."""
    release: str
    """The release the gateway picked; failures count for this one."""
    served_by: str | None
    """The release that answered in the end (another after a retry); None where none did."""
    ending: Ending
    status: int
    probe: bool
    """Whether it came through the dark listener: `verify`'s own, counted apart."""
    duration_s: float
    ttft_s: float | None
    """First body byte of a streamed answer after the request's first byte; None where nothing
    was streamed: a whole answer does not show its first token."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None

    @property
    def tpot_s(self) -> float | None:
        """Mean time per output token after the first, seconds; None under two tokens."""
        if self.ttft_s is None or self.completion_tokens is None or self.completion_tokens < 2:
            return None
        return max(0.0, self.duration_s - self.ttft_s) / (self.completion_tokens - 1)


CLIENT_LEFT = frozenset({"DC", "DR", "DPE"})
"""Envoy's flags: the client's connection ended, its stream was reset, it broke the protocol."""
BROKEN = frozenset({"UC", "UF", "UH", "UT", "UR", "URX", "UPE", "LR", "LH", "SI", "DT", "NC", "OM"})
"""Envoy's flags: a release could not be reached, fell silent, or broke off. A stream that breaks
after its headers has status 200, so that only these tell it from a whole one."""


def parse_access_line(line: str) -> RequestRecord | None:
    """The record in a line; None where it is no request that was meant for a release (health
    questions, unknown paths, no live release) or no whole line."""
    try:
        fields = json.loads(line)
        return _record(fields) if fields.get("pick") else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def ending(*, status: int, flags: frozenset[str]) -> Ending:
    """How a request with this status and these flags ended."""
    if status >= 500:
        return Ending.FAILED
    if flags & CLIENT_LEFT:
        return Ending.CANCELLED
    if flags & BROKEN or status == 0:
        return Ending.FAILED
    return Ending.REJECTED if status >= 400 else Ending.OK


def _record(fields: Mapping[str, object]) -> RequestRecord:
    status = _number(fields, "status") or 0
    duration_us = _number(fields, "duration_us")
    duration_ms = _number(fields, "duration_ms") or 0
    ttft_us = _number(fields, "ttft_us")
    streamed = str(fields.get("content_type") or "").startswith("text/event-stream")
    flags = frozenset(str(fields["flags"]).split(",")) - {"-"}
    reached = fields.get("attempts") and not flags & {"UF", "UH", "NC"}
    answered = ttft_us is not None or str(fields["details"]).startswith("via_upstream")
    served_by = fields.get("served_by") if reached and answered else None
    return RequestRecord(
        id=str(fields["id"]),
        started_s=float(str(fields["at_s"])),
        release=str(fields["pick"]).removesuffix(FIRST),
        served_by=str(served_by) if served_by else None,
        ending=ending(status=int(status), flags=flags),
        status=int(status),
        probe=fields["probe"] is True,
        duration_s=duration_us / 1e6 if duration_us is not None else duration_ms / 1e3,
        ttft_s=ttft_us / 1e6 if ttft_us is not None and streamed else None,
        prompt_tokens=_count(fields, "prompt_tokens"),
        completion_tokens=_count(fields, "completion_tokens"),
    )


def _number(fields: Mapping[str, object], name: str) -> float | None:
    value = fields.get(name)
    return None if value is None else float(str(value))


def _count(fields: Mapping[str, object], name: str) -> int | None:
    value = _number(fields, name)
    return None if value is None else int(value)

"""Waits while engines climb: communication group, weights, KV cache, ready; or says why not."""

from collections.abc import Callable
from dataclasses import dataclass

from llmdeploy.edge import Http
from llmdeploy.errors import Refused, Unreachable
from llmdeploy.release.failure import Reason, first_cause
from llmdeploy.release.site import Site
from llmdeploy.release.state import Endpoint, Phase
from llmdeploy.units import show_seconds

RANKS = ("starting", "comm_ready", "loaded", "kv_ready", "ready")
"""What an engine's /ready calls its phases, in their order."""
POLL_S = 0.25
_ANSWER_TIMEOUT_S = 5.0
_WATCH_S = 1.0
"""How often the supervisor is asked while the engine answers; at each poll while it does not."""
_FLOOR_S = {Phase.COMM_READY: 240.0, Phase.LOADED: 180.0, Phase.KV_READY: 120.0}
"""Importing torch took 4 s on an idle core and 88 s on a crowded one: the floors are a multiple."""
READY_TIMEOUT_S = 240.0
"""From KV cache to the engine's own first answer."""
SLOWEST_LOAD_BYTES_PER_S = 20e6
"""Below a busy network disk; a slower one is a fault worth stopping for."""
_LOG_LIMIT_BYTES = 2**22


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """An engine's answer at /ready."""

    phase: str
    kv_cache_tokens: int
    weights_bytes: int
    error: str | None
    fix: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """One replica that is being started."""

    endpoint: Endpoint
    program: str
    log_path: str
    restarts: int
    """Of its program when the watch began: more of them mean that it died."""


def timeouts_s(weights_bytes: int) -> dict[Phase, float]:
    """Longest time for each phase, in seconds: a generous floor, plus reading the weights."""
    reading_s = weights_bytes / SLOWEST_LOAD_BYTES_PER_S
    return {**_FLOOR_S, Phase.LOADED: _FLOOR_S[Phase.LOADED] + reading_s}


def ask(endpoint: Endpoint, *, http: Http) -> Told | None:
    """What the engine tells of itself; None while it does not answer."""
    url = f"http://{endpoint.address}:{endpoint.port}/ready"
    try:
        body = http.request("GET", url, timeout_s=_ANSWER_TIMEOUT_S).json()
    except Unreachable:
        return None
    if not isinstance(body, dict):
        return None
    return Told(
        phase=str(body.get("phase")),
        kv_cache_tokens=int(body.get("kv_cache_tokens") or 0),
        weights_bytes=int(body.get("weights_bytes") or 0),
        error=body.get("error"),
        fix=body.get("fix"),
    )


def wait(
    wanted: str,
    watched: tuple[Watched, ...],
    *,
    timeout_s: float,
    diagnose: Callable[[str], str | None],
    site: Site,
) -> tuple[Told, ...]:
    """What each replica told once all have come to `wanted` (one of RANKS).

    Refused with the first cause as soon as one replica fails or dies, or past `timeout_s`.
    """
    began_s = site.clock.monotonic_s()
    watch_s = began_s
    while True:
        told = tuple(ask(replica.endpoint, http=site.http) for replica in watched)
        look = None in told or site.clock.monotonic_s() >= watch_s
        for replica, answer in zip(watched, told, strict=True):
            _check(replica, answer, look=look, diagnose=diagnose, site=site)
        if look:
            watch_s = site.clock.monotonic_s() + _WATCH_S
        there = tuple(t for t in told if t and RANKS.index(t.phase) >= RANKS.index(wanted))
        if len(there) == len(watched):
            return there
        if site.clock.monotonic_s() - began_s > timeout_s:
            raise _late(wanted, watched, told, timeout_s=timeout_s, diagnose=diagnose, site=site)
        site.clock.sleep(POLL_S)


def failed(
    replica: Watched,
    *,
    stated: Reason | None,
    ended: str | None,
    diagnose: Callable[[str], str | None],
    site: Site,
) -> Refused:
    """The error with the first cause of a replica's failure."""
    log = site.shell.read_from(replica.log_path, offset_bytes=0, limit_bytes=_LOG_LIMIT_BYTES)
    text = log.decode(errors="replace")
    reason = first_cause(text, stated=stated, ended=ended, diagnose=diagnose)
    return Refused(f"{replica.program}: {reason.what} (log: {replica.log_path})", fix=reason.fix)


def _check(
    replica: Watched,
    told: Told | None,
    *,
    look: bool,
    diagnose: Callable[[str], str | None],
    site: Site,
) -> None:
    """Refused when the replica says that it failed, or is gone or was started again."""
    if told is not None and (told.error or told.phase not in RANKS):
        what = told.error or f"the engine is {told.phase}, needed one that starts"
        stated = Reason(what=what, fix=told.fix or "launch again") if told.error else None
        ended = None if told.error else what
        raise failed(replica, stated=stated, ended=ended, diagnose=diagnose, site=site)
    if not look:
        return
    state = site.supervisor.state(replica.program)
    if not state.running or state.restarts > replica.restarts:
        ended = state.exit or "no longer there"
        raise failed(replica, stated=None, ended=ended, diagnose=diagnose, site=site)


def _late(
    wanted: str,
    watched: tuple[Watched, ...],
    told: tuple[Told | None, ...],
    *,
    timeout_s: float,
    diagnose: Callable[[str], str | None],
    site: Site,
) -> Refused:
    phases = [t.phase if t else "no answer" for t in told]
    slow = next(
        i for i, phase in enumerate(phases)
        if phase not in RANKS or RANKS.index(phase) < RANKS.index(wanted)
    )  # fmt: skip
    error = failed(watched[slow], stated=None, ended=None, diagnose=diagnose, site=site)
    return Refused(
        f"{watched[slow].program}: found {phases[slow]} after {show_seconds(timeout_s)}, needed "
        f"{wanted}; {error}",
        fix=error.fix,
    )

"""Hard guards of a gray step: signs that no statistics are needed for."""

from collections.abc import Sequence
from dataclasses import dataclass

from llmdeploy.errors import Unreachable
from llmdeploy.observe.engine import engine_sample
from llmdeploy.observe.signatures import Kind, Severity, causes
from llmdeploy.release.processes import processes
from llmdeploy.release.site import Site
from llmdeploy.release.state import ReleaseState
from llmdeploy.rollout.targets import engine_logs, engine_urls
from llmdeploy.units import show_seconds

ANSWER_TIMEOUT_S = 5.0
"""How long an engine may take for its own health page. Source: own choice, far above a step."""

SICK_LOOKS = 2
"""Looks in a row with a bad health page. Source: own choice: one can be a slow moment."""

FROZEN_S = 30.0
"""How long the token counter may stand still while requests run.

Source: release_judging notes: three looks of 10 s; a long prefill on one core takes seconds."""

GUARDED = (Kind.MEMORY, Kind.COMMUNICATION, Kind.DEVICE)
"""Kinds of log lines that roll back at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vital:
    """A release's engines at one moment."""

    at_s: float
    """Monotonic."""
    pids: str
    """Process ids of all replicas, comma-separated; `-` for one that does not run."""
    ended: str | None
    """How the last process ended, None where none did."""
    healthy: bool
    running: int | None
    """Requests being generated; None where the engine does not tell."""
    generated_tokens: int | None


def pids_of(release: ReleaseState, *, site: Site) -> str:
    """Process ids of the release's engines as the supervisor has them."""
    return _processes(release, site)[0]


def vital(release: ReleaseState, *, site: Site) -> Vital:
    """The release's engines now; an engine that does not answer is not healthy."""
    pids, ended = _processes(release, site)
    healthy, running, tokens = True, 0, 0
    told = True
    for url in engine_urls(release):
        try:
            page = site.http.request("GET", f"{url}/health", timeout_s=ANSWER_TIMEOUT_S)
            healthy = healthy and page.status == 200
            text = site.http.request("GET", f"{url}/metrics", timeout_s=ANSWER_TIMEOUT_S)
            sample = engine_sample(text.body.decode(errors="replace"))
            running, tokens = running + sample.running, tokens + sample.generated_tokens
        except Unreachable:
            healthy = told = False
    return Vital(
        at_s=site.clock.monotonic_s(),
        pids=pids,
        ended=ended,
        healthy=healthy,
        running=running if told else None,
        generated_tokens=tokens if told else None,
    )


def harm(vitals: Sequence[Vital], *, accepted_pids: str) -> str | None:
    """What is wrong in the newest of `vitals` (oldest first), in words; None where nothing is."""
    now = vitals[-1]
    if "-" in now.pids.split(","):
        return f"an engine process is gone ({now.ended or 'no exit code'}), needed it running"
    if now.pids != accepted_pids:
        return (
            f"an engine process was started again ({now.ended or 'no exit code'}): processes "
            f"{now.pids}, accepted were {accepted_pids}"
        )
    if len(vitals) >= SICK_LOOKS and not any(v.healthy for v in vitals[-SICK_LOOKS:]):
        return f"the engine's health page failed {SICK_LOOKS} times in a row, needed 200"
    frozen_s = frozen_for_s(vitals)
    if frozen_s >= FROZEN_S:
        return (
            f"{now.running} requests run and no token came for {show_seconds(frozen_s)}, "
            f"at most {show_seconds(FROZEN_S)} allowed"
        )
    return None


def frozen_for_s(vitals: Sequence[Vital]) -> float:
    """Seconds the token counter has stood still while requests ran all the time, up to now."""
    now = vitals[-1]
    since_s = now.at_s
    for one in reversed(vitals):
        if not one.running or one.generated_tokens != now.generated_tokens:
            break
        since_s = one.at_s
    return now.at_s - since_s


def log_ends(release: ReleaseState, *, site: Site) -> dict[str, int]:
    """Bytes in each engine log now: what comes later is the step's."""
    return {path: len(site.shell.read(path) or b"") for path in engine_logs(release, site=site)}


def log_harm(ends: dict[str, int], *, site: Site) -> str | None:
    """A line of memory, communication or device failure since `ends`, which are moved on."""
    for path, end in ends.items():
        fresh = site.shell.read_from(path, offset_bytes=end)
        whole = fresh[: fresh.rfind(b"\n") + 1]
        ends[path] = end + len(whole)
        for cause in causes(whole.decode(errors="replace")):
            signature = cause.signature
            if signature.severity == Severity.FATAL and signature.kind in GUARDED:
                return f"{signature.cause}: {path}: {cause.line[:160]}"
    return None


def _processes(release: ReleaseState, site: Site) -> tuple[str, str | None]:
    states = [one.state for one in processes(release, site=site)]
    pids = ",".join(str(s.pid) if s.running and s.pid else "-" for s in states)
    return pids, next((s.exit for s in states if s.exit), None)

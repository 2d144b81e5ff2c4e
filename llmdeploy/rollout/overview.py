"""A service at a glance: releases, weights, health, key figures, who acts on it, what to do."""

from collections.abc import Sequence

from llmdeploy.document import Document
from llmdeploy.errors import LlmDeployError
from llmdeploy.gateway.apply import accepted_state, read_state
from llmdeploy.gateway.state import Weight
from llmdeploy.observe.access_log import read_requests
from llmdeploy.observe.engine import EngineSample, engine_sample
from llmdeploy.observe.requests import Ending, RequestRecord
from llmdeploy.release import journal, lock, room
from llmdeploy.release.processes import processes
from llmdeploy.release.site import Site
from llmdeploy.release.state import Endpoint, Phase, ReleaseState, ServiceState, Standing
from llmdeploy.release.supervise import GATEWAY
from llmdeploy.rollout.position import position
from llmdeploy.rollout.targets import engine_urls
from llmdeploy.units import show_ratio, show_seconds

WINDOW_S = 300.0
"""The key figures are of the requests that began in the last five minutes."""
ASK_TIMEOUT_S = 2.0


class Process(Document):
    """One engine process as the supervisor has it."""

    replica: str
    running: bool
    pid: int | None
    restarts: int
    memory_bytes: int | None = None
    """Of its host, its own alone; None where it does not run or the host does not tell."""
    device_memory_bytes: int | None = None
    """Of all its cards."""


class Traffic(Document):
    """Clients' requests of one release within the window; probes are not among them."""

    requests: int
    """Ended well or failed; cancelled and rejected ones apart."""
    failed: int
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    tpot_p50_s: float | None
    output_tokens_per_s: float


class EngineNow(Document):
    """A release's engines at this moment, all endpoints together."""

    running: int
    waiting: int
    kv_used_ratio: float
    """The fullest endpoint's."""


class ReleaseView(Document):
    """One release."""

    id: str
    phase: Phase
    standing: Standing
    share: float
    endpoints: tuple[Endpoint, ...]
    processes: tuple[Process, ...]
    healthy: bool | None
    """Whether all its engines answer 200; None where it does not run."""
    traffic: Traffic
    engine: EngineNow | None


class Overview(Document):
    """One service."""

    service: str
    gateway_running: bool
    address: str | None
    weights: tuple[Weight, ...]
    weights_confirmed: bool
    """Whether the gateway confirmed the weights as they are; if not, the next command repairs."""
    releases: tuple[ReleaseView, ...]
    """Oldest first."""
    locked_by: str | None
    hints: tuple[str, ...]


def overview(*, site: Site) -> Overview:
    """The service now; changes nothing."""
    state = journal.state(site.layout, shell=site.shell)
    gateway = read_state(site.layout, site.shell)
    busy = (lock.read(path, shell=site.shell, clock=site.clock)
            for path in (site.layout.lock, site.layout.verify_lock))  # fmt: skip
    now_s = site.clock.now_s()
    records = read_requests(site.layout, since_s=now_s - WINDOW_S, shell=site.shell)
    views = tuple(
        _view(release, gateway.share(release.id) if gateway else 0.0, records, site)
        for release in state.releases
    )
    running = bool(state.releases) and site.supervisor.state(GATEWAY).running
    return Overview(
        service=site.service,
        gateway_running=running,
        address=f"{gateway.host}:{gateway.port}" if gateway else None,
        weights=gateway.weights if gateway else (),
        weights_confirmed=gateway == accepted_state(site.layout, site.shell),
        releases=views,
        locked_by="; ".join(_holder(held, now_s) for held in busy if held) or None,
        hints=_hints(state, views, running, site),
    )


def traffic(records: Sequence[RequestRecord], release_id: str, *, window_s: float) -> Traffic:
    """The release's share of what clients asked."""
    mine = [r for r in records if r.release == release_id and not r.probe]
    good = [r for r in mine if r.ending == Ending.OK]
    failed = sum(r.ending == Ending.FAILED for r in mine)
    ttfts = [r.ttft_s for r in good if r.ttft_s is not None]
    tpots = [r.tpot_s for r in good if r.tpot_s is not None]
    return Traffic(
        requests=len(good) + failed,
        failed=failed,
        ttft_p50_s=quantile(ttfts, 0.5),
        ttft_p95_s=quantile(ttfts, 0.95),
        tpot_p50_s=quantile(tpots, 0.5),
        output_tokens_per_s=sum(r.completion_tokens or 0 for r in mine) / window_s,
    )


def quantile(values: Sequence[float], share: float) -> float | None:
    """The nearest-rank quantile; None without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def _view(
    release: ReleaseState, share: float, records: Sequence[RequestRecord], site: Site
) -> ReleaseView:
    alive = release.phase not in room.GONE
    samples = _engines(release, site) if alive else []
    return ReleaseView(
        id=release.id,
        phase=release.phase,
        standing=release.standing,
        share=share,
        endpoints=release.endpoints,
        processes=_processes(release, site) if alive else (),
        healthy=_healthy(release, site) if alive else None,
        traffic=traffic(records, release.id, window_s=WINDOW_S),
        engine=_together(samples) if samples else None,
    )


def _processes(release: ReleaseState, site: Site) -> tuple[Process, ...]:
    return tuple(
        Process(
            replica=one.name,
            running=one.state.running,
            pid=one.state.pid,
            restarts=one.state.restarts,
            memory_bytes=one.held.memory_bytes if one.held else None,
            device_memory_bytes=one.held.device_memory_bytes if one.held else None,
        )
        for one in processes(release, site=site)
    )


def _healthy(release: ReleaseState, site: Site) -> bool:
    try:
        return all(
            site.http.request("GET", f"{url}/health", timeout_s=ASK_TIMEOUT_S).status == 200
            for url in engine_urls(release)
        )
    except LlmDeployError:
        return False


def _engines(release: ReleaseState, site: Site) -> list[EngineSample]:
    try:
        pages = [
            site.http.request("GET", f"{url}/metrics", timeout_s=ASK_TIMEOUT_S)
            for url in engine_urls(release)
        ]
        return [engine_sample(page.body.decode(errors="replace")) for page in pages]
    except LlmDeployError:
        return []


def _together(samples: Sequence[EngineSample]) -> EngineNow:
    return EngineNow(
        running=sum(s.running for s in samples),
        waiting=sum(s.waiting for s in samples),
        kv_used_ratio=max(s.kv_used_ratio for s in samples),
    )


def _holder(held: lock.Lock, now_s: float) -> str:
    return f"{held.holder} for {show_seconds(held.held_s(now_s))}: {held.reason}"


def _hints(
    state: ServiceState, views: Sequence[ReleaseView], gateway_running: bool, site: Site
) -> tuple[str, ...]:
    hints = []
    entries = journal.read(site.layout, site.shell)
    for release in state.releases:
        place = position(entries, release.id)
        if release.standing != Standing.CANDIDATE or release.phase != Phase.PROBED:
            continue
        if place.step or place.intended:
            share = (place.intended or place.step or place.steps[-1]).share
            hints.append(
                f"release {release.id} is at its step of {show_ratio(share)}: where no verify "
                f"runs, `llmdeploy verify {site.service}` goes on with it"
            )
        else:
            hints.append(f"release {release.id} is dark: llmdeploy verify {site.service}")
    alive = [v for v in views if v.healthy is not None]
    if alive and not gateway_running:
        live = [v for v in alive if v.standing == Standing.LIVE]
        which, view = ("live", live[-1]) if live else ("newest", alive[-1])
        hints.append(
            f"the gateway does not run: launch the {which} release again: "
            f"{site.launch_command(view.id)}"
        )
    dead = [v.id for v in views if v.processes and not all(p.running for p in v.processes)]
    hints.extend(f"release {name} has a dead process: llmdeploy logs {site.service} "
                 f"--release {name}" for name in dead)  # fmt: skip
    return tuple(hints)

"""The way up of a release on a cluster: staged, started, group, weights, KV cache, warm, proven."""

import secrets
from collections.abc import Mapping
from concurrent.futures import Future

from llmdeploy.backends.progress import Progress
from llmdeploy.errors import Refused, Unreachable
from llmdeploy.plan.document import Plan
from llmdeploy.release import (
    aboard,
    checks,
    climb,
    device_memory,
    group_proof,
    groups,
    host_environment,
    opened,
    transfer,
    warm,
)
from llmdeploy.release.evidence import Diary
from llmdeploy.release.group_climb import Watch
from llmdeploy.release.group_silence import SILENCE_S
from llmdeploy.release.groups import Rank, Start
from llmdeploy.release.host_environment import Environment
from llmdeploy.release.site import Orders, Site, Station
from llmdeploy.release.state import Phase, ReleaseState
from llmdeploy.release.together import beside, together
from llmdeploy.store import Model
from llmdeploy.units import show_bytes, show_seconds

_WAITS = ((Phase.COMM_READY, "comm_ready"), (Phase.LOADED, "loaded"), (Phase.KV_READY, "kv_ready"))
_LOWEST_KV_RATIO = 0.9
"""Of the plan's promise; engines round to blocks, and the promise is a prediction.

Source: own choice: KV tokens are foretold within 10 % for nine launches of ten
(`python -m tests.accuracy.memory`)."""


def ascend(plan: Plan, release: ReleaseState, orders: Orders, *, diary: Diary, site: Site) -> None:
    """Brings a planned release up to PROBED; each phase is journaled with its evidence."""
    model = checks.model_of(plan, shell=site.shell)
    ranks = groups.ranks(plan, port_block=release.port_block, site=site)
    running = all(rank.station.supervisor.state(rank.program).running for rank in ranks)
    there = {} if running else host_environment.check(ranks)
    folders, proven = _prepared(model, ranks, there, orders=orders, site=site)
    folders = opened.open_on(
        model, folders, orders.key, release_id=plan.id, stations=_stations(ranks)
    )
    diary.reached(Phase.STAGED, {"weights": show_bytes(model.manifest.weights_bytes), **proven})
    if not running:
        device_memory.note(plan, site=site)
        _start(plan, ranks, folders, there)
    diary.reached(Phase.STARTED, {rank.place: str(rank.ports.http) for rank in ranks})
    watch = Watch(ranks, orders, site)
    timeouts_s = _timeouts_s(plan, model.manifest.weights_bytes)
    silences_s = _silences_s(plan, model.manifest.weights_bytes)
    for phase, word in _WAITS:
        told = watch.wait(word, timeout_s=timeouts_s[phase], silence_s=silences_s[phase])
        if phase == Phase.KV_READY:
            _check_kv(plan, watch.heads, told)
        diary.reached(phase, _seen(plan, watch.heads, told, phase))
    watch.wait_answers(timeout_s=climb.READY_TIMEOUT_S)
    try:
        _prove(plan, watch.heads, release, diary=diary, site=site)
    except (Refused, Unreachable):  # an engine that dies of a request has said more in its log
        watch.look()
        raise


def _timeouts_s(plan: Plan, weights_bytes: int) -> dict[Phase, float]:
    """As on one host, but for the group: its keepers meet, then its engines, and each may take the
    group's start time-out."""
    return {**climb.timeouts_s(weights_bytes), Phase.COMM_READY: 2 * _patience_s(plan)}


def _silences_s(plan: Plan, weights_bytes: int) -> dict[Phase, float]:
    """How long a rank may log nothing: they wait for each other, and read weights, in silence."""
    reading_s = weights_bytes / climb.SLOWEST_LOAD_BYTES_PER_S
    return {
        Phase.COMM_READY: max(SILENCE_S, _patience_s(plan)),
        Phase.LOADED: SILENCE_S + reading_s,
        Phase.KV_READY: SILENCE_S,
    }


def _patience_s(plan: Plan) -> float:
    return max(r.serve.group.start_timeout_s for r in plan.replicas if r.serve.group)


def _prepared(
    model: Model,
    ranks: tuple[Rank, ...],
    there: Mapping[str, Environment],
    *,
    orders: Orders,
    site: Site,
) -> tuple[dict[str, str], dict[str, str]]:
    """By host the model's folder; by replica how its hosts summed together while it was copied.

    Nothing is there about hosts whose ranks run already: they use the port that a proof would.
    """

    def prove() -> dict[str, str]:
        if not there:
            return {}
        return group_proof.prove(ranks, there, report=orders.report, clock=site.clock)

    with beside(prove) as proving:
        folders = transfer.bring(
            model,
            _stations(ranks),
            report=orders.report,
            go_on=lambda: _raise_failed(proving),
            here=site.shell,
            clock=site.clock,
        )
        return folders, proving.result()


def _raise_failed(proving: "Future[dict[str, str]]") -> None:
    if proving.done():
        proving.result()


def _start(
    plan: Plan,
    ranks: tuple[Rank, ...],
    folders: dict[str, str],
    there: Mapping[str, Environment],
) -> None:
    """Every rank's keeper runs; each with a log of its own start."""
    stations = _stations(ranks)
    content = aboard.archive()
    paths = together(lambda station: aboard.bring(station, content), stations)
    start = Start(
        token=secrets.token_hex(32),
        keeper_paths=tuple(zip((station.name for station in stations), paths, strict=True)),
        model_folders=tuple(folders.items()),
        interfaces=tuple((host, one.interface) for host, one in there.items()),
    )

    def start_on(station: Station) -> None:
        for rank in ranks:
            if rank.station is station:
                _start_one(plan, rank, start)

    together(start_on, stations)


def _start_one(plan: Plan, rank: Rank, start: Start) -> None:
    shell = rank.station.shell
    for path in (rank.log_path, rank.events_path):
        shell.run(("mv", "-f", path, f"{path}.1"), timeout_s=10)
    rank.station.supervisor.stop(rank.program)
    shell.write(rank.spec_path, groups.spec(rank, plan, start), mode=0o600)
    rank.station.supervisor.start(groups.program(rank, plan, start))


def _prove(
    plan: Plan, heads: tuple[Rank, ...], release: ReleaseState, *, diary: Diary, site: Site
) -> None:
    """Warm-up requests on every replica, then a real completion from each."""
    pairs = tuple(zip(heads, release.endpoints, strict=True))
    warmed = [warm.warm(plan, rank.replica, at, http=site.http) for rank, at in pairs]
    diary.reached(Phase.WARM, {"requests": str(sum(warmed))})
    answers = [warm.probe(rank.replica, at, http=site.http) for rank, at in pairs]
    fewest = min(answers, key=lambda answer: answer.completion_tokens)
    diary.reached(Phase.PROBED, {"completion_tokens": str(fewest.completion_tokens)})


def _check_kv(plan: Plan, heads: tuple[Rank, ...], told: tuple[Progress, ...]) -> None:
    needed_tokens = plan.promises.kv_cache_tokens
    for head, answer in zip(heads, told, strict=True):
        found_tokens = answer.kv_cache_tokens
        if found_tokens is not None and found_tokens < _LOWEST_KV_RATIO * needed_tokens:
            raise Refused(
                f"{head.place}: the engine has {found_tokens} tokens of KV cache, the plan "
                f"promised {needed_tokens}",
                fix="plan again with the hosts' facts (llmdeploy preflight --out, then plan "
                "--facts), or lower engine.memory_ratio's other users on the devices",
            )


def _seen(
    plan: Plan, heads: tuple[Rank, ...], told: tuple[Progress, ...], phase: Phase
) -> dict[str, str]:
    """Evidence in words: what each head's log told."""
    seen = {}
    for head, answer in zip(heads, told, strict=True):
        words = [answer.phase or "no sign"]
        if phase == Phase.LOADED and answer.load_s is not None:
            words.append(f"weights read in {show_seconds(answer.load_s)}")
        if phase == Phase.KV_READY and answer.kv_cache_tokens is not None:
            promised = plan.promises.kv_cache_tokens
            words.append(f"{answer.kv_cache_tokens} KV tokens of {promised} promised")
        seen[head.replica.name] = ", ".join(words)
    return seen


def _stations(ranks: tuple[Rank, ...]) -> tuple[Station, ...]:
    """The hosts of the ranks, each once."""
    return tuple({rank.station.name: rank.station for rank in ranks}.values())

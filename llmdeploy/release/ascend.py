"""The way up of one release: staged, started, group, weights, KV cache, warm, proven."""

from collections.abc import Callable

from llmdeploy.errors import Refused, Unreachable
from llmdeploy.plan.document import Plan
from llmdeploy.release import checks, climb, device_memory, opened, stage, warm
from llmdeploy.release.climb import Told, Watched
from llmdeploy.release.evidence import Diary
from llmdeploy.release.site import Orders, Site
from llmdeploy.release.state import Phase, ReleaseState
from llmdeploy.release.supervise import Program
from llmdeploy.units import show_bytes

_WAITS = ((Phase.COMM_READY, "comm_ready"), (Phase.LOADED, "loaded"), (Phase.KV_READY, "kv_ready"))
_AFTERMATH_S = 10.0

Diagnose = Callable[[str], str | None]


def ascend(plan: Plan, release: ReleaseState, orders: Orders, *, diary: Diary, site: Site) -> None:
    """Brings a planned release up to PROBED; each phase is journaled with its evidence."""
    model, diagnose = checks.model_of(plan, shell=site.shell), orders.diagnose
    folder = opened.open_here(model, orders.key, plan.id, python=site.python, shell=site.shell)
    programs = stage.programs(
        plan,
        core_slot=release.core_slot,
        endpoints=release.endpoints,
        model_folder=folder,
        python=site.python,
        layout=site.layout,
    )
    diary.reached(Phase.STAGED, {"weights": show_bytes(model.manifest.weights_bytes)})
    if not any(site.supervisor.state(program.name).running for program in programs):
        device_memory.note(plan, site=site)
    watched = _start(programs, release, site)
    diary.reached(Phase.STARTED, {w.program: str(w.endpoint.port) for w in watched})
    timeouts_s = climb.timeouts_s(model.manifest.weights_bytes)
    for phase, word in _WAITS:
        told = climb.wait(word, watched, timeout_s=timeouts_s[phase], diagnose=diagnose, site=site)
        if phase == Phase.KV_READY:
            _check_kv(plan, watched, told)
        diary.reached(phase, _seen(watched, told))
    climb.wait("ready", watched, timeout_s=climb.READY_TIMEOUT_S, diagnose=diagnose, site=site)
    try:
        _prove(plan, watched, diary=diary, site=site)
    except Unreachable as error:  # an engine that dies of a request has said more in its log
        climb.wait("ready", watched, timeout_s=_AFTERMATH_S, diagnose=diagnose, site=site)
        raise error


def _start(programs: tuple[Program, ...], release: ReleaseState, site: Site) -> tuple[Watched, ...]:
    """The programs run, each with a log of its own start; those that run already stay."""
    watched = []
    for program, endpoint in zip(programs, release.endpoints, strict=True):
        before = site.supervisor.state(program.name)
        if not before.running:
            site.shell.run(("mv", "-f", program.log_path, f"{program.log_path}.1"), timeout_s=10)
        site.supervisor.start(program)
        watched.append(
            Watched(
                endpoint=endpoint,
                program=program.name,
                log_path=program.log_path,
                restarts=before.restarts if before.running else 0,
            )
        )
    return tuple(watched)


def _prove(plan: Plan, watched: tuple[Watched, ...], *, diary: Diary, site: Site) -> None:
    """Warm-up requests on every replica, then a real completion from each."""
    pairs = tuple(zip(plan.replicas, watched, strict=True))
    warmed = [warm.warm(plan, replica, w.endpoint, http=site.http) for replica, w in pairs]
    diary.reached(Phase.WARM, {"requests": str(sum(warmed))})
    answers = [warm.probe(replica, w.endpoint, http=site.http) for replica, w in pairs]
    fewest = min(answers, key=lambda answer: answer.completion_tokens)
    diary.reached(Phase.PROBED, {"completion_tokens": str(fewest.completion_tokens)})


def _check_kv(plan: Plan, watched: tuple[Watched, ...], told: tuple[Told, ...]) -> None:
    needed_tokens = plan.promises.kv_cache_tokens
    for replica, answer in zip(watched, told, strict=True):
        if answer.kv_cache_tokens < needed_tokens:
            raise Refused(
                f"{replica.program}: the engine has {answer.kv_cache_tokens} tokens of KV cache, "
                f"the plan promised {needed_tokens}",
                fix="plan again on this host, then launch the new plan",
            )


def _seen(watched: tuple[Watched, ...], told: tuple[Told, ...]) -> dict[str, str]:
    """Evidence in words: what each replica told, numbers only once it has them."""
    seen = {}
    for replica, answer in zip(watched, told, strict=True):
        words = [answer.phase]
        words += [f"{answer.weights_bytes} B of weights"] if answer.weights_bytes else []
        words += [f"{answer.kv_cache_tokens} KV tokens"] if answer.kv_cache_tokens else []
        seen[replica.endpoint.replica] = ", ".join(words)
    return seen

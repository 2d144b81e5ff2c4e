"""What `doctor` looks at: words and log files, a facts bundle, a running service."""

import os
import pathlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from llmdeploy.cli.asking import ask_hosts
from llmdeploy.cli.context import GATEWAY_HOST, service_site
from llmdeploy.cli.loading import Loaded, load_hosts, read
from llmdeploy.cli.stations import remembered
from llmdeploy.doctor import Log, named
from llmdeploy.doctor.facts import judged, shift_s
from llmdeploy.doctor.live import look
from llmdeploy.doctor.live_checks import findings
from llmdeploy.doctor.symptoms import Symptom
from llmdeploy.errors import InputError, Unreachable
from llmdeploy.facts.bundle import Bundle
from llmdeploy.facts.collect import PROBE_TIMEOUT_S, Depth
from llmdeploy.facts.finding import Finding
from llmdeploy.inventory import Inventory
from llmdeploy.plan.document import Plan
from llmdeploy.release import journal
from llmdeploy.release.logs import Source, rank_sources, release_sources
from llmdeploy.release.room import GONE
from llmdeploy.release.site import Site
from llmdeploy.release.state import Phase, ReleaseState
from llmdeploy.rollout.targets import plan_of
from llmdeploy.service import ModelSource, Service

LOG_LIMIT_BYTES = 64 * 2**20
"""Of a log file its end; of a rank's log on its host its beginning, where a start fails.

Source: own choice: half a minute of searching."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Findings and logs, and of what they are."""

    names: tuple[str, ...]
    findings: tuple[Finding, ...]
    logs: tuple[Log, ...] = ()
    bundle: Bundle | None = None
    notes: tuple[str, ...] = ()

    def timed(self, log: Log) -> Log:
        """The log with its host's clock put right."""
        return replace(log, shift_s=shift_s(self.bundle, log.name)) if self.bundle else log


def asked_for(words: Sequence[str]) -> tuple[tuple[Symptom, ...], tuple[Log, ...]]:
    """Files and folders are logs, all other words together are a symptom."""
    logs = [log for word in words for log in _logs(word)]
    rest = [word for word in words if word != "-" and not _path(word).exists()]
    missing = next((w for w in rest if w.endswith((".log", ".txt")) or "/" in w), None)
    if missing:
        raise InputError(f"{missing}: no such log", fix="correct the path")
    return (named(" ".join(rest)) if rest else ()), tuple(logs)


def facts_of(path: str) -> Seen:
    """A bundle's findings."""
    bundle = read(_path(path), Bundle, example="a bundle of `preflight --out`")
    return Seen(names=(f"facts in {path}",), findings=judged(bundle), bundle=bundle)


def service_of(service: str, release: str | None, *, ask: bool, root: str) -> Seen:
    """A service's newest release, the logs of all its ranks, and with `ask` its hosts' facts."""
    loaded = load_hosts(service) if service.endswith((".yaml", ".yml")) else None
    name = loaded.service.name if loaded else service
    site = service_site(name, loaded.inventory.state_root if loaded else root)
    state = journal.state(site.layout, shell=site.shell)
    if site.stations:
        sources = rank_sources(state, release=release, replica=None, host=None, site=site)
    else:
        sources = release_sources(state, release=release, replica=None, layout=site.layout)
    wanted = state.release(release) if release else state.releases[-1]
    assert wanted is not None, "release_sources refuses a release that is not there"
    found = () if wanted.phase in GONE else findings(look(wanted, site=site))
    bundle = _ask(loaded or _loaded(plan_of(wanted.id, site=site), site)) if ask else None
    return Seen(
        names=(f"release {wanted.id} ({wanted.phase}) of {name}",),
        findings=(*found, *(judged(bundle) if bundle else ())),
        logs=tuple(log for source in sources if (log := _kept(source, site)) is not None),
        bundle=bundle,
        notes=tuple(_reason(wanted, site)),
    )


def _reason(release: ReleaseState, site: Site) -> Iterator[str]:
    """Why the launch gave the release up, as the journal has it."""
    if release.phase != Phase.FAILED:
        return
    mine = [e for e in journal.read(site.layout, site.shell) if e.release == release.id]
    said = next((e.data["reason"] for e in reversed(mine) if e.data.get("reason")), None)
    if said:
        yield f"release {release.id} failed, and the launch said: {said}"


def _kept(source: Source, site: Site) -> Log | None:
    """A rank's log; None where it has none, or its host does not answer (preflight says so)."""
    name = f"{source.name}:{source.path}" if source.shell else source.path
    try:
        content = (source.shell or site.shell).read_from(
            source.path, offset_bytes=0, limit_bytes=LOG_LIMIT_BYTES
        )
    except Unreachable:
        return None
    return Log(name=name, text=content.decode(errors="replace")) if content else None


def _ask(loaded: Loaded) -> Bundle:
    return ask_hosts(loaded, depth=Depth.IMPORT, timeout_s=PROBE_TIMEOUT_S)


def _loaded(plan: Plan, site: Site) -> Loaded:
    """The service as its plan describes it, on the hosts of its last launch."""
    inventory = remembered(site.layout, shell=site.shell) or Inventory(
        hosts=(GATEWAY_HOST,), state_root=plan.state_root, model_store=plan.model_store
    )
    model = ModelSource(id=plan.model.id)
    service = Service(name=plan.service, cluster="cluster.yaml", model=model, gateway=plan.gateway)
    return Loaded(service=service, inventory=inventory, python=site.python)


def _logs(word: str) -> list[Log]:
    if word == "-":
        return [Log(name="stdin", text=sys.stdin.read())]
    path = _path(word)
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if ".log" in file.name and file.is_file())
        if not files:
            raise InputError(f"{word}: found no *.log in it", fix="give the log files themselves")
        return [_log(file) for file in files]
    return [_log(path)] if path.exists() else []


def _log(path: pathlib.Path) -> Log:
    try:
        with path.open("rb") as file:
            if path.is_file():  # a pipe has no end to go to
                file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_LIMIT_BYTES))
            content = file.read(LOG_LIMIT_BYTES)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", fix="make it readable") from error
    return Log(name=str(path), text=content.decode(errors="replace"))


def _path(word: str) -> pathlib.Path:
    return pathlib.Path(word).expanduser()

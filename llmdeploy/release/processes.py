"""The processes of a release, wherever they run: on this host, or one rank a host of a cluster."""

from dataclasses import dataclass

from llmdeploy.errors import Unreachable
from llmdeploy.release import groups, prepare, supervise
from llmdeploy.release.rank_memory import Held, held
from llmdeploy.release.site import Site
from llmdeploy.release.state import ReleaseState
from llmdeploy.release.supervise import ProcessState
from llmdeploy.release.together import together

SILENT = ProcessState(running=False, pid=None, restarts=0, exit="its host does not answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """One process of a release."""

    name: str
    """The replica's; of a group with the rank's host."""
    state: ProcessState
    held: Held | None
    """Of memory; None where it does not run or its host does not answer."""


def processes(release: ReleaseState, *, site: Site) -> tuple[Running, ...]:
    """Every engine process of the release as its supervisor has it."""
    if not site.stations:
        return tuple(_here(release, endpoint.replica, site) for endpoint in release.endpoints)
    return together(_of_rank, prepare.ranks(release, site))


def _here(release: ReleaseState, replica: str, site: Site) -> Running:
    program = supervise.engine_program(release.id, replica)
    return Running(
        name=replica,
        state=site.supervisor.state(program),
        held=held(site.layout.root, program, cards=True, shell=site.shell),
    )


def _of_rank(rank: groups.Rank) -> Running:
    station, cards = rank.station, rank.replica.serve.device == "cuda"
    return Running(
        name=f"{rank.replica.name}@{station.name}",
        state=_state(rank),
        held=held(station.layout.root, rank.program, cards=cards, shell=station.shell),
    )


def _state(rank: groups.Rank) -> ProcessState:
    try:
        return rank.station.supervisor.state(rank.program)
    except Unreachable:
        return SILENT

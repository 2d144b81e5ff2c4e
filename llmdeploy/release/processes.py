"""The processes of a release, wherever they run: on this host, or one rank a host of a cluster."""

from dataclasses import dataclass

from llmdeploy.errors import Unreachable
from llmdeploy.release import groups, prepare, supervise
from llmdeploy.release.site import Site
from llmdeploy.release.state import ReleaseState
from llmdeploy.release.supervise import ProcessState

SILENT = ProcessState(running=False, pid=None, restarts=0, exit="its host does not answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """One process of a release."""

    name: str
    """The replica's; of a group with the rank's host."""
    state: ProcessState


def processes(release: ReleaseState, *, site: Site) -> tuple[Running, ...]:
    """Every engine process of the release as its supervisor has it."""
    if not site.stations:
        return tuple(
            Running(
                name=endpoint.replica,
                state=site.supervisor.state(supervise.engine_program(release.id, endpoint.replica)),
            )
            for endpoint in release.endpoints
        )
    return tuple(
        Running(name=f"{rank.replica.name}@{rank.station.name}", state=_state(rank))
        for rank in prepare.ranks(release, site)
    )


def _state(rank: groups.Rank) -> ProcessState:
    try:
        return rank.station.supervisor.state(rank.program)
    except Unreachable:
        return SILENT

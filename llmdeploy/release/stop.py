"""Stops releases and services: drained within bounds, then nothing of them is left."""

from llmdeploy.errors import InputError, Refused
from llmdeploy.release import (
    device_memory,
    group_stop,
    journal,
    opened,
    ports,
    room,
    sockets,
    supervise,
)
from llmdeploy.release.site import Site
from llmdeploy.release.state import Phase, ReleaseState, ServiceState, Standing
from llmdeploy.release.supervise import GATEWAY

_PORT_PATIENCE_S = 10.0
_POLL_S = 0.1


def check_stoppable(state: ServiceState, release_id: str) -> ReleaseState:
    """The release, if it may stop alone; Refused for the live one, InputError for an unknown."""
    release = state.release(release_id)
    if release is None:
        known = ", ".join(r.id for r in state.releases) or "none"
        raise InputError(
            f"{state.service}: there is no release {release_id}, found: {known}",
            fix=f"llmdeploy status {state.service}",
        )
    if release.standing == Standing.LIVE and release.phase not in room.GONE:
        raise Refused(
            f"{state.service}: release {release_id} is live, needed one without traffic",
            fix=f"llmdeploy rollback {state.service} first, or stop the whole service: "
            f"llmdeploy stop {state.service}",
        )
    return release


def stop_release(release: ReleaseState, *, reason: str, site: Site) -> None:
    """The release's processes are gone, its ports free, and the journal says so.

    Refused at the end where memory of its cards is not back.
    """
    if _stop_and_tell(release, reason=reason, site=site):
        device_memory.check_back(release, site=site)


def _stop_and_tell(release: ReleaseState, *, reason: str, site: Site) -> bool:
    """Whether it was not stopped before."""
    if release.phase in room.GONE:  # its ports may be another release's by now
        _stop_programs(release, site)
        return False
    halt(release, site=site)
    journal.mark_phase(
        release.id,
        Phase.STOPPED,
        reason=reason,
        layout=site.layout,
        shell=site.shell,
        clock=site.clock,
    )
    return True


def stop_service(*, purge: bool, site: Site) -> tuple[str, ...]:
    """Ids of the releases stopped, and programs that the journal did not know of; no process, port
    or socket of the service is left.

    With `purge` no file is left either. The caller has drained the gateway before. Refused at the
    end where memory of cards is not back.
    """
    try:
        found = room.running(journal.state(site.layout, shell=site.shell))
    except Refused:
        if not purge:
            raise
        found = ()  # a broken journal is no reason to keep what is to be deleted
    for release in found:
        _stop_and_tell(release, reason="the service was stopped", site=site)
    held = _memory_held(found, site)
    unknown = (*site.supervisor.list(), *group_stop.left(site))
    group_stop.shutdown(purge=purge, site=site)
    site.supervisor.shutdown()
    for name in site.shell.entries(site.layout.gateway):
        if name.endswith(".sock"):  # a killed gateway leaves them
            site.shell.remove(f"{site.layout.gateway}/{name}")
    sockets.remove_folder(site.layout, shell=site.shell)
    with journal.sole_writer(site.ports_guard, shell=site.shell, clock=site.clock):
        pass  # a launch that was killed may have left it
    if purge:
        site.shell.remove(site.layout.root)
    if held is not None:
        raise held
    return (
        *(release.id for release in found),
        *(f"{program} (not in the journal)" for program in unknown if program != GATEWAY),
    )


def _memory_held(releases: tuple[ReleaseState, ...], site: Site) -> Refused | None:
    """The first release whose cards' memory is not back; all else of a stop comes before it."""
    for release in releases:
        try:
            device_memory.check_back(release, site=site)
        except Refused as held:
            return held
    return None


def halt(release: ReleaseState, *, site: Site) -> None:
    """Stops the release's programs; Refused when one of its ports still answers afterwards."""
    _stop_programs(release, site)
    if site.stations:
        group_stop.check_ports(release, site=site)
        return
    wanted = {endpoint.port for endpoint in release.endpoints}
    deadline_s = site.clock.monotonic_s() + _PORT_PATIENCE_S
    while busy := wanted & ports.listening(shell=site.shell).keys():
        if site.clock.monotonic_s() > deadline_s:
            raise _busy(release, min(busy), site)
        site.clock.sleep(_POLL_S)


def _busy(release: ReleaseState, port: int, site: Site) -> Refused:
    return Refused(
        f"release {release.id}: port {port} is held by "
        f"{ports.holder(port, shell=site.shell)} after its processes ended, needed it free",
        fix="end that process, then run the command again",
    )


def _stop_programs(release: ReleaseState, site: Site) -> None:
    if site.stations:
        group_stop.stop_programs(release, site=site)
        return
    for name in supervise.engine_programs(release.id, site.supervisor.list()):
        site.supervisor.stop(name)
    for endpoint in release.endpoints:  # also what outlived its supervisor
        name = supervise.engine_program(release.id, endpoint.replica)
        supervise.kill_processes(site.layout.root, name, shell=site.shell)
    opened.close(release.id, shell=site.shell)

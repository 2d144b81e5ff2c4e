"""Stops a release on all hosts of its cluster: heads drain first, then nothing of it is left."""

from collections.abc import Callable

from llmdeploy.errors import Refused, Unreachable
from llmdeploy.release import opened, ports, supervise
from llmdeploy.release.site import Site, Station
from llmdeploy.release.state import ReleaseState
from llmdeploy.release.together import together

PORT_PATIENCE_S = 10.0
"""How long ports may stay open after their programs ended. Source: own choice."""
POLL_S = 0.2


def stop_programs(release: ReleaseState, *, site: Site) -> None:
    """The release's ranks are gone on every host that answers.

    Unreachable at the end, naming the others: their keepers end by themselves once the head is
    gone, and start no engine without it.
    """
    heads = {endpoint.host for endpoint in release.endpoints}
    first = [station for station in site.stations if station.name in heads]
    then = [station for station in site.stations if station.name not in heads]
    silent = [*_each(lambda one: _stop_on(release, one), first)]
    silent += _each(lambda one: _stop_on(release, one), then)
    if silent:
        raise Unreachable(
            f"release {release.id}: left undone: {'; '.join(silent)}",
            fix="its ranks there end by themselves; when the host is back run the command again",
        )


def check_ports(release: ReleaseState, *, site: Site) -> None:
    """Refused when a port of one of its heads still answers."""
    for endpoint in release.endpoints:
        shell = site.station(endpoint.host).shell
        deadline_s = site.clock.monotonic_s() + PORT_PATIENCE_S
        while endpoint.port in ports.listening(shell=shell):
            if site.clock.monotonic_s() > deadline_s:
                raise Refused(
                    f"release {release.id}: {endpoint.host}: port {endpoint.port} is held by "
                    f"{ports.holder(endpoint.port, shell=shell)} after its processes ended, needed "
                    "it free",
                    fix="end that process, then run the command again",
                )
            site.clock.sleep(POLL_S)


def left(site: Site) -> tuple[str, ...]:
    """Programs that still run on the cluster's hosts, each with its host; a host that does not
    answer has none to name."""

    def on(station: Station) -> tuple[str, ...]:
        try:
            return tuple(f"{name} on {station.name}" for name in station.supervisor.list())
        except Unreachable:
            return ()

    return tuple(words for found in together(on, site.stations) for words in found)


def shutdown(*, purge: bool, site: Site) -> None:
    """Nothing of the service runs on its cluster's hosts; with `purge` no file of it is left."""

    def end(station: Station) -> None:
        station.supervisor.shutdown()
        if purge:
            station.shell.remove(station.layout.root)

    silent = _each(end, list(site.stations))
    if silent:
        raise Unreachable(
            f"{site.service}: left undone: {'; '.join(silent)}",
            fix="when the host is back run the command again",
        )


def _stop_on(release: ReleaseState, station: Station) -> None:
    for name in supervise.engine_programs(release.id, station.supervisor.list()):
        station.supervisor.stop(name)
    for endpoint in release.endpoints:  # also what outlived its supervisor
        name = supervise.engine_program(release.id, endpoint.replica)
        supervise.kill_processes(station.layout.root, name, shell=station.shell)
        station.shell.remove(f"{station.layout.run(release.id)}/{endpoint.replica}.rank.json")
    opened.close(release.id, shell=station.shell)


def _each(act: Callable[[Station], None], stations: list[Station]) -> list[str]:
    """Acts on all at once: in words, the hosts that did not answer."""

    def tried(station: Station) -> str | None:
        try:
            act(station)
        except Unreachable as error:
            return f"{station.name}: {error}"
        return None

    return [words for words in together(tried, stations) if words is not None]

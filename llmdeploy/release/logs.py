"""The last lines of a service's logs, and those that come."""

from collections.abc import Iterator
from dataclasses import dataclass

from llmdeploy.edge import Clock, Shell
from llmdeploy.errors import InputError
from llmdeploy.release import prepare
from llmdeploy.release.layout import ServiceLayout
from llmdeploy.release.site import Site
from llmdeploy.release.state import ServiceState

_POLL_S = 0.5
_LINE_BYTES = 2000
"""A long log line; so many bytes per line are read from a log's end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One log."""

    name: str
    path: str
    shell: Shell | None = None
    """Of the host it lies on; None: the one that `tail` is given."""


def release_sources(
    state: ServiceState, *, release: str | None, replica: str | None, layout: ServiceLayout
) -> tuple[Source, ...]:
    """The logs of a release's replicas; of the newest release where none is named."""
    wanted = state.release(release) if release else next(reversed(state.releases), None)
    if wanted is None:
        known = ", ".join(r.id for r in state.releases) or "none"
        raise InputError(
            f"{state.service}: there is no release {release or 'yet'}, found: {known}",
            fix=f"llmdeploy status {state.service}",
        )
    names = [endpoint.replica for endpoint in wanted.endpoints]
    if replica is not None and replica not in names:
        raise InputError(
            f"release {wanted.id}: there is no replica {replica}, found: {', '.join(names)}",
            fix="leave out --replica to see all",
        )
    return tuple(
        Source(name=name, path=layout.engine_log(wanted.id, name))
        for name in names
        if replica in (None, name)
    )


def rank_sources(
    state: ServiceState, *, release: str | None, replica: str | None, host: str | None, site: Site
) -> tuple[Source, ...]:
    """The logs of a release's ranks on their hosts; of all hosts where none is named."""
    known = release_sources(state, release=release, replica=replica, layout=site.layout)
    replicas = {source.name for source in known}
    wanted = state.release(release) if release else state.releases[-1]
    assert wanted is not None, "release_sources found it"
    ranks = [r for r in prepare.ranks(wanted, site) if r.replica.name in replicas]
    found = [rank for rank in ranks if host in (None, rank.station.name)]
    if not found:
        names = ", ".join(rank.station.name for rank in ranks)
        raise InputError(
            f"release {wanted.id}: it has no rank on {host}, found: {names}",
            fix="leave out --host to see all",
        )
    return tuple(
        Source(
            name=f"{rank.replica.name}@{rank.station.name}",
            path=rank.log_path,
            shell=rank.station.shell,
        )
        for rank in found
    )


def tail(
    sources: tuple[Source, ...], *, lines: int, follow: bool, shell: Shell, clock: Clock
) -> Iterator[tuple[Source, str]]:
    """Each log's last lines; with `follow` then new lines as they come, without end."""
    ends = {}
    for source in sources:
        size_bytes = _size_bytes(source.path, source.shell or shell)
        start = max(0, size_bytes - lines * _LINE_BYTES)
        text = (source.shell or shell).read_from(
            source.path, offset_bytes=start, limit_bytes=size_bytes - start
        )
        found = text.decode(errors="replace").splitlines()
        yield from ((source, line) for line in (found[-lines:] if lines else ()))
        ends[source.name] = start + text.rfind(b"\n") + 1 if follow else size_bytes
    while follow:
        for source in sources:
            end = ends[source.name]
            if (
                _size_bytes(source.path, source.shell or shell) < end
            ):  # the log was put aside, a new one began
                end = 0
            text = (source.shell or shell).read_from(source.path, offset_bytes=end)
            whole = text[: text.rfind(b"\n") + 1]
            ends[source.name] = end + len(whole)
            yield from ((source, line) for line in whole.decode(errors="replace").splitlines())
        clock.sleep(_POLL_S)


def _size_bytes(path: str, shell: Shell) -> int:
    done = shell.run(("stat", "-c", "%s", path), timeout_s=10)
    return int(done.stdout) if done.exit_code == 0 else 0

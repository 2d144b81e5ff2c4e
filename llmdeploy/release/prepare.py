"""Before a start: is it running already, may it run, and on which ports and cores."""

from llmdeploy.edge import Shell
from llmdeploy.errors import Refused
from llmdeploy.inventory import Ports
from llmdeploy.plan.document import Plan
from llmdeploy.release import (
    checks,
    climb,
    fold,
    group_climb,
    groups,
    journal,
    opened,
    ports,
    room,
    stage,
    stop,
    supervise,
)
from llmdeploy.release.layout import ServiceLayout
from llmdeploy.release.site import Orders, Site
from llmdeploy.release.state import Phase, ReleaseState, ServiceState
from llmdeploy.release.together import together


def stands(release: ReleaseState, *, site: Site) -> bool:
    """Whether the release is proven and all its engines still say that they are ready."""
    if release.phase != Phase.PROBED or not _all_run(release, site):
        return False
    if site.stations:
        return all(group_climb.answers(rank, http=site.http) for rank in _heads(release, site))
    told = [climb.ask(endpoint, http=site.http) for endpoint in release.endpoints]
    return all(answer is not None and answer.phase == "ready" for answer in told)


def climbs(release: ReleaseState, *, site: Site) -> bool:
    """Whether engines of an unfinished launch run, so that it can go on."""
    return release.phase not in room.GONE and _all_run(release, site)


def prepare(plan: Plan, orders: Orders, *, site: Site) -> ReleaseState:
    """The release as PLANNED, its ports and cores its own; Refused with both values otherwise.

    Releases that nobody needs any more make room first: never the live one, never before all
    other checks have passed.
    """
    state = journal.state(site.layout, shell=site.shell)
    opened.check_key(checks.model_of(plan, shell=site.shell), orders.key)
    checks.check_disk(plan, site)
    checks.check_gateway_port(plan, site)
    leaving = making_room(plan, state, site=site)
    for release in leaving:
        orders.report(f"release {release.id} ({release.standing}): stopped to make room")
        orders.detach(release.id)
        stop.stop_release(release, reason=f"makes room for {plan.id}", site=site)
    if leaving:
        checks.check_memory(plan, freed_bytes=0, shell=site.shell)
    return _allot(plan, site)


def making_room(plan: Plan, state: ServiceState, *, site: Site) -> tuple[ReleaseState, ...]:
    """Releases to stop before the plan's starts; Refused where even all of them are too few.

    The one that `rollback` would go back to is among them only when memory is short.
    """
    leaving = room.displaced(state, plan.id)
    spared = room.fallback(state, plan.id)
    if spared and not _fits(plan, leaving, site):
        leaving = (*leaving, *spared)
    freed_bytes = sum(_held_bytes(release, site) for release in leaving)
    checks.check_memory(plan, freed_bytes=freed_bytes, shell=site.shell)
    return leaving


def taken_blocks(state_root: str, *, shell: Shell) -> frozenset[int]:
    """Port blocks of all running releases of all services under the state root."""
    taken: set[int] = set()
    for service in services(state_root, shell=shell):
        layout = ServiceLayout(root=f"{state_root}/{service}")
        try:
            state = journal.state(layout, shell=shell)
        except Refused:  # another service's broken journal is not this one's trouble
            continue
        taken |= {release.port_block for release in room.running(state)}
    return frozenset(taken)


def services(state_root: str, *, shell: Shell) -> tuple[str, ...]:
    """Names of the services that have a state under the state root."""
    names = shell.entries(state_root)
    return tuple(n for n in names if "journal.jsonl" in shell.entries(f"{state_root}/{n}"))


def _allot(plan: Plan, site: Site) -> ReleaseState:
    """Journals the release with a free port block and core slot."""
    with journal.sole_writer(site.ports_guard, shell=site.shell, clock=site.clock):
        state = journal.state(site.layout, shell=site.shell)
        held = [
            stage.held_cores(release, layout=site.layout, shell=site.shell)
            for release in room.busy(state, plan.id)
        ]
        slot = room.core_slot(plan, held)
        block = free_block(plan.ports, site)
        data = fold.planned_data(
            port_block=block,
            core_slot=slot,
            endpoints=stage.endpoints(plan, port_block=block),
        )
        journal.append(
            fold.PLANNED,
            data,
            release=plan.id,
            layout=site.layout,
            shell=site.shell,
            clock=site.clock,
        )
    release = journal.state(site.layout, shell=site.shell).release(plan.id)
    assert release is not None  # the entry above made it
    return release


def free_block(allowed: Ports, site: Site) -> int:
    """The lowest port block that no release of any service has and where nothing listens, on any
    host."""
    shells = [station.shell for station in site.stations] or [site.shell]
    listening = together(lambda shell: ports.listening(shell=shell).keys(), shells)
    busy = {port for found in listening for port in found}
    return ports.free_block(
        allowed, taken=taken_blocks(site.state_root, shell=site.shell), listening_ports=busy
    )


def _fits(plan: Plan, leaving: tuple[ReleaseState, ...], site: Site) -> bool:
    freed_bytes = sum(_held_bytes(release, site) for release in leaving)
    try:
        checks.check_memory(plan, freed_bytes=freed_bytes, shell=site.shell)
    except Refused:
        return False
    return True


def _held_bytes(release: ReleaseState, site: Site) -> int:
    plan = stage.staged(release.id, layout=site.layout, shell=site.shell)
    return 0 if plan.cluster is not None else checks.needed_memory_bytes(plan)


def ranks(release: ReleaseState, site: Site) -> tuple[groups.Rank, ...]:
    """Every rank of a release that was staged for a cluster."""
    plan = stage.staged(release.id, layout=site.layout, shell=site.shell)
    return groups.ranks(plan, port_block=release.port_block, site=site)


def _heads(release: ReleaseState, site: Site) -> tuple[groups.Rank, ...]:
    return tuple(rank for rank in ranks(release, site) if rank.member.position == 0)


def _all_run(release: ReleaseState, site: Site) -> bool:
    if site.stations:
        return all(r.station.supervisor.state(r.program).running for r in ranks(release, site))
    names = [supervise.engine_program(release.id, e.replica) for e in release.endpoints]
    return bool(names) and all(site.supervisor.state(name).running for name in names)

"""Room for a release: what leaves before it starts, and which cores it takes."""

from collections.abc import Sequence

from llmdeploy.errors import Refused
from llmdeploy.plan.document import Plan
from llmdeploy.release.state import Phase, ReleaseState, ServiceState, Standing

GONE = (Phase.FAILED, Phase.STOPPED)


def running(state: ServiceState) -> tuple[ReleaseState, ...]:
    """Releases that hold ports and memory, oldest first."""
    return tuple(release for release in state.releases if release.phase not in GONE)


def displaced(state: ServiceState, release_id: str) -> tuple[ReleaseState, ...]:
    """Releases to stop before `release_id` starts: launches that never finished, and what the
    rollout no longer needs. Refused while a live one and a candidate run besides.

    The newest previous release stays: it costs memory but no cores, and `rollback` needs it.
    """
    others = [release for release in running(state) if release.id != release_id]
    broken_off = [r for r in others if r.phase != Phase.PROBED and r.standing != Standing.LIVE]
    needed = [r for r in others if r.standing in (Standing.LIVE, Standing.CANDIDATE)]
    needed = [r for r in needed if r not in broken_off]
    if len(needed) > 1:
        undecided = [r for r in needed if r.standing == Standing.CANDIDATE]
        waiting = (undecided or needed)[0].id
        shown = ", ".join(f"{release.id} ({release.standing})" for release in needed)
        raise Refused(
            f"{state.service}: running are {shown}, needed at most 1 besides {release_id}",
            fix=f"decide on {waiting} first: llmdeploy verify {state.service}, or "
            f"llmdeploy stop {state.service} --release {waiting}",
        )
    kept = fallback(state, release_id)
    spare = [r for r in others if r.standing in (Standing.ROLLED_BACK, Standing.PREVIOUS)]
    return (*broken_off, *(r for r in spare if r not in (*broken_off, *kept)))


def fallback(state: ServiceState, release_id: str) -> tuple[ReleaseState, ...]:
    """The release that `rollback` would go back to, where it runs: stopped only for memory."""
    previous = [
        release
        for release in running(state)
        if release.standing == Standing.PREVIOUS
        and release.phase == Phase.PROBED
        and release.id != release_id
    ]
    return (max(previous, key=lambda release: release.changed_s),) if previous else ()


def busy(state: ServiceState, release_id: str) -> tuple[ReleaseState, ...]:
    """Running releases whose cores `release_id` must not share: all but idle previous ones."""
    idle = fallback(state, release_id)
    return tuple(r for r in running(state) if r.id != release_id and r not in idle)


def core_slot(plan: Plan, held: Sequence[tuple[int, ...]]) -> int | None:
    """Index of the first of the plan's core slots that shares no core with `held`.

    None where the plan pins nothing. A plan with one slot shares it: that is what
    `side_by_side: false` asks for. Refused where a plan with more has none free.
    """
    if not plan.core_slots:
        return None
    taken = {core for cores in held for core in cores}
    for index, cores in enumerate(plan.core_slots):
        if not taken.intersection(cores):
            return index
    if len(plan.core_slots) == 1:
        return 0
    shown = " and ".join(",".join(map(str, cores)) for cores in plan.core_slots)
    raise Refused(
        f"{plan.service}: cores {','.join(map(str, sorted(taken)))} are held by running "
        f"releases, needed one of the plan's sets {shown} free",
        fix=f"llmdeploy status {plan.service}, then stop a release that is no longer needed",
    )


def replica_cores(plan: Plan, slot: int | None, position: int) -> tuple[int, ...]:
    """The cores of one replica: the replicas of a host deal out its slot's cores."""
    if slot is None:
        return ()
    cores = plan.core_slots[slot]
    dealt = cores[position :: len(plan.replicas)]
    return dealt if len(cores) >= len(plan.replicas) else cores

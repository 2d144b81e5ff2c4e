"""From journal entries to what stands on the hosts: the only meaning the entries have."""

import json
from collections.abc import Sequence

from llmdeploy.release.entry import Entry
from llmdeploy.release.state import Endpoint, Phase, ReleaseState, ServiceState, Standing

PLANNED = "planned"
"""A launch began: data has port_block, core_slot (empty: none) and endpoints (JSON)."""
PHASE = "phase"
"""A release came further, failed or stopped: data has phase and, for people, reason."""
STANDING = "standing"
"""What the rollout decided: data maps release ids to standings, all changed at once."""


def fold(service: str, entries: Sequence[Entry]) -> ServiceState:
    """The state that the entries add up to; events with other names change nothing."""
    releases: dict[str, ReleaseState] = {}
    for entry in entries:
        if entry.event == PLANNED and entry.release:
            releases[entry.release] = _planned(entry, releases.pop(entry.release, None))
        elif entry.event == PHASE and entry.release in releases:
            changed = {"phase": Phase(entry.data["phase"]), "changed_s": entry.at_s}
            releases[entry.release] = releases[entry.release].model_copy(update=changed)
        elif entry.event == STANDING:
            _stand(releases, entry)
    return ServiceState(service=service, releases=tuple(releases.values()))


def planned_data(
    *, port_block: int, core_slot: int | None, endpoints: Sequence[Endpoint]
) -> dict[str, str]:
    """The data of a PLANNED entry."""
    return {
        "port_block": str(port_block),
        "core_slot": "" if core_slot is None else str(core_slot),
        "endpoints": json.dumps([endpoint.model_dump() for endpoint in endpoints]),
    }


def _planned(entry: Entry, before: ReleaseState | None) -> ReleaseState:
    slot = entry.data["core_slot"]
    return ReleaseState(
        id=str(entry.release),
        phase=Phase.PLANNED,
        standing=_standing_after(before),
        port_block=int(entry.data["port_block"]),
        core_slot=int(slot) if slot else None,
        endpoints=tuple(Endpoint(**item) for item in json.loads(entry.data["endpoints"])),
        changed_s=entry.at_s,
    )


def _standing_after(before: ReleaseState | None) -> Standing:
    """A live release that starts again (the host rebooted) is still the live one."""
    if before and before.phase != Phase.STOPPED and before.standing == Standing.LIVE:
        return Standing.LIVE
    return Standing.CANDIDATE


def _stand(releases: dict[str, ReleaseState], entry: Entry) -> None:
    for release, standing in entry.data.items():
        if release in releases:
            changed = {"standing": Standing(standing), "changed_s": entry.at_s}
            releases[release] = releases[release].model_copy(update=changed)

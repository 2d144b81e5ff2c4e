"""What is on the hosts: releases, their phases, ports and places, folded from the journal."""

from enum import StrEnum

from llmdeploy.document import Document


class Phase(StrEnum):
    """How far a release has come; the order of the documents' start: group, weights, endpoint."""

    PLANNED = "planned"
    STAGED = "staged"
    STARTED = "started"
    COMM_READY = "comm_ready"
    LOADED = "loaded"
    KV_READY = "kv_ready"
    WARM = "warm"
    PROBED = "probed"
    """Ready: a real completion came back. The release is dark (weight 0) until `verify`."""
    FAILED = "failed"
    STOPPED = "stopped"


class Standing(StrEnum):
    """What the rollout made of a release."""

    CANDIDATE = "candidate"
    """Launched, not yet decided."""
    LIVE = "live"
    """Has, or should have, all traffic."""
    PREVIOUS = "previous"
    """Was live before; kept running so that rollback needs no start."""
    ROLLED_BACK = "rolled_back"


class Endpoint(Document):
    """Where one replica of a release answers."""

    replica: str
    host: str
    address: str
    port: int


class ReleaseState(Document):
    """One release as the journal knows it."""

    id: str
    phase: Phase
    standing: Standing
    port_block: int
    """Index of the block in the cluster's port range."""
    core_slot: int | None
    """Index into the plan's core_slots; None where releases are not pinned."""
    endpoints: tuple[Endpoint, ...]
    changed_s: float
    """When phase or standing last changed, seconds since 1970."""


class ServiceState(Document):
    """All releases of a service, oldest first."""

    service: str
    releases: tuple[ReleaseState, ...] = ()

    def release(self, release_id: str) -> ReleaseState | None:
        """The release with that id, None where there is none."""
        return next((r for r in self.releases if r.id == release_id), None)

    def standing(self, standing: Standing) -> ReleaseState | None:
        """The newest release of that standing that still runs, None where there is none."""
        gone = (Phase.FAILED, Phase.STOPPED)
        found = [r for r in self.releases if r.standing == standing and r.phase not in gone]
        return found[-1] if found else None

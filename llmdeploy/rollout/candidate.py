"""The release to verify: chosen, accepted while dark, beside the one it would replace."""

from collections.abc import Callable
from dataclasses import dataclass

from pydantic import ValidationError

from llmdeploy.errors import InputError, Refused
from llmdeploy.facts.finding import Status
from llmdeploy.plan.document import Plan
from llmdeploy.release import journal
from llmdeploy.release.site import Site
from llmdeploy.release.state import Phase, ReleaseState, ServiceState, Standing
from llmdeploy.rollout.guards import pids_of
from llmdeploy.rollout.position import ACCEPTED, Position
from llmdeploy.rollout.targets import plan_of, target_of
from llmdeploy.units import show_seconds
from llmdeploy.verdict.acceptance import AcceptanceRecord, accept
from llmdeploy.verdict.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A dark or gray release with what judging it needs."""

    release: ReleaseState
    plan: Plan
    target: Target
    old: ReleaseState | None
    """The live release; None for the first one of a service."""
    old_target: Target | None


def choose(state: ServiceState, release_id: str | None) -> ReleaseState:
    """The release asked for, else the newest candidate that is ready, else the live one.

    One that was rolled back must be asked for by its id. Refused where there is none; InputError
    for an unknown id.
    """
    if release_id is not None:
        found = state.release(release_id)
        if found is None:
            known = ", ".join(r.id for r in state.releases) or "none"
            raise InputError(
                f"{state.service}: no release {release_id}, there are: {known}",
                fix=f"llmdeploy status {state.service}",
            )
        return _checked(found, state)
    ready = [r for r in state.releases if _is_ready(r)]
    found = ready[-1] if ready else state.standing(Standing.LIVE)
    if found is None:
        last = state.releases[-1] if state.releases else None
        what = f"the newest is {last.id}, {last.phase}, {last.standing}" if last else "none at all"
        raise Refused(
            f"{state.service}: found no candidate that is ready ({what}), needed one",
            fix="launch a release: llmdeploy launch plans/<service>/<id>",
        )
    return found


def load(release: ReleaseState, state: ServiceState, *, site: Site) -> Candidate:
    """The release with its plan and target, and the live one's."""
    old = state.standing(Standing.LIVE)
    old = None if old is None or old.id == release.id else old
    plan = plan_of(release.id, site=site)
    return Candidate(
        release=release,
        plan=plan,
        target=target_of(release, plan, site=site),
        old=old,
        old_target=target_of(old, plan_of(old.id, site=site), site=site) if old else None,
    )


def accepted(
    candidate: Candidate, seen: Position, *, report: Callable[[str], None], site: Site
) -> AcceptanceRecord:
    """The record of acceptance: a former one of the very same processes, else made now."""
    release = candidate.release
    pids = pids_of(release, site=site)
    if "-" in pids.split(","):
        raise Refused(
            f"release {release.id}: processes {pids}: one does not run, needed all",
            fix=f"llmdeploy logs {site.service} --release {release.id}, then launch it again",
        )
    former = read_record(release.id, site=site)
    if former and former.accepted and seen.accepted_pids == pids:
        report("acceptance: passed before by the same processes, not repeated")
        return former
    report(f"acceptance of release {release.id} while it is dark")
    record = accept(
        candidate.target,
        candidate.plan.release,
        old=candidate.old_target,
        old_record=read_record(candidate.old.id, site=site) if candidate.old else None,
        shell=site.shell,
        http=site.http,
        clock=site.clock,
    )
    site.shell.write(_path(release.id, site), record.model_dump_json(indent=1).encode())
    if record.accepted:
        journal.append(
            ACCEPTED, {"pids": pids}, release=release.id,
            layout=site.layout, shell=site.shell, clock=site.clock,
        )  # fmt: skip
    for finding in record.findings:
        if finding.status == Status.WARN:  # what failed is in the outcome
            report(f"  {finding.status} {finding.check}: {finding.found}; needed {finding.needed}")
    passed = sum(f.status == Status.PASS for f in record.findings)
    report(
        f"acceptance: {passed} of {len(record.findings)} checks passed in "
        f"{show_seconds(record.took_s)}"
    )
    return record


def read_record(release_id: str, *, site: Site) -> AcceptanceRecord | None:
    """What acceptance found of a release, None where it never ran or its record was damaged."""
    text = site.shell.read(_path(release_id, site))
    try:
        return AcceptanceRecord.model_validate_json(text) if text else None
    except ValidationError:
        return None


def _path(release_id: str, site: Site) -> str:
    return f"{site.layout.run(release_id)}/acceptance.json"


def _is_ready(release: ReleaseState) -> bool:
    return release.phase == Phase.PROBED and release.standing == Standing.CANDIDATE


def _checked(release: ReleaseState, state: ServiceState) -> ReleaseState:
    again = release.phase == Phase.PROBED and release.standing == Standing.ROLLED_BACK
    if release.standing == Standing.LIVE or _is_ready(release) or again:
        return release
    raise Refused(
        f"release {release.id}: is {release.phase} and {release.standing}, needed a candidate "
        f"that is {Phase.PROBED}",
        fix=f"llmdeploy launch its plan again, then llmdeploy verify {state.service}",
    )

"""Starts a release beside the running one: from plan to proven, dark, at weight 0."""

from collections.abc import Iterator
from contextlib import contextmanager

from llmdeploy.errors import LlmDeployError, Refused, Unreachable
from llmdeploy.plan.document import Plan
from llmdeploy.release import device_memory, group_ascend, journal, prepare, stage, stop
from llmdeploy.release.ascend import ascend
from llmdeploy.release.evidence import Diary
from llmdeploy.release.site import Orders, Site
from llmdeploy.release.state import Phase, ReleaseState, Standing


def launch(plan: Plan, orders: Orders, *, site: Site) -> ReleaseState:
    """The release of `plan`, PROBED; the caller holds the service's lock.

    One that runs already stays as it is; an interrupted launch goes on where it was. Refused with
    the first cause when it fails: then nothing of it runs and its ports are free.
    """
    known = journal.state(site.layout, shell=site.shell).release(plan.id)
    if known and prepare.stands(known, site=site):
        orders.report(f"release {plan.id}: already launched")
        return known
    if known and prepare.climbs(known, site=site):
        orders.report(f"release {plan.id}: its engines run, goes on from {known.phase}")
        release = known
    else:
        if known:
            _clear(known, orders, site)
        release = prepare.prepare(plan, orders, site=site)
    with undone_on_failure(release, orders, site=site) as diary:
        stage.stage(plan, layout=site.layout, shell=site.shell)
        if plan.cluster is not None:
            group_ascend.ascend(plan, release, orders, diary=diary, site=site)
        else:
            ascend(plan, release, orders, diary=diary, site=site)
    return journal.state(site.layout, shell=site.shell).release(plan.id) or release


@contextmanager
def undone_on_failure(release: ReleaseState, orders: Orders, *, site: Site) -> Iterator[Diary]:
    """Whatever goes wrong in the block, Ctrl-C included, leaves nothing of the release running.

    Expected errors come out as Refused, with the release's id.
    """
    diary = Diary(release_id=release.id, report=orders.report, site=site)
    try:
        yield diary
    except KeyboardInterrupt as interrupt:
        _undo(release, "interrupted", diary, orders, site)
        raise Refused(
            f"release {release.id}: interrupted; nothing of it runs", fix="launch it again"
        ) from interrupt
    except LlmDeployError as error:
        _undo(release, str(error), diary, orders, site)
        raise Refused(f"release {release.id}: {error}", fix=error.fix) from error
    except BaseException as error:
        _undo(release, repr(error), diary, orders, site)
        raise


def _undo(release: ReleaseState, reason: str, diary: Diary, orders: Orders, site: Site) -> None:
    if release.standing != Standing.LIVE:  # a live one gets its traffic back when it is back
        orders.detach(release.id)
    try:
        stop.halt(release, site=site)
        device_memory.check_back(release, site=site)
    except (
        Refused,
        Unreachable,
    ) as left:  # the first cause is what the user must see, then what is left
        orders.report(f"{left}; {left.fix}")
        reason = f"{reason}; {left}"
    diary.reached(Phase.FAILED, {"reason": reason[:500]})


def _clear(known: ReleaseState, orders: Orders, site: Site) -> None:
    """What an earlier start left is gone; a live release (the host rebooted) stays the live one."""
    if known.standing == Standing.LIVE and known.phase not in (Phase.FAILED, Phase.STOPPED):
        stop.halt(known, site=site)
    else:
        orders.detach(known.id)
        stop.stop_release(known, reason="starts anew", site=site)

"""What `launch` starts from and with: the plan's file, the service's place, and the way up."""

import os
import pathlib

import typer

from llmdeploy.cli import attach
from llmdeploy.cli.context import make_site, whole
from llmdeploy.cli.stations import read_inventory, remember
from llmdeploy.document import parse
from llmdeploy.errors import InputError
from llmdeploy.observe.signatures import diagnose, first_cause
from llmdeploy.plan.document import Plan
from llmdeploy.release import launch as start
from llmdeploy.release.failure import Reason
from llmdeploy.release.hosts_in_use import hosts_of
from llmdeploy.release.layout import ServiceLayout
from llmdeploy.release.site import Orders, Site
from llmdeploy.release.state import ReleaseState
from llmdeploy.store import Key


def site_of(plan: Plan, inventory: str | None, state_root: str | None) -> Site:
    """The service's place; for a cluster's plan also the hosts that it names."""
    layout = ServiceLayout(root=f"{whole(state_root or plan.state_root)}/{plan.service}")
    if inventory is None:
        return make_site(layout, python=plan.python)
    cluster, _ = read_inventory(inventory)
    return make_site(layout, python=None, inventory=cluster, hosts=hosts_of(plan))


def keep_inventory(inventory: str | None, site: Site) -> None:
    """Later commands reach the cluster's hosts without the file."""
    if inventory is not None:
        remember(read_inventory(inventory)[1], layout=site.layout, shell=site.shell)


def read_plan(path: str) -> Plan:
    """The plan in a folder or file; InputError where there is none or it was changed by hand."""
    file = pathlib.Path(os.path.expanduser(path))
    file = file / "plan.yaml" if file.is_dir() else file
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(
            f"{file}: found no readable file: {reason}, needed a plan",
            fix="give the folder that `llmdeploy plan` wrote, like plans/chat/0123456789ab",
        ) from error
    found = parse(text, Plan, place=str(file))
    named = file.absolute().parent.name
    if len(named) == len(found.id) and named != found.id:
        raise InputError(
            f"{file}: its content is plan {found.id}, needed {named}: it was changed by hand",
            fix="change service.yaml instead and plan again",
        )
    return found


def _cause(log: str) -> Reason | None:
    found = first_cause(log)
    if found is None:
        return None
    line = f"log line {found.line_number}: {found.line}"
    return Reason(what=f"{found.signature.cause} ({line})", fix=found.signature.fix)


def bring_up(plan: Plan, site: Site, *, key: Key | None = None) -> ReleaseState:
    """The release, proven and known to the gateway; on failure nothing of it runs."""
    orders = Orders(
        report=lambda line: typer.echo(line, err=True),
        diagnose=diagnose,
        cause=_cause,
        detach=lambda release_id: attach.detach(release_id, site),
        key=key,
    )
    attach.check(plan, site)
    attach.forget_stopped(site)
    release = start.launch(plan, orders, site=site)
    with start.undone_on_failure(release, orders, site=site):
        attach.attach(plan, release, site)
    orders.report(f"release {release.id}: the gateway knows it, weight 0")
    return release

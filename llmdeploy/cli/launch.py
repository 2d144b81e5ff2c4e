"""`llmdeploy launch`: starts a release beside the running one, dark at weight 0."""

import signal
from typing import Annotated

import typer

from llmdeploy.cli.context import Json, Yes, ask
from llmdeploy.cli.models_forms import KeySource
from llmdeploy.cli.starting import bring_up, keep_inventory, read_plan, site_of
from llmdeploy.edge.local import LocalShell
from llmdeploy.release import lock
from llmdeploy.release.launchable import check_launchable
from llmdeploy.release.preview import preview
from llmdeploy.store import read_key

app = typer.Typer()


@app.command()
def launch(
    plan: Annotated[str, typer.Argument(help="folder of the plan, or its plan.yaml")],
    yes: Yes = False,
    as_json: Json = False,
    inventory: Annotated[
        str | None, typer.Option(help="cluster.yaml that a cluster's plan was made with")
    ] = None,
    key: KeySource = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show what it would do")] = False,
    state_root: Annotated[
        str | None,
        typer.Option(envvar="LLMDEPLOY_STATE_ROOT", help="wins over the plan's state root"),
    ] = None,
) -> None:
    """Start a release beside the running one, dark at weight 0.

    Exits 0 when it is proven (or was already), 3 when it failed: then nothing of it runs.
    """
    wanted = read_plan(plan)
    check_launchable(wanted, inventory=inventory is not None)
    site = site_of(wanted, inventory, state_root)
    held = read_key(key, shell=LocalShell()) if key is not None else None
    shown = preview(wanted, site=site)
    if dry_run:
        typer.echo("\n".join(shown))
        return
    typer.echo("\n".join(shown), err=True)
    ask(f"Launch release {wanted.id} of {wanted.service}?", yes=yes)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # cleans up as after Ctrl-C
    with lock.hold(
        site.layout, reason=f"launch release {wanted.id}", shell=site.shell, clock=site.clock
    ):
        keep_inventory(inventory, site)
        release = bring_up(wanted, site, key=held)
    if as_json:
        typer.echo(release.model_dump_json())
        return
    typer.echo(f"release {release.id}: {release.phase}, {release.standing}, dark until verified")
    typer.echo(f"next: llmdeploy verify {wanted.service}", err=True)

"""`llmdeploy plan`: decides what runs where and why, and writes it to plans/SERVICE/ID/."""

import json
import pathlib
import shlex
from typing import Annotated

import typer

from llmdeploy import plan as planning
from llmdeploy.cli import plan_forecasts
from llmdeploy.cli.context import Json
from llmdeploy.cli.loading import Loaded, load, read
from llmdeploy.cli.plan_files import write
from llmdeploy.cli.plan_model import stored_model
from llmdeploy.edge.clock import SystemClock
from llmdeploy.edge.local import LocalShell
from llmdeploy.estimate.calibration import Forecast
from llmdeploy.facts.bundle import Bundle
from llmdeploy.facts.collect import Depth, collect
from llmdeploy.plan.document import Plan
from llmdeploy.plan.report import table

app = typer.Typer()


@app.command()
def plan(
    service: Annotated[str, typer.Argument(help="path of service.yaml")],
    facts: Annotated[
        str | None,
        typer.Option(help="facts bundle of `preflight --out`: has measured speeds; asks no host"),
    ] = None,
    inventory: Annotated[
        str | None,
        typer.Option(help="cluster.yaml with declared devices, instead of the service's own"),
    ] = None,
    forecasts: plan_forecasts.Forecasts = None,
    out: Annotated[str, typer.Option(help="folder for plans")] = "plans",
    as_json: Json = False,
    state_root: Annotated[
        str | None,
        typer.Option(envvar="LLMDEPLOY_STATE_ROOT", help="wins over cluster.yaml's state_root"),
    ] = None,
) -> None:
    """Decide what runs where and why: memory, batch, replicas, promises.

    The same input gives the same plan under the same id. Exits 0 with a plan, 3 where the
    service does not fit: then it says the smallest changes that would.
    """
    records = plan_forecasts.given(forecasts)
    if inventory is not None:
        from llmdeploy.cli.plan_cluster import plan_cluster  # its estimates: 0.1 s to import

        made = plan_cluster(service, inventory, facts=facts, state_root=state_root, records=records)
    else:
        made = _for_one_host(service, facts, state_root, records=records)
    own = () if records else plan_forecasts.kept(made)
    folder, changed = write(made, out, records=records or own)
    if as_json:
        typer.echo(json.dumps({"id": made.id, **made.model_dump(mode="json", by_alias=True)}))
    else:
        typer.echo(table(made), nl=False)
    typer.echo(f"{folder}: {'written' if changed else 'unchanged'}", err=True)
    plan_forecasts.show(made, records, own)
    if made.cluster is None:
        typer.echo(shlex.join(["next:", "llmdeploy", "launch", folder]), err=True)
    elif made.replicas[0].serve.engine != "embedded":
        words = ["next:", "llmdeploy", "launch", folder, "--inventory", str(inventory)]
        typer.echo(shlex.join(words), err=True)


def _for_one_host(
    service: str, facts: str | None, state_root: str | None, *, records: tuple[Forecast, ...]
) -> Plan:
    loaded = load(service, state_root=state_root)
    root, name = loaded.inventory.model_store, loaded.service.model.id
    model = stored_model(root, name, service=service)
    bundle = _given(facts) if facts else _asked(loaded)
    return planning.make(loaded.service, loaded.inventory, bundle, model, forecasts=records)


def _given(path: str) -> Bundle:
    return read(pathlib.Path(path).expanduser(), Bundle, example="a bundle of `preflight --out`")


def _asked(loaded: Loaded) -> Bundle:
    """Facts without measured speeds: those differ from one asking to the next, and so would
    the plan's id."""
    return collect(
        loaded.inventory.gateway_host.name,
        loaded.python,
        loaded.paths,
        depth=Depth.IMPORT,
        shell=LocalShell(),
        clock=SystemClock(),
    )

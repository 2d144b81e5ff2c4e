"""`llmdeploy rollback`: gives all traffic back to the previous release."""

from typing import Annotated

import typer

from llmdeploy.cli.context import STATE_ROOT, Json, StateRoot, Yes, ask, service_site
from llmdeploy.rollout.back import rollback as give_back
from llmdeploy.rollout.back import way_back
from llmdeploy.units import show_seconds

app = typer.Typer()


@app.command()
def rollback(
    name: Annotated[str, typer.Argument(help="the service's name")],
    reason: Annotated[str, typer.Option(help="kept in the journal")] = "asked for",
    yes: Yes = False,
    as_json: Json = False,
    state_root: StateRoot = STATE_ROOT,
) -> None:
    """Give all traffic back to the previous release.

    While a gray release is on, the live release takes all. No engine is started and no request in
    flight is cut. Exits 3 where there is nothing to go back to.
    """
    site = service_site(name, state_root)
    way = way_back(name, site=site)
    ask(f"Give all traffic of {name} to release {way.to.id}, none to {way.rolled_back.id}?",
        yes=yes)  # fmt: skip
    returned = give_back(way, reason=reason, site=site)
    if as_json:
        typer.echo(returned.model_dump_json())
        return
    typer.echo(
        f"{name}: release {returned.release} has all traffic, {returned.rolled_back} none; "
        f"confirmed by the gateway after {show_seconds(returned.took_s)}"
    )

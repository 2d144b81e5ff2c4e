"""`llmdeploy verify`: accepts a release, then gives it traffic step by step."""

from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import typer

from llmdeploy.cli.context import STATE_ROOT, Json, StateRoot, Yes, ask, service_site
from llmdeploy.cli.values import with_unit
from llmdeploy.errors import Held, Refused
from llmdeploy.rollout.gray import Options
from llmdeploy.rollout.gray import verify as run
from llmdeploy.rollout.outcome import Outcome, Result
from llmdeploy.units import parse_seconds

app = typer.Typer()

EXIT_CODES = {
    Result.REJECTED: Refused.exit_code,
    Result.ROLLED_BACK: Refused.exit_code,
    Result.HELD: Held.exit_code,
}
"""The answers that are not yes."""


@app.command()
def verify(
    name: Annotated[str, typer.Argument(help="the service's name")],
    release: Annotated[
        str | None, typer.Option(help="its id; the newest candidate where left out")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="one look at the present step")] = False,
    timeout: Annotated[str, typer.Option(help="over all steps, such as 90s or 2h")] = "30min",
    yes: Yes = False,
    as_json: Json = False,
    state_root: StateRoot = STATE_ROOT,
) -> None:
    """Accept a release, then give it traffic step by step, judged at each.

    Exits 0 when it has all traffic, 3 when it was refused or rolled back, 5 when it is held at a
    step for want of evidence or time: run it again and it goes on from there.
    """
    timeout_s = with_unit(parse_seconds, timeout, option="--timeout", example="30min")
    site = service_site(name, state_root)
    ask(f"Accept the release of {name} and give it traffic step by step?", yes=yes)
    executor = ThreadPoolExecutor(max_workers=4)
    try:
        outcome = run(
            release,
            Options(timeout_s=timeout_s, once=once),
            report=lambda line: typer.echo(line, err=True),
            executor=executor,
            site=site,
        )
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
    show(outcome, as_json=as_json)
    raise typer.Exit(EXIT_CODES.get(outcome.result, 0))


def show(outcome: Outcome, *, as_json: bool) -> None:
    """The outcome on stdout: the artefact, or its words with acceptance's findings."""
    if as_json:
        typer.echo(outcome.model_dump_json(by_alias=True))
        return
    failed = outcome.acceptance.failed if outcome.acceptance else ()
    for finding in failed:
        typer.echo(f"{finding.status} {finding.check}: {finding.found}; needed {finding.needed}")
    typer.echo(outcome.words())
    fixes = dict.fromkeys(finding.fix for finding in failed if finding.fix)
    for fix in fixes:  # most have the same one
        typer.echo(f"hint: {fix}", err=True)

"""`llmdeploy preflight`: asks every host once, judges what it says, shows what is to be done."""

import pathlib
from typing import Annotated

import typer

from llmdeploy.cli.loading import load_hosts, read
from llmdeploy.cli.measuring import gather, planned_by
from llmdeploy.cli.values import with_unit
from llmdeploy.edge.local import LocalShell
from llmdeploy.errors import Refused
from llmdeploy.facts.active.measure import Level
from llmdeploy.facts.bundle import Bundle
from llmdeploy.facts.collect import PROBE_TIMEOUT_S
from llmdeploy.facts.compare import changes
from llmdeploy.facts.examine import examine
from llmdeploy.facts.report import summary, table
from llmdeploy.facts.report_html import render
from llmdeploy.facts.waiver import Waivers
from llmdeploy.inventory import Waiver
from llmdeploy.units import parse_seconds

app = typer.Typer(add_completion=False)
LEAST_DEADLINE = "1s"
"""Of what a host may be given. Source: own choice: less is a slip of the unit."""


@app.command()
def preflight(
    service: Annotated[str, typer.Argument(help="path of service.yaml")],
    as_json: Annotated[bool, typer.Option("--json", help="print findings and facts")] = False,
    out: Annotated[str | None, typer.Option(help="write the facts bundle to this file")] = None,
    replay: Annotated[
        str | None, typer.Option("--from", help="judge this facts bundle; ask no host")
    ] = None,
    level: Annotated[
        Level, typer.Option(help="ask only, also test between hosts, also test their devices")
    ] = Level.STANDARD,
    quick: Annotated[bool, typer.Option("--quick", help="the same as --level quick")] = False,
    html: Annotated[str | None, typer.Option(help="write a report to this HTML file")] = None,
    against: Annotated[
        str | None, typer.Option(help="tell what changed since this bundle of a good run")
    ] = None,
    plan: Annotated[
        str | None, typer.Option(help="folder of a plan: ask whether it fits these hosts")
    ] = None,
    waivers: Annotated[
        str | None, typer.Option(help="YAML of checks that do not count until a day, and why")
    ] = None,
    deadline: Annotated[
        str, typer.Option(help="for each host's answer, like 30s or 2min")
    ] = f"{PROBE_TIMEOUT_S:g}s",
    state_root: Annotated[
        str | None,
        typer.Option(envvar="LLMDEPLOY_STATE_ROOT", help="wins over cluster.yaml's state_root"),
    ] = None,
) -> None:
    """Ask every host once: facts, checks, findings.

    Exits 0 where the service can start, 3 where a check blocks it.
    """
    loaded = load_hosts(service, state_root=state_root)
    planned, deadline_s = planned_by(plan), _deadline_s(deadline)
    waived, before = _waivers(waivers), _bundle(against) if against else None
    if replay:
        bundle = _bundle(replay)
    else:
        depth = Level.QUICK if quick else level
        bundle = gather(loaded, planned(None), level=depth, timeout_s=deadline_s)
    report = examine(
        bundle,
        service=loaded.service,
        inventory=loaded.inventory,
        planned=planned(bundle),
        waivers=waived,
    )
    changed = changes(before, bundle) if before else None
    if as_json:
        typer.echo(report.model_dump_json(by_alias=True, indent=2))
    else:
        typer.echo(table(report, changes=changed), nl=False)
    if out:  # what took minutes is shown first: the disk may be full
        LocalShell().write(out, f"{bundle.model_dump_json(by_alias=True, indent=2)}\n".encode())
    if html:
        LocalShell().write(html, render(report, changes=changed).encode())
    if not report.fit:
        first = next(f for f in report.findings if f.check == report.blocked_by[0])
        raise Refused(summary(report), fix=f"{first.check}: {first.fix}")


def _deadline_s(text: str) -> float:
    return with_unit(parse_seconds, text, option="--deadline", example="30s", least=LEAST_DEADLINE)


def _bundle(path: str) -> Bundle:
    place = pathlib.Path(path).expanduser()
    return read(place, Bundle, example="a bundle of `preflight --out`")


def _waivers(path: str | None) -> tuple[Waiver, ...]:
    if path is None:
        return ()
    example = "waivers: [{check: os.swap, reason: swap is zram here, until: 2027-01-31}]"
    return read(pathlib.Path(path).expanduser(), Waivers, example=example).waivers

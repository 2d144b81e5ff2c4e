"""`llmdeploy status`: shows releases, weights, health and key figures."""

import json
from collections.abc import Sequence
from shutil import get_terminal_size
from typing import Annotated

import typer

from llmdeploy.cli.balance_table import balance
from llmdeploy.cli.context import STATE_ROOT, Json, StateRoot, service_names, service_site
from llmdeploy.errors import LlmDeployError
from llmdeploy.rollout.overview import WINDOW_S, Overview, ReleaseView, overview
from llmdeploy.units import show_ratio, show_seconds

app = typer.Typer()
TITLES = (
    "release", "standing", "phase", "traffic", "health", "restarts", "requests", "failed",
    "TTFT p50/p95", "TPOT p50", "tokens/s", "running", "waiting", "KV",
)  # fmt: skip
STATE_COLUMNS = 8
"""Of the titles: what a release is and had; the others are its speeds."""
WIDEST = 200
"""Columns where no terminal says how many it has."""


@app.command()
def status(
    name: Annotated[str | None, typer.Argument(help="the service; all where left out")] = None,
    as_json: Json = False,
    state_root: StateRoot = STATE_ROOT,
) -> None:
    """Show releases, weights, health and key figures.

    Figures are of clients' requests in the last five minutes; probes are not among them.
    """
    names = (name,) if name else service_names(state_root)
    seen, failed = [], None
    for one in names:
        try:
            seen.append(overview(site=service_site(one, state_root)))
        except LlmDeployError as error:
            if name:
                raise
            failed = error
            typer.echo(f"{one}: {error}\nhint: {error.fix}", err=True)
    if as_json:
        whole = [json.loads(one.model_dump_json()) for one in seen]
        typer.echo(json.dumps(whole[0] if name else whole))
    elif not names:
        typer.echo("no service here; launch a plan first, or give --state-root")
    else:
        for each in seen:
            show(each)
    if failed is not None:
        raise typer.Exit(failed.exit_code)


def show(seen: Overview) -> None:
    """One service on stdout, hints on stderr."""
    runs = "runs" if seen.gateway_running else "does not run"
    sure = "" if seen.weights_confirmed else "; weights not confirmed yet"
    typer.echo(f"{seen.service}: gateway {seen.address or '-'} {runs}{sure}")
    for line in lines(seen.releases, width=get_terminal_size((WIDEST, 0)).columns):
        typer.echo(line)
    for release in seen.releases:
        for line in balance(release):
            typer.echo(line)
    typer.echo(f"figures of the last {show_seconds(WINDOW_S)}", err=True)
    if seen.locked_by:
        typer.echo(f"locked by {seen.locked_by}")
    for hint in seen.hints:
        typer.echo(f"hint: {hint}", err=True)


def lines(releases: tuple[ReleaseView, ...], *, width: int) -> list[str]:
    """The releases as a table; as two, state and speeds, where one is wider than the terminal."""
    rows = [TITLES, *map(_cells, releases)]
    shown = _columns(rows)
    if max(map(len, shown)) <= width:
        return shown
    speeds = [(row[0], *row[STATE_COLUMNS:]) for row in rows]
    return [*_columns([row[:STATE_COLUMNS] for row in rows]), *_columns(speeds)]


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _cells(view: ReleaseView) -> tuple[str, ...]:
    traffic, engine = view.traffic, view.engine
    health = {True: "good", False: "bad", None: "-"}[view.healthy]
    now = (engine.running, engine.waiting) if engine else ("-", "-")
    return (
        view.id,
        view.standing,
        view.phase,
        show_ratio(view.share),
        health,
        str(sum(p.restarts for p in view.processes)),
        str(traffic.requests),
        str(traffic.failed),
        f"{_time(traffic.ttft_p50_s)} / {_time(traffic.ttft_p95_s)}",
        _time(traffic.tpot_p50_s),
        f"{traffic.output_tokens_per_s:.1f}",
        *map(str, now),
        show_ratio(engine.kv_used_ratio) if engine else "-",
    )


def _time(duration_s: float | None) -> str:
    return "-" if duration_s is None else show_seconds(duration_s)

"""Forecasts against actuals for `llmdeploy plan`: read where given, shown where there are any."""

import pathlib
from collections.abc import Sequence
from typing import Annotated

import typer

from llmdeploy.cli.context import whole
from llmdeploy.edge.local import LocalShell
from llmdeploy.errors import InputError
from llmdeploy.estimate.calibration import FILE, Forecast, forecasts, told
from llmdeploy.plan.document import Plan

Forecasts = Annotated[
    str | None,
    typer.Option(help=f"{FILE} that verify wrote: scales predicted speeds by their median"),
]


def given(path: str | None) -> tuple[Forecast, ...]:
    """The records in the file of the option; none without it."""
    if path is None:
        return ()
    file = pathlib.Path(path).expanduser()
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"--forecasts {path}: found no readable file, needed the records of former releases",
            fix=f"give STATE_ROOT/SERVICE/{FILE}, which `llmdeploy verify` writes",
        ) from error
    return forecasts(text, place=str(file))


def kept(plan: Plan) -> tuple[Forecast, ...]:
    """The service's own records under the state root; none where there is no readable file."""
    path = _path(plan)
    text = LocalShell().read(path)
    if text is None:
        return ()
    try:
        return forecasts(text.decode(errors="replace"), place=path)
    except InputError as error:
        typer.echo(f"forecasts: {error}; {error.fix}", err=True)
        return ()


def show(plan: Plan, records: Sequence[Forecast], own: Sequence[Forecast]) -> None:
    """How far the last forecasts were off: of the file given, else of the service's own, which
    never changes a plan by itself: the same input has the same plan."""
    for words in told(records or own):
        typer.echo(f"forecasts: {words}", err=True)
    if own:
        typer.echo(f"forecasts: plan with them: --forecasts {_path(plan)}", err=True)


def _path(plan: Plan) -> str:
    return f"{whole(plan.state_root)}/{plan.service}/{FILE}"

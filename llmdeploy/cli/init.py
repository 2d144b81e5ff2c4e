"""`llmdeploy init`: writes a starter service.yaml and cluster.yaml, every key explained."""

import json
import pathlib
import shlex
from importlib.resources import files
from typing import Annotated

import typer

from llmdeploy.edge.local import LocalShell
from llmdeploy.errors import InputError

NAMES = ("service.yaml", "cluster.yaml")
app = typer.Typer(add_completion=False)


@app.command()
def init(
    folder: Annotated[
        str, typer.Option("--dir", help="folder to write them to; made where missing")
    ] = ".",
    as_json: Annotated[bool, typer.Option("--json", help="print the paths as JSON")] = False,
) -> None:
    """Write a starter service.yaml and cluster.yaml.

    Files that are there already are never overwritten: exit 2, nothing written.
    """
    target = pathlib.Path(folder).expanduser().absolute()
    paths = [str(target / name) for name in NAMES]
    for path in paths:
        if pathlib.Path(path).exists():
            raise InputError(
                f"{path}: found a file, needed none of {', '.join(NAMES)} there",
                fix=f"edit it, move it away, or write elsewhere: llmdeploy init --dir {folder}/new",
            )
    for path, name in zip(paths, NAMES, strict=True):
        text = files("llmdeploy.cli").joinpath("starter", name).read_bytes()
        if not LocalShell().create(path, text):
            raise InputError(f"{path}: appeared meanwhile", fix="run llmdeploy init again")
    if as_json:
        typer.echo(json.dumps({"written": paths}))
        return
    for path in paths:
        typer.echo(path)
    typer.echo(f"edit model.id, then: llmdeploy preflight {shlex.quote(paths[0])}", err=True)

"""`llmdeploy models`: puts models into the store, lists, checks and removes them."""

import json
import signal
import sys
from typing import Annotated

import typer

from llmdeploy import store as models
from llmdeploy.cli import models_forms
from llmdeploy.cli.context import Json, Yes, ask, whole
from llmdeploy.cli.models_forms import KeySource
from llmdeploy.edge.clock import SystemClock
from llmdeploy.edge.local import LocalShell
from llmdeploy.errors import Refused
from llmdeploy.inventory import Inventory
from llmdeploy.units import show_bytes

app = typer.Typer(no_args_is_help=True)
app.command()(models_forms.convert)
app.command("open")(models_forms.open_sealed)
Store = Annotated[str, typer.Option(help="folder of the model store")]
STORE = Inventory.model_fields["model_store"].default


@app.callback()
def group() -> None:
    """Put models into the store, list and check them."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a half-built folder is cleaned up


@app.command()
def add(
    id: Annotated[str, typer.Argument(help="id in the store, like smollm2-135m-instruct")],
    package: Annotated[str | None, typer.Option(help="installed package with a GGUF file")] = None,
    gguf: Annotated[str | None, typer.Option(help="GGUF file to convert")] = None,
    folder: Annotated[str | None, typer.Option(help="folder with safetensors to copy")] = None,
    hub: Annotated[
        str | None, typer.Option(help="Hugging Face id, owner/name or owner/name@revision")
    ] = None,
    store: Store = STORE,
    python: Annotated[str, typer.Option(help="Python with llmdeploy[engine]")] = sys.executable,
    key: KeySource = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Add a model as safetensors, with its tokenizer and a SHA-256 manifest.

    With --key its files are encrypted (AES-256-GCM); `models open` makes them servable.
    """
    wanted = models.wanted(
        package=package, gguf=gguf and whole(gguf), folder=folder and whole(folder), hub=hub
    )
    ask(f"Add {id} to {store} from {wanted.kind} {wanted.name}?", yes=yes)
    shell = LocalShell()
    put = models_forms.adding(key, shell)
    added = put(
        id,
        wanted,
        store=whole(store),
        python=python,
        report=lambda step: typer.echo(f"{id}: {step}", err=True),
        shell=shell,
        clock=SystemClock(),
    )
    manifest = added.model.manifest
    if as_json:
        typer.echo(manifest.model_dump_json(by_alias=True))
        return
    state = "added" if added.fresh else "already there, nothing changed"
    size = f"{manifest.parameters:,} parameters, {show_bytes(manifest.weights_bytes)}"
    sealed = ", sealed" if manifest.sealed else ""
    typer.echo(f"{manifest.id}: {state}: {size}, digest {manifest.digest[:12]}{sealed}")


@app.command("list")
def list_models(store: Store = STORE, as_json: Json = False) -> None:
    """List the models in the store."""
    found = models.models(store, shell=LocalShell())
    if as_json:
        typer.echo(json.dumps([m.manifest.model_dump(mode="json", by_alias=True) for m in found]))
        return
    if not found:
        typer.echo(f"no model in {store}; add one: llmdeploy models add --help", err=True)
    for model in found:
        manifest = model.manifest
        size = f"{manifest.parameters:,} parameters  {show_bytes(manifest.weights_bytes)}"
        row = (manifest.architecture, size, models_forms.form(manifest), manifest.digest[:12])
        typer.echo("  ".join((f"{model.folder.rpartition('/')[2]:24}", *row)))


@app.command()
def verify(id: str, store: Store = STORE, key: KeySource = None, as_json: Json = False) -> None:
    """Read every file of the model again and compare its SHA-256: exit 3 where one differs.

    A sealed model is checked as it lies there; with --key also what its files open to.
    """
    shell = LocalShell()
    model = models.load(f"{store}/{id}", shell)
    findings = models.verify(model, full=True, shell=shell)
    if as_json:
        typer.echo(json.dumps([finding.model_dump(mode="json") for finding in findings]))
    else:
        for finding in findings:
            typer.echo(f"{finding.status:5} {finding.subject}: {finding.found}")
    first = models.broken(findings)
    if first is not None:
        place = f"{store}/{id}/{first.subject}"
        raise Refused(f"{place}: found {first.found}, needed {first.needed}", fix=first.fix)
    if key:
        held = models.read_key(key, shell=shell)
        models.check_opens(model, held, python=sys.executable, shell=shell)


@app.command()
def remove(id: str, store: Store = STORE, yes: Yes = False) -> None:
    """Delete the model's folder from the store."""
    ask(f"Delete {store}/{id}?", yes=yes)
    models.remove(id, store=store, shell=LocalShell())
    typer.echo(f"{id}: removed")

"""Other forms of models: converted from GGUF, sealed with a key, opened into memory."""

import functools
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from llmdeploy import store as models
from llmdeploy.cli.context import Json, Yes, ask, whole
from llmdeploy.edge import Shell
from llmdeploy.edge.clock import SystemClock
from llmdeploy.edge.local import LocalShell
from llmdeploy.inventory import Inventory

KeySource = Annotated[
    str | None,
    typer.Option(help="key of sealed models: env:NAME, file:PATH or command:WORDS"),
]
OPENED = "/dev/shm/llmdeploy-models"
STORE = Inventory.model_fields["model_store"].default


def adding(key: str | None, shell: Shell) -> Callable[..., models.Added]:
    """How a model is added: as it is, or sealed with the key."""
    if key is None:
        return models.add
    held = models.read_key(key, shell=shell)

    @functools.wraps(models.add_sealed)
    def sealed(id: str, wanted: models.Wanted, **more: object) -> models.Added:
        return models.add_sealed(id, wanted, held, **more)  # type: ignore[arg-type]

    return sealed


def form(manifest: models.Manifest) -> str:
    """How its weights are held, in words."""
    words = (manifest.dtype, manifest.quantization, "sealed" if manifest.sealed else None)
    return " ".join(word for word in words if word)


def convert(
    gguf: Annotated[str, typer.Argument(help="GGUF file")],
    out: Annotated[str, typer.Option(help="folder to write, new or empty")],
    python: Annotated[str, typer.Option(help="Python with llmdeploy[engine]")] = sys.executable,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Convert a GGUF file to a folder of safetensors, outside the store."""
    ask(f"Convert {gguf} to {out}?", yes=yes)
    manifest = models.convert(
        models.wanted(package=None, gguf=whole(gguf), folder=None),
        out=whole(out),
        python=python,
        report=lambda step: typer.echo(step, err=True),
        shell=LocalShell(),
        clock=SystemClock(),
    )
    if as_json:
        typer.echo(manifest.model_dump_json(by_alias=True))
        return
    typer.echo(f"{whole(out)}: {manifest.parameters:,} parameters in {manifest.dtype}")


def open_sealed(
    id: Annotated[str, typer.Argument(help="id of a sealed model")],
    key: Annotated[str, typer.Option(help="env:NAME, file:PATH or command:WORDS")],
    store: Annotated[str, typer.Option(help="folder of the model store")] = STORE,
    to: Annotated[str, typer.Option(help="store in memory (tmpfs) to open it into")] = OPENED,
    yes: Yes = False,
) -> None:
    """Open a sealed model into memory, from where it is served; a restart of the host ends it."""
    shell = LocalShell()
    model = models.load(f"{whole(store)}/{id}", shell)
    ask(f"Open {id} into {to}?", yes=yes)
    held = models.read_key(key, shell=shell)
    opened = models.unseal(model, held, to=whole(to), python=sys.executable, shell=shell)
    typer.echo(f"{id}: open in {opened.folder}")
    typer.echo(
        f"next: set model_store: {whole(to)} in cluster.yaml; close it with: llmdeploy models "
        f"remove {id} --store {whole(to)}",
        err=True,
    )

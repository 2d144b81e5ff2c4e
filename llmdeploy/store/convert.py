"""Converts a GGUF file to a folder of safetensors, outside the store."""

from collections.abc import Callable

from llmdeploy.edge import Clock, Shell
from llmdeploy.errors import InputError
from llmdeploy.store.add import draft_of, fill, must
from llmdeploy.store.inspect import choose, inspect
from llmdeploy.store.manifest import Manifest
from llmdeploy.store.read import absolute
from llmdeploy.store.source import Wanted, locate


def convert(
    wanted: Wanted,
    *,
    out: str,
    python: str,
    report: Callable[[str], None],
    shell: Shell,
    clock: Clock,
) -> Manifest:
    """What the folder `out` holds then, checked as the store would; InputError where it is there.

    Whole or not at all: it is built beside its place.
    """
    out = absolute(out, shell=shell)
    if shell.entries(out):
        raise InputError(f"{out}: found files in it, needed an empty folder", fix="choose another")
    parent, _, name = out.rpartition("/")
    found = locate(wanted, python=python, shell=shell)
    with draft_of(name, parent or "/", shell) as draft:
        fill(draft, found, python=python, report=report, shell=shell)
        report("checking headers, configuration and hashes")
        names, at_s = choose(shell.entries(draft), place=draft), clock.now_s()
        manifest = inspect(draft, names, id=name, source=found.source, at_s=at_s, shell=shell)
        must(shell.run(["mv", "-T", draft, out], timeout_s=60), place=out)
    return manifest

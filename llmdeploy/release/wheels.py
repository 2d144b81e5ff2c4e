"""A folder of wheels on this machine, as it is sent to hosts that have no package index."""

import hashlib
from dataclasses import dataclass

from llmdeploy.document import Document
from llmdeploy.edge import Shell
from llmdeploy.errors import InputError
from llmdeploy.store import ModelFile, Sealed
from llmdeploy.store.inspect import hashes, sizes_bytes


class Bundle(Document):
    """The wheels with their hashes: a parcel of a transfer."""

    id: str
    files: tuple[ModelFile, ...]

    @property
    def stored(self) -> tuple[ModelFile, ...]:
        """The files as they are sent."""
        return self.files

    @property
    def sealed(self) -> Sealed | None:
        """Wheels are no secret."""
        return None

    @property
    def digest(self) -> str:
        """Of the names and contents."""
        lines = "".join(f"{file.name} {file.sha256}\n" for file in self.files)
        return hashlib.sha256(lines.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheels:
    """A bundle and the folder where it lies here."""

    manifest: Bundle
    folder: str


def read_wheels(name: str, folder: str, *, shell: Shell) -> Wheels:
    """The folder's wheels; InputError where it has none, or packages that hosts would compile."""
    entries = shell.entries(folder)
    names = [entry for entry in entries if entry.endswith(".whl")]
    if not names:
        raise InputError(
            f"{folder}: found no wheel among {len(entries)} files, needed those of environment "
            f"{name}",
            fix=f"pip download --only-binary :all: --dest {folder} REQUIREMENTS, on a machine like "
            "the hosts",
        )
    sources = [entry for entry in entries if entry.endswith((".tar.gz", ".zip"))]
    if sources:
        raise InputError(
            f"{folder}: found {sources[0]}, needed wheels alone: hosts compile nothing",
            fix=f"pip wheel --no-deps --wheel-dir {folder} {folder}/{sources[0]}, then remove it",
        )
    sizes, sums = sizes_bytes(folder, names, shell=shell), hashes(folder, names, shell=shell)
    files = tuple(ModelFile(name=n, size_bytes=sizes[n], sha256=sums[n]) for n in sorted(names))
    return Wheels(manifest=Bundle(id=name, files=files), folder=folder)

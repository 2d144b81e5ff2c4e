"""A sealed model in plain for one release: in the memory of each host that serves it, and gone
with it."""

from llmdeploy import store
from llmdeploy.edge import Shell
from llmdeploy.errors import Refused
from llmdeploy.release.site import Station
from llmdeploy.release.together import together
from llmdeploy.store import Key, Model


def folder(release_id: str) -> str:
    """A store in memory that is this release's alone: another's stop must not close it."""
    return f"{store.MEMORY}/llmdeploy-open-{release_id}"


def check_key(model: Model, key: Key | None) -> None:
    """Refused where the model is sealed and the key is not the one that opens it."""
    sealed = model.manifest.sealed
    if sealed is None or (key is not None and key.id == sealed.key_id):
        return
    found = f"the key {key.id[:12]}" if key is not None else "no key"
    raise Refused(
        f"{model.folder}: found {found}, needed {sealed.key_id[:12]}: its files are sealed",
        fix="give where the key is that it was added with: --key file:model.key (or env:, "
        "command:)",
    )


def open_here(model: Model, key: Key | None, release_id: str, *, python: str, shell: Shell) -> str:
    """The folder with the model's plain files: its own, or one in the host's memory."""
    if model.manifest.sealed is None:
        return model.folder
    check_key(model, key)
    assert key is not None, "checked"
    return store.unseal(model, key, to=folder(release_id), python=python, shell=shell).folder


def open_on(
    model: Model,
    folders: dict[str, str],
    key: Key | None,
    *,
    release_id: str,
    stations: tuple[Station, ...],
) -> dict[str, str]:
    """By host the folder with the plain files; `folders` are where the model was brought to."""

    def one(station: Station) -> str:
        there = Model(manifest=model.manifest, folder=folders[station.name])
        python, shell = station.python, station.shell
        return open_here(there, key, release_id, python=python, shell=shell)

    names = (station.name for station in stations)
    return dict(zip(names, together(one, stations), strict=True))


def close(release_id: str, *, shell: Shell) -> None:
    """No plain file of the release is left on the host."""
    shell.remove(folder(release_id))

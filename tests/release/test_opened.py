"""A sealed model launched: copied sealed, opened in memory with the key alone, closed by a stop."""

import json
import pathlib
import sys

import pytest

from llmdeploy import store
from llmdeploy.edge.local import LocalShell
from llmdeploy.errors import Refused
from llmdeploy.onhost import pass_on
from llmdeploy.release import group_stop, hop, opened, stop, transfer
from llmdeploy.release.state import Endpoint, Phase, ReleaseState, Standing
from llmdeploy.store import Key, Manifest, Model, ModelFile, Sealed
from tests.fakes import FakeClock, FakeShell

from ..store.tiny_model import write_model
from .made import manifest
from .test_groups import site

KEY = Key(secret=bytes(range(32)))
OTHER = Key(secret=bytes(32))


def sealed_manifest() -> Manifest:
    files = tuple(
        ModelFile(name=f"{file.name}.sealed", size_bytes=file.size_bytes + 40, sha256=letter * 64)
        for file, letter in zip(manifest().files, "ab", strict=True)
    )
    return manifest().model_copy(update={"sealed": Sealed(key_id=KEY.id, files=files)})


def release() -> ReleaseState:
    endpoint = Endpoint(replica="r0", host="h1", address="10.0.0.1", port=21000)
    return ReleaseState(
        id="0123456789ab", phase=Phase.FAILED, standing=Standing.CANDIDATE, port_block=0,
        core_slot=None, endpoints=(endpoint,), changed_s=0.0,
    )  # fmt: skip


def test_hosts_get_the_sealed_files_in_a_folder_of_their_own() -> None:
    part = hop.hop(site("h2").stations[0])
    orders = transfer.spec(sealed_manifest(), part, token="x", source=None, guests=0)
    read = pass_on.load(json.dumps(orders))
    assert read.folder == f"/models/tiny@{manifest().digest[:12]}.sealed"
    assert [file.name for file in read.files] == ["config.json.sealed", "model.safetensors.sealed"]
    assert Manifest.model_validate_json(read.manifest) == sealed_manifest()


def test_a_plain_copy_on_a_host_is_not_taken_for_the_sealed_one() -> None:
    part = hop.hop(site("h2").stations[0])
    shell = part.station.shell
    assert isinstance(shell, FakeShell)
    shell.files["/models/tiny/manifest.json"] = manifest().model_dump_json(by_alias=True).encode()
    assert hop.there_already(sealed_manifest(), part) is None


def test_a_sealed_model_needs_its_own_key_and_a_plain_one_none() -> None:
    model = Model(manifest=sealed_manifest(), folder="/store/tiny")
    with pytest.raises(Refused, match=f"found no key, needed {KEY.id[:12]}") as failed:
        opened.check_key(model, None)
    assert "--key file:model.key" in failed.value.fix
    with pytest.raises(Refused, match=f"found the key {OTHER.id[:12]}, needed {KEY.id[:12]}"):
        opened.check_key(model, OTHER)
    opened.check_key(model, KEY)
    plain = Model(manifest=manifest(), folder="/store/tiny")
    shell = FakeShell()
    assert opened.open_here(plain, None, "r", python="python", shell=shell) == "/store/tiny"
    assert shell.ran == []


def test_a_hosts_memory_has_the_plain_files_until_they_are_closed(tmp_path: pathlib.Path) -> None:
    given, shell = write_model(tmp_path / "given"), LocalShell()
    wanted = store.wanted(package=None, gguf=None, folder=str(given))
    added = store.add_sealed(
        "tiny", wanted, KEY, store=str(tmp_path / "store"), python=sys.executable,
        report=lambda step: None, shell=shell, clock=FakeClock(),
    )  # fmt: skip
    name = f"test-{tmp_path.name}"
    try:
        where = opened.open_here(added.model, KEY, name, python=sys.executable, shell=shell)
        assert where == f"{opened.folder(name)}/tiny"
        weights = pathlib.Path(where, "model.safetensors").read_bytes()
        assert weights == (given / "model.safetensors").read_bytes()
        assert pathlib.Path(opened.folder(name)).stat().st_mode & 0o777 == 0o700
    finally:
        opened.close(name, shell=shell)
    assert not pathlib.Path(opened.folder(name)).exists()


def test_a_stop_closes_what_its_release_opened_on_every_host() -> None:
    where, mine = site("h1", "h2"), f"{opened.folder(release().id)}/tiny/config.json"
    other = f"{opened.folder('another')}/tiny/config.json"
    for station in where.stations:
        assert isinstance(station.shell, FakeShell)
        station.shell.files |= {mine: b"{}", other: b"{}"}
    group_stop.stop_programs(release(), site=where)
    for station in where.stations:
        assert isinstance(station.shell, FakeShell)
        assert set(station.shell.files) == {other}


def test_a_stop_on_one_host_closes_it_too() -> None:
    where = site()
    assert isinstance(where.shell, FakeShell)
    where.shell.files[f"{opened.folder(release().id)}/tiny/config.json"] = b"{}"
    stop.stop_release(release(), reason="stopped", site=where)
    assert where.shell.files == {}

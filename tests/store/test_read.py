"""What is in the store: listed, verified, removed."""

import pathlib

import pytest

from llmdeploy import store as models
from llmdeploy.edge import Completed
from llmdeploy.edge.local import LocalShell
from llmdeploy.errors import InputError
from llmdeploy.facts.finding import Status

from ..fakes import FakeClock, FakeShell
from .tiny_model import write_model


@pytest.fixture
def model(tmp_path: pathlib.Path) -> models.Model:
    wanted = models.Wanted(kind="folder", name=str(write_model(tmp_path / "given")))
    added = models.add(
        "tiny", wanted, store=str(tmp_path / "store"), python="python",
        report=lambda step: None, shell=LocalShell(), clock=FakeClock(),
    )  # fmt: skip
    return added.model


def statuses(model, *, full):
    findings = models.verify(model, full=full, shell=LocalShell())
    return {finding.subject: finding.status for finding in findings}


def test_a_whole_model_passes_both_ways(model):
    assert set(statuses(model, full=False).values()) == {Status.PASS}
    assert set(statuses(model, full=True).values()) == {Status.PASS}


def test_a_changed_byte_shows_only_when_all_is_read(model):
    path = pathlib.Path(model.folder) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    assert statuses(model, full=False)["model.safetensors"] == Status.PASS
    assert statuses(model, full=True)["model.safetensors"] == Status.FAIL


@pytest.mark.parametrize("full", [False, True])
def test_a_shortened_and_a_missing_file_fail_with_both_values(model, full):
    folder = pathlib.Path(model.folder)
    (folder / "tokenizer.json").write_text("")
    (folder / "config.json").unlink()
    findings = {f.subject: f for f in models.verify(model, full=full, shell=LocalShell())}
    assert (findings["tokenizer.json"].found, findings["tokenizer.json"].needed) == (
        "0 bytes",
        "2 bytes",
    )
    assert findings["config.json"].found == "no such file"
    assert models.broken(findings.values()).subject == "config.json"
    assert "models remove tiny" in findings["config.json"].fix


def test_a_strange_file_is_a_warning(model):
    (pathlib.Path(model.folder) / "evil.bin").write_text("x")
    assert statuses(model, full=False)["evil.bin"] == Status.WARN


def test_a_model_that_is_not_there_is_refused_with_those_that_are(model):
    store = model.folder.rpartition("/")[0]
    with pytest.raises(InputError, match="no such model, found in the store: tiny") as error:
        models.load(f"{store}/big", LocalShell())
    assert "models add big" in error.value.fix


def test_what_is_being_added_is_not_listed(model):
    store = pathlib.Path(model.folder).parent
    (store / ".adding.other.x").mkdir()
    (store / "stray").mkdir()
    assert models.ids(str(store), shell=LocalShell()) == ("tiny",)
    assert [m.manifest.id for m in models.models(str(store), shell=LocalShell())] == ["tiny"]


def test_a_removed_model_is_gone_and_cannot_be_removed_twice(model):
    store = model.folder.rpartition("/")[0]
    models.remove("tiny", store=store, shell=LocalShell())
    assert not pathlib.Path(model.folder).exists()
    with pytest.raises(InputError, match="no such model"):
        models.remove("tiny", store=store, shell=LocalShell())


def test_an_unreadable_manifest_is_named(model):
    (pathlib.Path(model.folder) / "manifest.json").write_text('{"schema": 1}')
    with pytest.raises(InputError, match=r"manifest\.json: id: is missing"):
        models.load(model.folder, LocalShell())


def test_a_home_in_a_path_is_the_hosts():
    shell = FakeShell(
        on_run=lambda argv, stdin: Completed(
            argv=argv, exit_code=0, stdout="/home/runner", stderr=""
        )
    )
    assert models.absolute("~/models", shell=shell) == "/home/runner/models"
    assert models.absolute("/models/", shell=shell) == "/models"

"""Models come from a Hugging Face hub: whole, as the hub states them, or not at all."""

import pytest

from llmdeploy import store as models
from llmdeploy.edge.local import LocalShell
from llmdeploy.errors import InputError, Refused, Unreachable
from llmdeploy.store.program_fetch import check_room

from .fake_hub import COMMIT, FakeHub
from .test_add import add, left_in_store
from .tiny_model import write_model

NAME = "tiny-org/tiny-chat"
EMPTY = ("HF_TOKEN", "HF_HUB_OFFLINE", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy",
         "ALL_PROXY", "all_proxy")  # fmt: skip


@pytest.fixture
def files(tmp_path):
    folder = write_model(tmp_path / "given")
    (folder / "pytorch_model.bin").write_bytes(b"a pickle")
    (folder / "README.md").write_text("not part of the model")
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    for name in EMPTY:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    return monkeypatch


@pytest.fixture
def hub(files, environment):
    with FakeHub(NAME, files) as running:
        environment.setenv("HF_ENDPOINT", running.url)
        yield running


def from_hub(name=NAME):
    return models.wanted(package=None, gguf=None, folder=None, hub=name)


def test_a_model_is_fetched_from_the_endpoint_with_its_commit(tmp_path, hub):
    added = add(tmp_path, from_hub())
    manifest = added.model.manifest
    assert added.fresh
    assert manifest.source == models.Source(kind="hub", name=f"{NAME}@{COMMIT}")
    assert [file.name for file in manifest.files] == [
        "config.json", "model.safetensors", "tokenizer.json",
    ]  # fmt: skip
    assert not any("pytorch_model.bin" in asked for asked in hub.asked if "/resolve/" in asked)
    assert left_in_store(tmp_path) == ["tiny"]
    assert models.broken(models.verify(added.model, full=True, shell=LocalShell())) is None


def test_the_second_add_of_the_same_commit_changes_nothing(tmp_path, hub):
    first = add(tmp_path, from_hub())
    second = add(tmp_path, from_hub(f"{NAME}@main"))
    assert (second.fresh, second.model) == (False, first.model)
    assert left_in_store(tmp_path) == ["tiny"]


def test_a_file_that_is_not_what_the_hub_states_is_refused_and_fetched_anew(tmp_path, hub):
    hub.stated["model.safetensors"] = "0" * 64
    with pytest.raises(Refused, match=r"model\.safetensors: found sha256 .*, the hub states 0000"):
        add(tmp_path, from_hub())
    hub.stated.clear()
    assert add(tmp_path, from_hub()).fresh
    assert left_in_store(tmp_path) == ["tiny"]


def test_a_model_that_is_closed_says_how_to_open_it(tmp_path, files, environment):
    with FakeHub(NAME, files, token="secret-token") as closed:
        environment.setenv("HF_ENDPOINT", closed.url)
        with pytest.raises(Refused, match="not open to this account") as error:
            add(tmp_path, from_hub())
        assert "HF_TOKEN" in error.value.fix
        environment.setenv("HF_TOKEN", "secret-token")
        assert add(tmp_path, from_hub()).fresh


def test_offline_it_comes_from_the_clients_cache_or_is_said_to_be_missing(
    tmp_path, hub, environment
):
    environment.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(Unreachable, match="not in the cache and offline") as error:
        add(tmp_path, from_hub())
    assert "--folder" in error.value.fix
    cache = tmp_path / "hf" / "hub" / f"models--{NAME.replace('/', '--')}"
    snapshot = cache / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text(COMMIT)
    for name, content in hub.files.items():
        (snapshot / name).write_bytes(content)
    hub.asked.clear()
    added = add(tmp_path, from_hub())
    assert added.model.manifest.source.name == f"{NAME}@{COMMIT}"
    assert hub.asked == []
    assert (snapshot / "config.json").exists()


def test_an_endpoint_that_does_not_answer_is_said_to_be_that(tmp_path, environment):
    environment.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(Unreachable, match=NAME) as error:
        add(tmp_path, from_hub())
    assert "HF_ENDPOINT" in error.value.fix


def test_a_repository_that_is_not_there_is_bad_input(tmp_path, hub):
    with pytest.raises(InputError, match="RepositoryNotFound"):
        add(tmp_path, from_hub("tiny-org/nothing"))


def test_a_disk_without_room_is_told_before_anything_is_fetched(tmp_path):
    with pytest.raises(OSError, match=r"NoRoom: .* bytes free, needed 1000000000000000009"):
        check_room(
            str(tmp_path),
            {"a.safetensors": 10**18, "tokenizer.json": 9, "b.bin": 5},
            ["*.safetensors", "tokenizer.json"],
        )
    check_room(str(tmp_path), {"a.safetensors": 10, "b.bin": 10**18}, ["*.safetensors"])


def test_a_hub_that_needs_more_room_is_refused_with_both_sizes(tmp_path, hub):
    class Full(LocalShell):
        def run(self, argv, **kwargs):
            text = kwargs.get("stdin", "").replace("shutil.disk_usage(folder).free", "3")
            return super().run(argv, **{**kwargs, "stdin": text})

    with pytest.raises(Refused, match="3 bytes free, needed") as error:
        add(tmp_path, from_hub(), shell=Full())
    assert "--store" in error.value.fix
    assert not any("/resolve/" in asked for asked in hub.asked)


@pytest.mark.parametrize("name", ["tiny", "a/b/c", "../up/x", "a b/c", "-x"])
def test_what_is_no_repository_is_refused(name):
    with pytest.raises(InputError, match="--hub"):
        from_hub(name)

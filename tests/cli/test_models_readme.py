"""What the README shows of models is what the commands print."""

import pathlib
import re
import shutil

import pytest
from typer.testing import CliRunner

from llmdeploy.cli.app import app

from ..store.fake_hub import FakeHub
from ..store.tiny_model import write_model

README = pathlib.Path(__file__).parents[2] / "README.md"
MEMORY = pathlib.Path("/dev/shm/llmdeploy-readme")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with the files that the commands name, and a hub that has the model."""
    given = write_model(tmp_path / "given")
    write_model(tmp_path / "tuned", max_position_embeddings=64)
    (tmp_path / "model.key").write_text("ab" * 32)
    (tmp_path / "model.key").chmod(0o600)
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    monkeypatch.chdir(tmp_path)
    files = {path.name: path.read_bytes() for path in given.iterdir()}
    with FakeHub("tiny-org/tiny-chat", files) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        yield tmp_path
    shutil.rmtree(MEMORY, ignore_errors=True)


def test_the_readme_shows_what_they_print(place, request):
    section = re.search(r"<!-- models -->\n(.*)<!-- /models -->", README.read_text(), re.DOTALL)
    commands = re.findall(r"^llmdeploy (.*)$", section[1], re.MULTILINE)
    shown = ""
    for command in commands:
        ended = CliRunner().invoke(app, command.split())
        assert ended.exit_code == 0, ended.output
        shown += ended.stdout.replace(f"{place}/", "")
    lines = "".join(f"llmdeploy {command}\n" for command in commands)
    block = f"```\n{lines}```\n\n```\n{shown}```\n"
    if request.config.getoption("--update-golden"):
        README.write_text(README.read_text().replace(section[1], block))
    else:
        assert section[1] == block

"""Models encrypted at rest: nothing plain on a disk, nothing opened without the key."""

import base64
import pathlib
import sys

import pytest

from llmdeploy import store as models
from llmdeploy.edge.local import LocalShell
from llmdeploy.errors import InputError, Refused
from llmdeploy.store.program_seal import PIECE_BYTES

from ..fakes import FakeClock
from .test_add import CONVERTER, from_folder, gguf_beside_model, left_in_store, program
from .tiny_model import write_model

KEY = models.Key(secret=bytes(range(32)))
SHELL = LocalShell()


def seal(tmp_path, wanted, *, key=KEY, id="tiny", python=sys.executable, shell=SHELL):
    return models.add_sealed(
        id,
        wanted,
        key,
        store=str(tmp_path / "store"),
        python=str(python),
        report=lambda step: None,
        shell=shell,
        clock=FakeClock(),
    )


class Recorder(LocalShell):
    """Keeps what was run, and which temporary folders were made."""

    def __init__(self):
        self.ran, self.made = [], []

    def run(self, argv, **kwargs):
        self.ran.append((tuple(argv), dict(kwargs.get("env") or {})))
        ended = super().run(argv, **kwargs)
        if argv[0] == "mktemp":
            self.made.append(ended.stdout.strip())
        return ended


@pytest.fixture
def given(tmp_path):
    folder = write_model(tmp_path / "given")
    marked = b'{"mark": "' + b"plain words " * (PIECE_BYTES // 8) + b'"}'
    (folder / "tokenizer.json").write_bytes(marked)  # more than one piece
    return folder


@pytest.fixture
def memory():
    folder = pathlib.Path(SHELL.run(["mktemp", "-d", "-p", "/dev/shm"], timeout_s=9).stdout.strip())
    yield folder
    SHELL.remove(str(folder))


def unseal(model, to, key=KEY):
    return models.unseal(model, key, to=str(to), python=sys.executable, shell=SHELL)


def test_a_sealed_model_lies_there_without_a_plain_byte_and_opens_to_the_same(
    tmp_path, given, memory
):
    added = seal(tmp_path, from_folder(given))
    folder = pathlib.Path(added.model.folder)
    assert {p.name for p in folder.iterdir()} == {
        "manifest.json", "config.json.sealed", "model.safetensors.sealed", "tokenizer.json.sealed",
    }  # fmt: skip
    assert not any(b"plain words" in path.read_bytes() for path in folder.iterdir())
    opened = unseal(added.model, memory)
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        there = pathlib.Path(opened.folder) / name
        assert there.read_bytes() == (given / name).read_bytes()
        assert there.parent.stat().st_mode & 0o077 == 0
    assert opened.manifest.digest == added.model.manifest.digest
    assert models.broken(models.verify(opened, full=True, shell=SHELL)) is None
    assert unseal(added.model, memory) == opened


def test_a_sealed_model_is_verified_without_its_key_and_with_it(tmp_path, given):
    model = seal(tmp_path, from_folder(given)).model
    assert models.broken(models.verify(model, full=True, shell=SHELL)) is None
    models.check_opens(model, KEY, python=sys.executable, shell=SHELL)
    damaged = pathlib.Path(model.folder) / "tokenizer.json.sealed"
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(bytes(content))
    bad = models.broken(models.verify(model, full=True, shell=SHELL))
    assert bad.subject == "tokenizer.json.sealed"
    with pytest.raises(Refused, match="was changed"):
        models.check_opens(model, KEY, python=sys.executable, shell=SHELL)


def test_pieces_cannot_be_cut_off_or_exchanged(tmp_path, given, memory):
    model = seal(tmp_path, from_folder(given)).model
    file = pathlib.Path(model.folder) / "tokenizer.json.sealed"
    whole, piece = file.read_bytes(), PIECE_BYTES + 16
    for changed in (
        whole[: 24 + piece],
        whole[:24] + whole[24 + piece :],
        whole[:24] + whole[24 + piece : 24 + 2 * piece] + whole[24 : 24 + piece],
    ):
        file.write_bytes(changed)
        with pytest.raises(Refused):
            unseal(model, memory)
    assert list(memory.iterdir()) == []


def test_another_key_is_told_from_a_damaged_file(tmp_path, given, memory):
    model = seal(tmp_path, from_folder(given)).model
    with pytest.raises(Refused, match="sealed with the key") as error:
        unseal(model, memory, models.Key(secret=bytes(32)))
    assert "added with" in error.value.fix
    assert list(memory.iterdir()) == []


def test_a_disk_is_no_place_to_open_it(tmp_path, given):
    model = seal(tmp_path, from_folder(given)).model
    with pytest.raises(Refused, match="needed tmpfs") as error:
        unseal(model, tmp_path / "open")
    assert "/dev/shm" in error.value.fix


def test_a_plain_model_is_not_opened(tmp_path, given, memory):
    plain = models.add(
        "tiny", from_folder(given), store=str(tmp_path / "store"), python=sys.executable,
        report=lambda step: None, shell=SHELL, clock=FakeClock(),
    )  # fmt: skip
    with pytest.raises(InputError, match="found plain files"):
        unseal(plain.model, memory)


def test_a_converted_model_is_built_in_memory_and_sealed(tmp_path):
    shell = Recorder()
    added = seal(tmp_path, gguf_beside_model(tmp_path), python=both(tmp_path), shell=shell)
    assert added.model.manifest.sealed.key_id == KEY.id
    assert left_in_store(tmp_path) == ["tiny"]
    in_memory, in_store = shell.made
    assert in_memory.startswith("/dev/shm/")
    assert not pathlib.Path(in_memory).exists()
    assert in_store.startswith(str(tmp_path / "store"))


def both(tmp_path):
    """A Python that converts as the stand-in does and runs all else itself."""
    convert = program(tmp_path / "convert", CONVERTER)
    text = f'#!/bin/sh\n[ "$1" = -m ] && exec {convert} "$@"\nexec {sys.executable} "$@"\n'
    return program(tmp_path / "python", text)


def test_the_same_content_is_there_already_and_other_content_is_refused(tmp_path, given):
    first = seal(tmp_path, from_folder(given))
    second = seal(tmp_path, from_folder(given))
    assert (second.fresh, second.model) == (False, first.model)
    other = write_model(tmp_path / "b", max_position_embeddings=64)
    with pytest.raises(InputError, match="digest"):
        seal(tmp_path, from_folder(other))


def test_the_key_is_in_no_argument_and_in_no_variable(tmp_path, given):
    shell = Recorder()
    models.add_sealed(
        "tiny", from_folder(given), KEY, store=str(tmp_path / "store"), python=sys.executable,
        report=lambda step: None, shell=shell, clock=FakeClock(),
    )  # fmt: skip
    assert not any(KEY.secret.hex() in str(ran) for ran in shell.ran)
    assert KEY.secret.hex() not in repr(KEY)


SECRET = bytes(range(100, 132))


@pytest.mark.parametrize("text", [SECRET.hex(), base64.b64encode(SECRET).decode() + "\n"])
def test_a_key_comes_from_a_file_a_variable_or_a_command(tmp_path, monkeypatch, text):
    file = tmp_path / "model.key"
    file.write_text(text)
    file.chmod(0o600)
    monkeypatch.setenv("MODEL_KEY", text)
    for source in (f"file:{file}", "env:MODEL_KEY", f"command:cat {file}"):
        assert models.read_key(source, shell=SHELL).secret == SECRET


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("abc", "needed env:NAME, file:PATH or command:WORDS"),
        ("file:/nowhere/key", "no such file"),
        ("env:NOT_SET_ANYWHERE", "found 0 characters, needed 32 bytes"),
        ("command:echo short", "found 5 characters"),
        ("command:exit 7", "exit code 7"),
    ],
)
def test_what_is_no_key_is_refused_without_repeating_it(source, words):
    with pytest.raises(InputError, match=words) as error:
        models.read_key(source, shell=SHELL)
    assert error.value.fix


def test_a_key_that_others_may_read_is_refused(tmp_path):
    file = tmp_path / "model.key"
    file.write_text(SECRET.hex())
    file.chmod(0o644)
    with pytest.raises(Refused, match="found mode 644") as error:
        models.read_key(f"file:{file}", shell=SHELL)
    assert error.value.fix == f"chmod 600 {file}"

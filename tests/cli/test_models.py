"""`llmdeploy models` at its edges: exit codes, JSON, what is asked."""

import json
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import pytest
from typer.testing import CliRunner

from llmdeploy.cli.app import app

from ..store.tiny_model import write_model


def models(*argv: str | pathlib.Path, answer: str = ""):
    return CliRunner().invoke(app, ["models", *map(str, argv)], input=answer)


@pytest.fixture
def given(tmp_path):
    return write_model(tmp_path / "given")


@pytest.fixture
def store(tmp_path, given):
    added = models("add", "tiny", "--folder", given, "--store", tmp_path / "store", "--yes")
    assert added.exit_code == 0, added.output
    return tmp_path / "store"


def test_an_added_model_is_listed_verified_and_removed(store):
    listed = models("list", "--store", store)
    assert listed.stdout.startswith("tiny ")
    assert "LlamaForCausalLM" in listed.stdout
    verified = models("verify", "tiny", "--store", store)
    assert (verified.exit_code, verified.stdout.count("PASS")) == (0, 3)
    assert models("remove", "tiny", "--store", store, "--yes").exit_code == 0
    empty = models("list", "--store", store)
    assert (empty.stdout, empty.exit_code) == ("", 0)
    assert f"no model in {store}; add one" in empty.stderr


def test_json_is_the_manifest_itself_and_progress_is_not_in_it(tmp_path, given):
    argv = ("add", "tiny", "--folder", given, "--store", tmp_path / "s", "--yes", "--json")
    ended = models(*argv)
    assert json.loads(ended.stdout)["id"] == "tiny"
    assert "copying 3 files" in ended.stderr
    assert json.loads(models("list", "--store", tmp_path / "s", "--json").stdout)[0]["id"] == "tiny"


def test_a_second_add_says_that_nothing_changed(store, given):
    again = models("add", "tiny", "--folder", given, "--store", store, "--yes")
    assert (again.exit_code, "already there, nothing changed" in again.stdout) == (0, True)


def test_nothing_happens_without_a_yes(tmp_path, given):
    argv = ("add", "tiny", "--folder", given, "--store", tmp_path / "s")
    ended = models(*argv, answer="n\n")
    assert ended.exit_code == 3
    assert f"Add tiny to {tmp_path / 's'}" in ended.stderr
    assert not (tmp_path / "s").exists()
    assert models(*argv, answer="y\n").exit_code == 0


def test_a_damaged_model_fails_verification_with_exit_code_3(store):
    (store / "tiny" / "tokenizer.json").write_text("[]")
    ended = models("verify", "tiny", "--store", store, "--json")
    assert ended.exit_code == 3
    assert {f["status"] for f in json.loads(ended.stdout)} == {"PASS", "FAIL"}
    assert "tokenizer.json: found sha256" in ended.stderr
    assert f"hint: llmdeploy models remove tiny --store {store}, then add" in ended.stderr


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("add", "x", "--yes"), "found 0 of --package, --gguf, --folder and --hub"),
        (("add", "x", "--gguf", "/nowhere/a.gguf", "--yes"), "no such file"),
        (("add", "x", "--folder", "/nowhere", "--yes"), "no such folder"),
        (("add", "x", "--package", "llm-not-there", "--yes"), "no such package"),
        (("verify", "x"), "no such model, found in the store: none"),
        (("remove", "x", "--yes"), "no such model, found in the store: none"),
    ],
)
def test_bad_input_exits_2_with_a_hint(tmp_path, argv, words):
    ended = models(*argv, "--store", tmp_path / "s")
    assert ended.exit_code == 2
    assert words in ended.stderr
    assert "\n\nhint: " in ended.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_add_that_is_stopped_leaves_nothing(tmp_path, number):
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\n: > "{tmp_path}/started"\nexec sleep 60\n')
    python.chmod(0o755)
    argv = [sys.executable, "-m", "llmdeploy", "models", "add", "x", "--yes"]
    argv += ["--gguf", str(tmp_path / "a.gguf"), "--python", str(python)]
    process = subprocess.Popen([*argv, "--store", str(tmp_path / "s")], stderr=subprocess.PIPE)
    try:
        until_s = time.monotonic() + 30
        while not (tmp_path / "started").exists() and time.monotonic() < until_s:
            time.sleep(0.02)
        assert list((tmp_path / "s").iterdir())
        process.send_signal(number)
        process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode != 0
    assert list((tmp_path / "s").iterdir()) == []


def test_a_model_is_sealed_verified_and_opened_into_memory(tmp_path, given):
    (tmp_path / "model.key").write_text("ab" * 32)
    (tmp_path / "model.key").chmod(0o600)
    store, key = tmp_path / "s", f"file:{tmp_path}/model.key"
    added = models("add", "tiny", "--folder", given, "--store", store, "--key", key, "--yes")
    assert added.stdout.rstrip().endswith(", sealed"), added.output
    assert " sealed " in models("list", "--store", store).stdout
    assert models("verify", "tiny", "--store", store, "--key", key).exit_code == 0
    opened = tempfile.mkdtemp(dir="/dev/shm")
    try:
        ended = models("open", "tiny", "--store", store, "--key", key, "--to", opened, "--yes")
        assert ended.stdout == f"tiny: open in {opened}/tiny\n", ended.output
        assert models("verify", "tiny", "--store", opened).exit_code == 0
        assert models("remove", "tiny", "--store", opened, "--yes").exit_code == 0
    finally:
        shutil.rmtree(opened)


def test_a_gguf_file_is_converted_to_a_folder(tmp_path, given):
    (tmp_path / "a.gguf").write_bytes(b"GGUF and so on")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\ncp "{given}"/* "$6"\n')
    python.chmod(0o755)
    argv = ("convert", tmp_path / "a.gguf", "--out", tmp_path / "out", "--python", python, "--yes")
    ended = models(*argv)
    assert ended.exit_code == 0, ended.output
    assert "1,432 parameters in bfloat16" in ended.stdout
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "config.json", "model.safetensors", "tokenizer.json",
    ]  # fmt: skip
    again = models(*argv)
    assert (again.exit_code, "needed an empty folder" in again.stderr) == (2, True)

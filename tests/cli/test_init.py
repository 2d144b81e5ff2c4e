"""The starter documents: complete, true to the defaults, and never written over anything."""

import pathlib
import re
from importlib.resources import files
from typing import Any

import pytest
import yaml
from pydantic import BaseModel
from typer.testing import CliRunner

from llmdeploy.cli.app import app
from llmdeploy.document import parse
from llmdeploy.inventory import Inventory
from llmdeploy.service import Service

ROOT = pathlib.Path(__file__).parents[2]
DOCUMENTS = (("service.yaml", Service), ("cluster.yaml", Inventory))


def _starter(name: str) -> str:
    return files("llmdeploy.cli").joinpath("starter", name).read_text()


def _keys(kind: type[BaseModel]) -> set[str]:
    """Every key of a document and of the documents in it, as paths."""
    found: set[str] = set()
    for name, field in kind.model_fields.items():
        key = field.alias or name
        found.add(key)
        for below in _models(field.annotation):
            found |= {f"{key}/{path}" for path in _keys(below)}
    return found


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    inner = getattr(annotation, "__args__", ())
    return [model for argument in inner for model in _models(argument)]


def _paths(tree: Any) -> set[str]:
    if isinstance(tree, list):
        return {path for item in tree for path in _paths(item)}
    if not isinstance(tree, dict):
        return set()
    below = {f"{key}/{path}" for key, value in tree.items() for path in _paths(value)}
    return set(tree) | below


def _with_optional_keys(text: str) -> str:
    """The text with its `#key:` lines taken in; a comment has a space after its #."""
    return re.sub(r"^(\s*)#(?=(?:- )?\w+:)", r"\1", text, flags=re.MULTILINE)


@pytest.mark.parametrize(("name", "kind"), DOCUMENTS)
def test_the_examples_are_what_init_writes(name: str, kind: type[BaseModel]) -> None:
    assert (ROOT / "examples" / name).read_text() == _starter(name)


@pytest.mark.parametrize(("name", "kind"), DOCUMENTS)
def test_every_key_of_the_document_is_in_its_starter(name: str, kind: type[BaseModel]) -> None:
    text = _with_optional_keys(_starter(name))
    assert _paths(yaml.safe_load(text)) == _keys(kind)
    parse(text, kind, place=name)


@pytest.mark.parametrize(("name", "kind"), DOCUMENTS)
def test_the_values_shown_are_the_defaults(name: str, kind: type[BaseModel]) -> None:
    shown = parse(_starter(name), kind, place=name)
    least = {
        "service.yaml": "cluster: cluster.yaml\nmodel: {id: smollm2-135m-instruct}\n",
        "cluster.yaml": "schema: 1\n",
    }
    assert shown == parse(least[name], kind, place=name)


@pytest.mark.parametrize(("name", "kind"), DOCUMENTS)
def test_every_key_is_explained(name: str, kind: type[BaseModel]) -> None:
    lines = _starter(name).splitlines()
    keyed = [line for line in lines if re.match(r"\s*(- )?#?\w+:", line)]
    inside_a_list = ("address:", "prompt:", "expect:")
    bare = [ln for ln in keyed if "# " not in ln and not ln.strip(" -").startswith(inside_a_list)]
    assert bare == []


def test_init_writes_both_documents_which_load(tmp_path: pathlib.Path) -> None:
    done = CliRunner().invoke(app, ["init", "--dir", str(tmp_path / "new")])
    assert done.exit_code == 0
    assert done.stdout.split() == [str(tmp_path / "new" / name) for name, _ in DOCUMENTS]
    for name, kind in DOCUMENTS:
        parse((tmp_path / "new" / name).read_text(), kind, place=name)


def test_init_never_writes_over_a_file(tmp_path: pathlib.Path) -> None:
    (tmp_path / "cluster.yaml").write_text("mine")
    done = CliRunner().invoke(app, ["init", "--dir", str(tmp_path)])
    assert done.exit_code == 2
    assert "cluster.yaml: found a file" in done.stderr
    assert (tmp_path / "cluster.yaml").read_text() == "mine"
    assert not (tmp_path / "service.yaml").exists()


def test_init_into_a_place_that_is_no_folder_is_bad_input(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    done = CliRunner().invoke(app, ["init", "--dir", str(tmp_path / "file")])
    assert done.exit_code == 2
    assert "hint:" in done.stderr

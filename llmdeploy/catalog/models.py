"""Built-in shapes of published models, by their id on the Hugging Face hub.

Source: each model's published config.json; tests/model/make_models.py derives the shapes.
"""

import difflib
import json
from functools import cache
from importlib import resources

from llmdeploy.catalog.model_names import Named, canonical, take_apart
from llmdeploy.errors import InputError
from llmdeploy.model import (
    ModelShape,
    as_embedding,
    in_mixed_precision,
    named_embedding,
    suited,
)

MIXED_MAKERS = ("nvidia", "unsloth")
"""Whose NVFP4 checkpoints of hybrid models hold attention in fp8."""


@cache
def find(name: str) -> ModelShape:
    """The shape of a model by its id, in any case, with or without the organisation.

    A repackaging (`…-AWQ`, `unsloth/…`, `…-FP8-dynamic`) is the base's shape in the format that
    its name tells; an embedding model has no head. InputError with near names where neither is
    known.
    """
    shape = _found(name)
    return as_embedding(shape) if named_embedding(name) else shape


def _found(name: str) -> ModelShape:
    index = _index()
    wanted = name.strip().lower()
    named = take_apart(wanted)
    last = f"/{wanted.rpartition('/')[2]}"
    others = "/" in wanted and named.format is not None  # another maker's own format
    at = index.ids.get(wanted, None if others else index.ids.get(last))
    if at is not None:
        return _shape(at)
    for core in (named.core, canonical(named.core)):
        at = index.ids.get(f"/{core}", index.canonical.get(core))
        if at is not None:
            return _repacked(_shape(at), named)
    if last in index.ids:
        return _shape(index.ids[last])
    raise _unknown(name)


@cache
def alike(
    *, layers: int, hidden_size: int, kv_heads: int | None, architecture: str | None
) -> ModelShape | None:
    """The plain shape that the built-in models of these sizes share; None where there is none, or
    they differ in what else they are made of."""
    sizes = f'"layers":{layers},"hidden_size":{hidden_size},'
    named = f'"architecture":"{architecture}"' if architecture else ""
    numbers = [n for n, line in enumerate(_lines()) if sizes in line and named in line]
    shapes = [_shape(number) for number in numbers]
    shapes = [one for one in shapes if kv_heads in (None, one.kv_heads)]
    if len({(one.intermediate_size, one.vocabulary_size, one.kv_heads) for one in shapes}) != 1:
        return None
    return shapes[0].model_copy(update={"weight_format": None})


@cache
def known() -> tuple[str, ...]:
    """Ids of all built-in shapes, as they are spelled on the hub."""
    return tuple(sorted((_id(line) for line in _lines()), key=str.lower))


def _repacked(shape: ModelShape, named: Named) -> ModelShape:
    if named.format is None and not named.plain:
        return shape
    held = named.format
    if held is not None and held.method == "nvfp4" and named.maker in MIXED_MAKERS:
        held = in_mixed_precision(shape, held)
    return shape.model_copy(update={"weight_format": suited(shape, held)})


class _Index:
    """Line numbers by lower-case id, by `/` and the name alone, and by what names share."""

    def __init__(self, lines: list[str]) -> None:
        self.ids: dict[str, int] = {}
        self.canonical: dict[str, int] = {}
        for number, line in enumerate(lines):
            name = _id(line).lower()
            last = name.rpartition("/")[2]
            self.ids[name] = number
            self.ids.setdefault(f"/{last}", number)
            self.canonical.setdefault(canonical(last), number)


@cache
def _index() -> _Index:
    return _Index(_lines())


@cache
def _lines() -> list[str]:
    text = resources.files("llmdeploy.catalog").joinpath("models.jsonl").read_text("utf-8")
    return text.splitlines()


def _id(line: str) -> str:
    return line.split('"', 4)[3]


@cache
def _shape(number: int) -> ModelShape:
    entry = json.loads(_lines()[number])
    return ModelShape.model_validate_json(json.dumps(entry["shape"]))


def _unknown(name: str) -> InputError:
    last = name.rpartition("/")[2].lower()
    lasts = {one.rpartition("/")[2].lower(): one for one in known()}
    near = difflib.get_close_matches(last, lasts, n=3, cutoff=0.5)
    listed = ", ".join(lasts[n] for n in near)
    meant = (
        f"did you mean {listed}? Otherwise" if near else "the built-in shapes have no such name:"
    )
    return InputError(
        f"model: found {name!r}, needed the id of a known model or a config.json",
        fix=f"{meant} give the path of the model's config.json, or its keys as model_config",
    )

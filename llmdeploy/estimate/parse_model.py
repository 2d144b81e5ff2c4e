"""The model of a case: a built-in shape, a config.json, a GGUF file or a model of the store."""

import functools
import json
from dataclasses import dataclass
from typing import Any

from llmdeploy.catalog import models as catalog
from llmdeploy.edge import Shell
from llmdeploy.errors import InputError
from llmdeploy.estimate.parse import CaseLine, placed
from llmdeploy.estimate.parse_gguf import gguf
from llmdeploy.model import ModelShape, as_embedding, from_config, named_embedding, weight_format
from llmdeploy.store import find, read_config

CONFIG = "config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundModel:
    """A shape, where it came from, and what its files are quantised to."""

    shape: ModelShape
    source: str
    quantization: str | None = None
    """As a GGUF header says; None: the shape's own weight format."""
    assumption: str | None = None
    """What was taken where the config does not say it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """Where models are looked up: built-in shapes, then files and the store on this machine."""

    store: str
    shell: Shell

    def find(self, line: CaseLine, *, place: str) -> FoundModel:
        """The model of a case; InputError where nothing of that name is known."""
        name = line.model or ""
        if line.config is not None:
            return _configured(line.config, name, place=place)
        if name.lower().endswith(".gguf"):
            found = gguf(name, shell=self.shell)
            shape = _shape(json.dumps(found.config), name)
            return FoundModel(shape=shape, source=name, quantization=found.quantization)
        if name.startswith(("/", "./", "../", "~")) or name.endswith(".json"):
            return self._file(name if name.endswith(".json") else f"{name.rstrip('/')}/{CONFIG}")
        try:
            return FoundModel(shape=_built_in(name), source=f"built-in shape of {name}")
        except InputError as unknown:
            return self._named(name, unknown, place=place)

    def _named(self, name: str, unknown: InputError, *, place: str) -> FoundModel:
        """A model of the store, or a folder of this machine."""
        for path in (f"{self.store}/{name}/{CONFIG}", f"{name}/{CONFIG}"):
            if self.shell.read_from(path, offset_bytes=0, limit_bytes=1):
                return self._file(path)
        sealed = find(f"{self.store}/{name}", shell=self.shell)  # its manifest alone can be read
        if sealed is not None:
            return FoundModel(shape=sealed.manifest.shape, source=f"manifest of {sealed.folder}")
        raise placed(unknown, place, "model") from unknown

    def _file(self, path: str) -> FoundModel:
        content = self.shell.read(path)
        if content is None:
            raise InputError(
                f"{path}: found no such file, needed the model's config.json",
                fix="correct the path; config.json lies beside the model's weights",
            )
        return FoundModel(shape=_shape(content.decode(errors="replace"), path), source=path)


def _configured(config: dict[str, Any], name: str, *, place: str) -> FoundModel:
    """A given config's shape; where it lacks keys, the built-in shape of the model it is of, by
    its name or else by its sizes."""
    try:
        shape = _given(config, place=place)
        if named_embedding(name):
            shape = as_embedding(shape)
        return FoundModel(shape=shape, source="model_config")
    except InputError as wrong:
        built_in = _of_name(name) or _of_sizes(config)
        if built_in is None:
            raise
        return FoundModel(
            shape=built_in,
            source="built-in shape of the model_config's model",
            assumption=f"{wrong}: the built-in shape of that model",
        )


def _of_name(name: str) -> ModelShape | None:
    try:
        return _built_in(name)
    except InputError:
        return None


def _of_sizes(config: dict[str, Any]) -> ModelShape | None:
    """The built-in shape with the layers and width of an excerpt of a config, in its weight
    format; a whole config, which names its model_type, is wrong where it lacks keys."""
    if "model_type" in config:
        return None
    inner = config.get("text_config")
    stated = {**config, **inner} if isinstance(inner, dict) else config
    layers, width = stated.get("num_hidden_layers"), stated.get("hidden_size")
    if not isinstance(layers, int) or not isinstance(width, int):
        return None
    names = config.get("architectures")
    name = str(names[0]) if isinstance(names, list) and names else None
    heads = stated.get("num_key_value_heads")
    shape = catalog.alike(
        layers=layers,
        hidden_size=width,
        kv_heads=heads if isinstance(heads, int) else None,
        architecture=name,
    )
    if shape is None:
        return None
    return shape.model_copy(update={"weight_format": weight_format(config)})


def _given(config: dict[str, Any], *, place: str) -> ModelShape:
    try:
        return _shape(json.dumps(config), "model_config")
    except InputError as wrong:
        raise InputError(f"{place}: {wrong}", fix=wrong.fix) from wrong


@functools.lru_cache(maxsize=1024)
def _built_in(name: str) -> ModelShape:
    return catalog.find(name)


@functools.lru_cache(maxsize=256)
def _shape(text: str, place: str) -> ModelShape:
    return from_config(read_config(text, place), place=place)

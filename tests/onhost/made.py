"""A model to copy from host to host."""

import hashlib
import os
import pathlib

from llmdeploy.store import Manifest, Model, ModelFile, Source
from tests.release.made import SHAPE

_PIECE_BYTES = 2**24


def random_model(folder: pathlib.Path, *, weights_bytes: int) -> Model:
    """One big file of noise and a small one in a new folder, which becomes the model's."""
    folder.mkdir(parents=True)
    with (folder / "model.safetensors").open("wb") as file:
        for start in range(0, weights_bytes, _PIECE_BYTES):
            file.write(os.urandom(min(_PIECE_BYTES, weights_bytes - start)))
    (folder / "config.json").write_bytes(b"{}")
    manifest = Manifest(
        schema=1, id=folder.name, source=Source(kind="folder", name="made"), created_s=0.0,
        files=tuple(_file(path) for path in sorted(folder.iterdir())),
        architecture="LlamaForCausalLM", dtype="bfloat16", parameters=4, embedding_parameters=2,
        matrix_parameters=2, weights_bytes=weights_bytes, shape=SHAPE,
    )  # fmt: skip
    return Model(manifest=manifest, folder=str(folder))


def _file(path: pathlib.Path) -> ModelFile:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return ModelFile(name=path.name, size_bytes=path.stat().st_size, sha256=digest)

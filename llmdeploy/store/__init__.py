"""The model repository: what is in it, whether it is whole, and how models get there."""

from llmdeploy.store.add import Added, add
from llmdeploy.store.convert import convert
from llmdeploy.store.key import Key, read_key
from llmdeploy.store.manifest import Manifest, Model, ModelFile, Sealed, Source
from llmdeploy.store.read import absolute, broken, find, ids, load, models, remove, verify
from llmdeploy.store.sealed import MEMORY, add_sealed, check_opens, unseal
from llmdeploy.store.shape import read_config
from llmdeploy.store.source import Wanted, wanted

__all__ = [
    "MEMORY", "Added", "Key", "Manifest", "Model", "ModelFile", "Sealed", "Source", "Wanted",
    "absolute", "add", "add_sealed", "broken", "check_opens", "convert", "find", "ids", "load",
    "models", "read_config", "read_key", "remove", "unseal", "verify", "wanted",
]  # fmt: skip

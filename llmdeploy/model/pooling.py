"""Models that give vectors: what engines make of a generating model that is named an embedding."""

import re

from llmdeploy.model.shape import ModelShape, is_pooling_architecture

SUFFIX = "ForEmbedding"
_NAMED = re.compile(r"(^|[-_./])(embed(ding)?s?|e5|gte|bge|sfr)(?=$|[-_.])", re.IGNORECASE)


def named_embedding(name: str) -> bool:
    """Whether a model's id says that it gives vectors, such as `Qwen/Qwen3-Embedding-8B`."""
    return _NAMED.search(name.rpartition("/")[2]) is not None


def as_embedding(shape: ModelShape) -> ModelShape:
    """The same without a head, under the class name that says so: engines drop the head and
    never sample.

    Source: vLLM 0.9 `as_embedding_model` and `_get_pooling_model_name`.
    """
    if is_pooling_architecture(shape.architecture):
        return shape
    changed: dict[str, object] = {"architecture": _pooling_name(shape.architecture)}
    if shape.parameters is not None:
        changed["parameters"] = shape.parameters.model_copy(update={"head": 0})
    return shape.model_copy(update=changed)


def _pooling_name(architecture: str) -> str:
    for ending in ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel", "ChatModel"):
        architecture = architecture.removesuffix(ending)
    return architecture + SUFFIX

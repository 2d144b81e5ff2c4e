"""One case as people and programs write it: a JSON object or options to a checked CaseLine."""

import json
import math
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError

from llmdeploy import document
from llmdeploy.document import Document
from llmdeploy.errors import InputError


def _whole(value: object) -> object:
    """A whole number also where it was written as 8.0; anything else stays as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _bytes(value: object) -> object:
    """Bytes computed from printed GiB are seldom whole."""
    return round(value) if isinstance(value, float) and math.isfinite(value) else value


def _word(value: object) -> object:
    if isinstance(value, str) and not value.strip():
        raise ValueError(f'found "{value}", needed a name, or the key left out')
    return value


Count = Annotated[int, BeforeValidator(_whole), Field(ge=1, le=10**12)]
Size = Annotated[int, BeforeValidator(_bytes), Field(ge=2**20, le=2**60)]
"""A device's memory: fewer bytes than a MiB are a number without its unit."""
Number = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]
Word = Annotated[str, BeforeValidator(_word), Field(max_length=4096)]
"""No path is longer; near names of a longer one would take seconds to look for."""


class CaseLine(Document):
    """One launch and its load. Every key may be left out or null: then it is unknown, the answer
    says what was taken instead, and intervals are wider."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, protected_namespaces=())

    model: Word | None = None
    """Hugging Face id, path of a config.json, a model folder or a GGUF file, or a store's id."""
    config: dict[str, Any] | None = Field(default=None, alias="model_config")
    """The content of a config.json; wins over what `model` names."""
    quantization: Word | None = None
    """As configs and logs print it: fp8, awq, gptq, modelopt_fp4, w4a16, int8, bf16, …"""
    engine: Word | None = None
    engine_version: Word | None = None
    gpu: Word | None = None
    """Id in the catalog, or the name that drivers and people print."""
    gpu_memory_bytes: Size | None = None
    """Total of one device as the engine sees it; wins over the catalog's."""
    gpus: Count | None = None
    """Devices of all hosts together."""
    hosts: Count | None = None
    interconnect: Word | None = None
    tensor_parallel: Count | None = None
    pipeline_parallel: Count | None = None
    data_parallel: Count | None = None
    expert_parallel: bool | Annotated[int, BeforeValidator(_whole), Field(ge=0)] | None = None
    """true or false, or the number of devices that share the experts."""
    memory_ratio: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None, alias="memory_fraction"
    )
    """The engine's own: its meaning differs from engine to engine."""
    max_model_len: Count | None = None
    kv_cache_dtype: Word | None = None
    dtype: Word | None = None
    max_num_seqs: Count | None = None
    max_num_batched_tokens: Count | None = None
    enforce_eager: bool | None = None
    speculative_tokens: Count | None = None
    """Drafted a step by the model's own MTP (NEXTN) layers, which are loaded then."""
    input_tokens: Number | None = None
    output_tokens: Number | None = None
    concurrency: Number | None = None
    request_rate_per_s: Number | None = None


KEYS = tuple(field.alias or name for name, field in CaseLine.model_fields.items())
"""As they are written in a case."""


def case_line(text: str, *, place: str) -> CaseLine:
    """The case in a JSON text; InputError with the key, what was found and what was needed."""
    try:
        line = CaseLine.model_validate_json(text)
    except ValidationError as error:
        raise _explained(text, error, place) from error
    if line.model is None and line.config is None:
        raise InputError(
            f"{place}: model: is missing, needed a model's name or a model_config",
            fix='add "model": "ORGANISATION/NAME" as on Hugging Face, or "model_config": {…}',
        )
    return line


def placed(error: InputError, place: str, key: str) -> InputError:
    """The error of a look-up, with the place and the key of the case it comes from."""
    return InputError(f"{place}: {key}: {str(error).removeprefix(f'{key}: ')}", fix=error.fix)


def _explained(text: str, error: ValidationError, place: str) -> InputError:
    """The same words as for every other document; JSON that cannot be read has its own."""
    try:
        tree = json.loads(text)
        if error.errors()[0]["type"] == "json_invalid":  # such as half a pair of surrogates
            raise ValueError(error.errors()[0]["msg"])
    except (ValueError, RecursionError) as wrong:
        found = text.strip()[:40] or "an empty line"
        return InputError(
            f"{place}: cannot be read as JSON: {wrong}; found {found}",
            fix='write one JSON object on one line, such as {"model": "Qwen/Qwen3-8B"}',
        )
    if isinstance(tree, dict):
        return document.explained(error, CaseLine, place=place)
    return InputError(
        f"{place}: found {type(tree).__name__}, needed an object of keys to values",
        fix='write one JSON object on one line, such as {"model": "Qwen/Qwen3-8B"}',
    )

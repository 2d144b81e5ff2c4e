"""Engines by the names that people, logs and images print, with the version as numbers."""

import difflib
import re
from typing import Final

from llmdeploy.catalog.types import Engine, EngineName
from llmdeploy.errors import InputError

_NAMES: Final[dict[str, EngineName]] = {
    "vllm": "vllm",
    "vllmascend": "vllm",
    "vllmxpu": "vllm",
    "vllmcpu": "vllm",
    "vllmrocm": "vllm",
    "sglang": "sglang",
    "sgl": "sglang",
    "srt": "sglang",
    "tensorrtllm": "tensorrt-llm",
    "trtllm": "tensorrt-llm",
    "tensorrt": "tensorrt-llm",
    "trt": "tensorrt-llm",
    "lmdeploy": "lmdeploy",
    "turbomind": "lmdeploy",
    "tgi": "tgi",
    "textgenerationinference": "tgi",
    "huggingfacetgi": "tgi",
    "llamacpp": "llama.cpp",
    "llamaserver": "llama.cpp",
    "ggml": "llama.cpp",
    "ollama": "llama.cpp",
    "mlc": "mlc",
    "mlcllm": "mlc",
    "mindie": "mindie",
    "mindieservice": "mindie",
    "mindiellm": "mindie",
    "exllama": "exllama",
    "exllamav2": "exllama",
    "exllamav3": "exllama",
    "embedded": "embedded",
    "llmdeploy": "embedded",
}
_NUMBERS = re.compile(r"v?(\d+(?:\.\d+)+)", re.IGNORECASE)
_UNTAGGED = re.compile(r"^0\.1\.dev\d")  # built from a shallow checkout: says nothing
_COMPONENT = re.compile(r"([A-Za-z][A-Za-z0-9 ._-]*?)\s*[:=]?\s+v?(\d+(?:\.\d+)+)")


def find(name: str, version: str | None = None) -> Engine:
    """The engine of any spelling, such as `vLLM`, `TensorRT-LLM 1.0`, `Llama.cpp`; InputError else.

    A version that lists several programs (`- vLLM v0.17.1; - SGLang v0.5.9`) gives its own.
    """
    engine = _name(name)
    if engine is None:
        near = difflib.get_close_matches(_compact(name), _NAMES, n=3, cutoff=0.5)
        known = " or ".join(dict.fromkeys(_NAMES[word] for word in near))
        raise InputError(
            f"engine {name!r} is not known",
            fix=f"did you mean {known}?" if known else "name one of " + ", ".join(sorted(names())),
        )
    return Engine(name=engine, version=_version(engine, version if version else name))


def names() -> tuple[EngineName, ...]:
    """Every engine once."""
    return tuple(dict.fromkeys(_NAMES.values()))


def _compact(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _name(text: str) -> EngineName | None:
    """The engine that `text` names, with or without a version and notes behind it."""
    if found := _NAMES.get(_compact(text)):
        return found
    first = re.split(r"[,;(:@]|\s+(?=v?\d)", text.strip())[0]
    plain = first.rsplit("/", 1)[-1]  # vllm/vllm-openai, lmsysorg/sglang
    for candidate in (first, plain, plain.removesuffix("-openai")):
        if found := _NAMES.get(_compact(candidate)):
            return found
    return None


def _version(engine: EngineName, text: str) -> tuple[int, ...] | None:
    """Numbers of a printed version; None where it names none (`nightly`, `May 2024`)."""
    parts = [(_name(name), number) for name, number in _COMPONENT.findall(text.replace("- ", " "))]
    named = [number for name, number in parts if name == engine]
    if named:
        return _own(engine, _numbers(named[0]))
    if any(name is not None for name, _ in parts):
        return None
    found = _NUMBERS.search(text)
    if found is None or _UNTAGGED.match(text.strip()):
        return None
    return _own(engine, _numbers(found[1]))


def _own(engine: EngineName, numbers: tuple[int, ...]) -> tuple[int, ...] | None:
    """TensorRT's own versions, 5 to 10, say nothing of TensorRT-LLM."""
    return None if engine == "tensorrt-llm" and numbers[0] >= 5 else numbers


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))[:3]

"""OpenAI's requests: a JSON body to one checked value that says what to generate."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from llmdeploy.engine import fields
from llmdeploy.engine.fields import ApiError, wrong, wrong_about
from llmdeploy.engine.messages import Sampling
from llmdeploy.engine.text import GenerationDefaults, Message

Kind = Literal["chat", "text"]

_SEED_VALUES = 2**63
_MOST_CHOICES = 128
_MOST_STOPS = 16
_MOST_ALTERNATIVES = 20
_NO_END = 2**62

_SHARED_KEYS = frozenset({
    "model", "max_tokens", "temperature", "top_p", "top_k", "n", "stream", "stream_options", "stop",
    "seed", "presence_penalty", "frequency_penalty", "logit_bias", "logprobs", "ignore_eos", "user",
})  # fmt: skip
_CHAT_KEYS = _SHARED_KEYS | {
    "messages", "max_completion_tokens", "top_logprobs", "chat_template_kwargs", "metadata",
    "store", "service_tier", "safety_identifier", "prompt_cache_key", "tools", "tool_choice",
    "functions", "function_call", "parallel_tool_calls", "response_format", "modalities", "audio",
    "prediction", "reasoning_effort", "verbosity", "web_search_options",
}  # fmt: skip
_TEXT_KEYS = _SHARED_KEYS | {"prompt", "echo", "best_of", "suffix"}
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What this engine can take."""

    served_name: str
    vocabulary: int
    most_in_flight: int
    """Answers decoded or waiting together; more than this can never be taken."""
    defaults: GenerationDefaults


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One checked request."""

    kind: Kind
    messages: tuple[Message, ...] = ()
    template_options: Mapping[str, Any]
    prompts: tuple[str | tuple[int, ...], ...] = ()
    """Of a text completion: texts or token ids, an answer (or `choices` of them) for each."""
    choices: int
    max_tokens: int | None
    stops: tuple[str, ...]
    stream: bool
    seed: int | None
    sampling: Sampling
    """With seed 0: the true one is drawn or derived for each choice."""


def parse(body: bytes, kind: Kind, *, limits: Limits) -> Asked:
    """The request in `body`; ApiError with param and both values for anything not understood."""
    asked = fields.json_object(body)
    _check_model(asked, limits.served_name)
    fields.check_keys(asked, known=_CHAT_KEYS if kind == "chat" else _TEXT_KEYS)
    _check_unsupported(asked, kind)
    prompts = _prompts(asked, limits.vocabulary) if kind == "text" else ()
    choices = fields.whole(asked, "n", low=1, high=_MOST_CHOICES, default=1) or 1
    if (count := choices * max(1, len(prompts))) > limits.most_in_flight:
        asks = f"found {count} answers asked, needed at most {limits.most_in_flight} of one request"
        raise wrong_about("n" if choices > 1 else "prompt", asks)
    return Asked(
        kind=kind,
        messages=_messages(asked) if kind == "chat" else (),
        template_options=_object(asked, "chat_template_kwargs"),
        prompts=prompts,
        choices=choices,
        max_tokens=_max_tokens(asked, kind, limits.defaults),
        stops=fields.texts(asked, "stop", most=_MOST_STOPS),
        stream=_stream(asked),
        seed=fields.whole(asked, "seed", low=-_SEED_VALUES, high=_SEED_VALUES - 1),
        sampling=_sampling(asked, kind, limits),
    )


def _check_model(asked: Mapping[str, Any], served_name: str) -> None:
    model = asked.get("model")
    if model is None:
        raise wrong("model", None, f'"{served_name}"', code="missing_required_parameter")
    if model != served_name:
        raise ApiError(
            f"model: found {str(model)[:100]!r}, needed {served_name!r}: there is no other model",
            status=404,
            code="model_not_found",
            param="model",
            fix="ask /v1/models for the name",
        )


def _check_unsupported(asked: Mapping[str, Any], kind: Kind) -> None:
    if kind == "text":
        fields.refuse(asked, "echo", neutral=(False,), why="the prompt is not repeated")
        fields.refuse(asked, "best_of", neutral=(asked.get("n") or 1,), why="only n is supported")
        fields.refuse(asked, "suffix", neutral=("",), why="nothing is inserted")
        return
    for name in ("tools", "functions"):
        fields.refuse(asked, name, neutral=([],), why="tool calls are not supported")
    for name in ("tool_choice", "function_call"):
        fields.refuse(asked, name, neutral=("none", "auto"), why="tool calls are not supported")
    text = ({"type": "text"},)
    fields.refuse(asked, "response_format", neutral=text, why="output is not constrained")
    fields.refuse(asked, "modalities", neutral=(["text"],), why="only text is answered")
    for name in ("audio", "prediction", "web_search_options"):
        fields.refuse(asked, name, neutral=(), why="not supported")


def _messages(asked: Mapping[str, Any]) -> tuple[Message, ...]:
    found = asked.get("messages")
    if not isinstance(found, list) or not found:
        code = "missing_required_parameter" if found is None else "invalid_type"
        raise wrong("messages", found, "a non-empty list of messages", code=code)
    return tuple(_message(message, f"messages[{i}]") for i, message in enumerate(found))


def _message(message: object, place: str) -> Message:
    if not isinstance(message, dict):
        raise wrong(place, message, "an object with role and content", code="invalid_type")
    role = message.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise wrong(f"{place}.role", role, f"one of {', '.join(_ROLES)}")
    return {"role": _ROLES[role], "content": _content(message.get("content"), f"{place}.content")}


def _content(content: object, place: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise wrong(place, content, "a string or a list of text parts", code="invalid_type")
    parts = []
    for i, part in enumerate(content):
        text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
        if not isinstance(text, str):
            raise wrong(f"{place}[{i}]", part, 'a part like {"type": "text", "text": "..."}')
        parts.append(text)
    return "\n".join(parts)


def _prompts(asked: Mapping[str, Any], vocabulary: int) -> tuple[str | tuple[int, ...], ...]:
    found = asked.get("prompt")
    if found is None:
        raise wrong("prompt", None, "a text or token ids", code="missing_required_parameter")
    items = found if isinstance(found, list) and not _all_of(found, int) else [found]
    if not items:
        raise wrong("prompt", found, "at least one text")
    for i, item in enumerate(items):
        place = "prompt" if item is found else f"prompt[{i}]"
        if isinstance(item, str):
            continue
        if not isinstance(item, list) or not item or not _all_of(item, int):
            raise wrong(place, item, "a text or a non-empty list of token ids", code="invalid_type")
        for token in item:
            if not 0 <= token < vocabulary:
                raise wrong(place, token, f"token ids from 0 to {vocabulary - 1}")
    return tuple(item if isinstance(item, str) else tuple(item) for item in items)


def _all_of(items: list[object], kind: type) -> bool:
    return bool(items) and all(type(item) is kind for item in items)


def _object(asked: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = asked.get(name)
    if value is not None and not isinstance(value, dict):
        raise wrong(name, value, "an object", code="invalid_type")
    return value or {}


def _max_tokens(asked: Mapping[str, Any], kind: Kind, defaults: GenerationDefaults) -> int | None:
    """None means as many as the context holds."""
    fallback = 16 if kind == "text" else defaults.max_tokens  # 16 is what OpenAI documents
    names = ("max_completion_tokens", "max_tokens") if kind == "chat" else ("max_tokens",)
    for name in names:
        value = fields.whole(asked, name, low=1, high=_NO_END)
        if value is not None:
            return value
    return fallback


def _stream(asked: Mapping[str, Any]) -> bool:
    stream = fields.flag(asked, "stream")
    options = _object(asked, "stream_options")
    known = frozenset({"include_usage", "include_obfuscation"})
    fields.check_keys(options, known=known)
    for name in known:
        fields.flag(options, name)
    return stream


def _sampling(asked: Mapping[str, Any], kind: Kind, limits: Limits) -> Sampling:
    defaults = limits.defaults
    top_p = fields.number(asked, "top_p", defaults.top_p, low=0, high=1)
    if top_p == 0:
        raise wrong("top_p", asked["top_p"], "a number above 0, up to 1")
    top_k = fields.whole(asked, "top_k", low=-1, high=_NO_END, default=defaults.top_k)
    return Sampling(
        temperature=fields.number(asked, "temperature", defaults.temperature, low=0, high=2),
        top_p=top_p,
        top_k=top_k if top_k and top_k > 0 else None,
        presence_penalty=fields.number(asked, "presence_penalty", 0.0, low=-2, high=2),
        frequency_penalty=fields.number(asked, "frequency_penalty", 0.0, low=-2, high=2),
        logit_bias=fields.logit_bias(asked, vocabulary=limits.vocabulary),
        top_logprobs=_alternatives(asked, kind),
        ignore_eos=fields.flag(asked, "ignore_eos"),
    )


def _alternatives(asked: Mapping[str, Any], kind: Kind) -> int | None:
    """How many alternatives each token's log-probabilities list; None for no scores."""
    if kind == "text":
        return fields.whole(asked, "logprobs", low=0, high=_MOST_ALTERNATIVES)
    top = fields.whole(asked, "top_logprobs", low=0, high=_MOST_ALTERNATIVES)
    if not fields.flag(asked, "logprobs"):
        if top:
            raise wrong("logprobs", asked.get("logprobs"), "true where top_logprobs is given")
        return None
    return top or 0


def answer_tokens(
    prompt_tokens: int, asked: Asked, *, context_tokens: int, at_least: bool = False
) -> int:
    """How many tokens the answer may have; 400 when they do not fit into the context.
    `at_least` says that the prompt's tokens are not counted, but a lower bound."""
    prompt = "messages" if asked.kind == "chat" else "prompt"
    if not prompt_tokens:
        raise wrong(prompt, "", "at least one token")
    room, needed = context_tokens - prompt_tokens, asked.max_tokens or 1
    if needed <= room:
        return asked.max_tokens or room
    fix = "shorten the prompt" if room < 1 else f"set max_tokens to {room}, or shorten the prompt"
    raise ApiError(
        f"{prompt}: found {'at least ' * at_least}{prompt_tokens} tokens and {needed} to answer, "
        f"{prompt_tokens + needed} together, needed at most {context_tokens}",
        status=400,
        code="context_length_exceeded",
        param=prompt,
        fix=fix,
    )

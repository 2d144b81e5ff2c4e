"""Between text and tokens: tokenizer, chat template, text as tokens come, stop strings."""

import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox
import tokenizers

from llmdeploy.errors import InputError

Decode = Callable[[list[int]], str]
Message = Mapping[str, str]

_PROMPT_TAIL_TOKENS = 6
"""Enough of the prompt for decoders that treat the first token of a text in their own way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationDefaults:
    """What the model's generation_config.json says for requests that leave it open."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None
    max_tokens: int | None = None
    ignored: tuple[str, ...] = ()
    """Keys that would change the sampling but have no counterpart here."""


def generation_defaults(text: str) -> GenerationDefaults:
    """The defaults in the text of a generation_config.json; `{}` gives OpenAI's."""
    config = json.loads(text)
    neutral = {"repetition_penalty": 1.0, "min_p": 0.0, "typical_p": 1.0, "no_repeat_ngram_size": 0}
    ignored = (key for key, value in neutral.items() if config.get(key, value) not in (value, None))
    return GenerationDefaults(
        temperature=_or(config.get("temperature"), 1.0),
        top_p=_or(config.get("top_p"), 1.0),
        top_k=config.get("top_k") or None,
        max_tokens=config.get("max_new_tokens"),
        ignored=tuple(ignored),
    )


def _or(value: float | None, default: float) -> float:
    return default if value is None else float(value)


class ChatTemplate:
    """A model's Jinja chat template in a sandbox, as transformers renders it."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_GenerationTag, jinja2.ext.loopcontrols],
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = _local_time
        self._template = environment.from_string(source)
        self._special_tokens = dict(special_tokens)

    def render(self, messages: Sequence[Message], *, options: Mapping[str, Any]) -> str:
        """The prompt text up to where the assistant answers; `jinja2.TemplateError` where the
        template refuses these messages. `options` are further values for the template."""
        values = {**self._special_tokens, "tools": None, "documents": None, **options}
        values["add_generation_prompt"] = True
        return self._template.render(messages=[dict(m) for m in messages], **values)


class _GenerationTag(jinja2.ext.Extension):
    """`{% generation %}` marks training targets; for a prompt only its body counts."""

    tags = {"generation"}  # noqa: RUF012  (Jinja's own shape for it)

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(value: object, ensure_ascii: bool = False, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _local_time(pattern: str) -> str:
    return datetime.now().astimezone().strftime(pattern)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


class Detokenizer:
    """Text of one answer as its tokens come; a character is held until its last byte is there.

    The pieces joined are the whole text. Decoding starts a few tokens back, because some
    decoders treat a text's first token in their own way (they drop its leading space).
    """

    def __init__(self, decode: Decode, prompt: Sequence[int] = ()) -> None:
        self._decode = decode
        self._ids = list(prompt[-_PROMPT_TAIL_TOKENS:])
        self._context = 0
        self._shown = len(self._ids)

    def push(self, ids: Sequence[int]) -> str:
        """New text after these tokens; empty while the last character is incomplete."""
        self._ids.extend(ids)
        return self._new(whole_characters=True)

    def rest(self) -> str:
        """What was held: incomplete characters show as U+FFFD."""
        return self._new(whole_characters=False)

    def _new(self, *, whole_characters: bool) -> str:
        shown = self._decode(self._ids[self._context : self._shown])
        text = self._decode(self._ids[self._context :])
        if whole_characters and text.endswith("\ufffd"):
            return ""
        self._ids = self._ids[self._shown :]
        self._context, self._shown = 0, len(self._ids)
        return text[len(shown) :]


class StopFilter:
    """Passes text on until a stop string; holds what may be the beginning of one.

    The stop string that is complete first ends the text (of those, the one that began first),
    however the text is cut into pieces.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """Text that is certainly not part of a stop string; sets `stopped` at the first one."""
        if not self._stops:
            return text
        text = self._held + text
        found = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)[1]]
        held = self._longest_beginning(text)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def rest(self) -> str:
        """What was held, once no more text will come."""
        held, self._held = self._held, ""
        return held

    def _longest_beginning(self, text: str) -> int:
        longest = min(len(text), max(map(len, self._stops)) - 1)
        for size in range(longest, 0, -1):
            if any(stop.startswith(text[-size:]) for stop in self._stops):
                return size
        return 0


class Vocabulary:
    """A model's tokenizer without transformers: 0.1 s and 20 MB instead of 4 s and 360 MB."""

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.size = tokenizer.get_vocab_size(with_added_tokens=True)
        self._keeps_characters = tokenizer.normalizer is None
        self._longest_piece = max(map(len, tokenizer.get_vocab(with_added_tokens=True)))
        decoder = json.loads(tokenizer.to_str()).get("decoder")
        self._byte_of = _byte_of_letter() if '"ByteLevel"' in json.dumps(decoder) else {}

    def least_tokens(self, text: str) -> int:
        """A lower bound of the tokens in a text, without the seconds that a huge one takes."""
        return len(text) // self._longest_piece if self._keeps_characters else 0

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Token ids; `special` adds what the model puts around a plain text (such as BOS)."""
        return list(self._tokenizer.encode(text, add_special_tokens=special).ids)

    def decode(self, ids: list[int]) -> str:
        """Text without special tokens."""
        return str(self._tokenizer.decode(ids, skip_special_tokens=True))

    def shown(self, token: int) -> str:
        """One token as text for log-probabilities; U+FFFD for a part of a character."""
        piece = self._tokenizer.id_to_token(token) or ""
        if piece.startswith("\u2581"):  # its decoder would drop the leading space
            return piece.replace("\u2581", " ")
        return str(self._tokenizer.decode([token], skip_special_tokens=False))

    def token_bytes(self, token: int) -> bytes:
        """The bytes that one token stands for."""
        piece = self._tokenizer.id_to_token(token) or ""
        if self._byte_of and all(letter in self._byte_of for letter in piece):
            return bytes(self._byte_of[letter] for letter in piece)
        if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
            return bytes([int(piece[3:5], 16)])
        return self.shown(token).encode()


def _byte_of_letter() -> dict[str, int]:
    """How byte-level BPE writes bytes: printable ones as they are, others from U+0100."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = {chr(byte): byte for byte in plain}
    return letters | {chr(0x100 + place): byte for place, byte in enumerate(others)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelText:
    """Everything the API needs to know of a model."""

    vocabulary: Vocabulary
    template: ChatTemplate | None
    defaults: GenerationDefaults


def load(folder: str) -> ModelText:
    """Tokenizer, chat template and generation defaults of a model folder; InputError without
    a tokenizer that can be read."""
    root = pathlib.Path(folder)
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(root / "tokenizer.json"))
    except Exception as error:
        raise InputError(
            f"{root / 'tokenizer.json'}: {error}, needed a tokenizer file",
            fix="put the model into the store again: `llmdeploy models add`",
        ) from error
    config = _json(root / "tokenizer_config.json")
    source = _template_source(root, config)
    generation = root / "generation_config.json"
    defaults = generation_defaults(generation.read_text() if generation.exists() else "{}")
    return ModelText(
        vocabulary=Vocabulary(tokenizer),
        template=ChatTemplate(source, _special_tokens(config)) if source else None,
        defaults=defaults,
    )


def _json(path: pathlib.Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text())) if path.exists() else {}


def _template_source(root: pathlib.Path, config: Mapping[str, Any]) -> str | None:
    file = root / "chat_template.jinja"
    if file.exists():
        return file.read_text()
    found = config.get("chat_template")
    if isinstance(found, list):
        found = {named["name"]: named["template"] for named in found}.get("default")
    return found


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    tokens = {key: value for key, value in config.items() if key.endswith("_token")}
    texts = {key: t["content"] if isinstance(t, dict) else t for key, t in tokens.items()}
    return {key: text for key, text in texts.items() if isinstance(text, str)}

"""OpenAI's answers: whole ones, stream chunks made by hand, and error shapes, as JSON bytes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llmdeploy.engine.choice import Finish, Piece, Scored
from llmdeploy.engine.fields import ApiError
from llmdeploy.engine.openai import Kind
from llmdeploy.engine.text import Vocabulary

DONE = b"data: [DONE]\n\n"

_TYPES = {429: "rate_limit_error", 500: "server_error", 503: "server_error", 504: "timeout_error"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one request, over all its answers."""

    prompt_tokens: int
    answer_tokens: int

    def shown(self) -> dict[str, int]:
        """In OpenAI's names."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.answer_tokens,
            "total_tokens": self.prompt_tokens + self.answer_tokens,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeChoice:
    """One answer at its end."""

    text: str
    scored: tuple[Scored, ...]
    finish: Finish


class Answer:
    """Renders everything that is sent for one request; its head is written only once."""

    def __init__(
        self, kind: Kind, *, id: str, created_s: int, model: str, scores: bool, words: Vocabulary
    ) -> None:
        self._chat = kind == "chat"
        self._scores = scores
        self._words = words
        name = "chat.completion" if self._chat else "text_completion"
        self._head: dict[str, Any] = {
            "id": id, "object": name, "created": created_s, "model": model,
        }  # fmt: skip
        chunk = {**self._head, "object": "chat.completion.chunk" if self._chat else name}
        self._chunk_head = f'data: {_compact(chunk)[:-1]},"choices":['.encode()

    def opening(self, index: int) -> bytes:
        """A chat answer's first chunk, which only names the role; empty for text answers."""
        if not self._chat:
            return b""
        return self._chunk(index, '"delta":{"role":"assistant","content":""}', "null", None)

    def piece(self, index: int, piece: Piece) -> bytes:
        """The chunk with a piece's text; a chat's finish comes in a chunk of its own."""
        scores = _compact(self._score_list(piece.scored)) if piece.scored else "null"
        if not self._chat:
            text = f'"text":{json.dumps(piece.text)}'
            return self._chunk(index, text, scores, piece.finish)
        chunks = b""
        if piece.text or piece.scored:
            delta = f'"delta":{{"content":{json.dumps(piece.text)}}}'
            chunks = self._chunk(index, delta, scores, None)
        if piece.finish:
            chunks += self._chunk(index, '"delta":{}', "null", piece.finish)
        return chunks

    def _chunk(self, index: int, content: str, scores: str, finish: Finish | None) -> bytes:
        end = f'"{finish}"' if finish else "null"
        body = f'{{"index":{index},{content},"logprobs":{scores},"finish_reason":{end}}}]}}\n\n'
        return self._chunk_head + body.encode()

    def ending(self, usage: Usage) -> bytes:
        """The usage chunk and the stream's terminator."""
        body = f'],"usage":{_compact(usage.shown())}}}\n\n'
        return self._chunk_head + body.encode() + DONE

    def whole(self, choices: Sequence[WholeChoice], usage: Usage) -> bytes:
        """The answer to a request without streaming."""
        shown = [self._shown(index, choice) for index, choice in enumerate(choices)]
        return json.dumps({**self._head, "choices": shown, "usage": usage.shown()}).encode()

    def _shown(self, index: int, choice: WholeChoice) -> dict[str, Any]:
        scores = self._score_list(choice.scored) if self._scores else None
        end = {"logprobs": scores, "finish_reason": choice.finish}
        if not self._chat:
            return {"index": index, "text": choice.text, **end}
        message = {"role": "assistant", "content": choice.text, "refusal": None}
        return {"index": index, "message": message, **end}

    def _score_list(self, scored: Sequence[Scored]) -> dict[str, Any]:
        if self._chat:
            return {"content": [self._chat_score(one) for one in scored], "refusal": None}
        return {
            "tokens": [self._words.shown(one.token.id) for one in scored],
            "token_logprobs": [one.token.logprob for one in scored],
            "top_logprobs": [
                {self._words.shown(id): score for id, score in one.token.top} for one in scored
            ],
            "text_offset": [one.text_offset for one in scored],
        }

    def _chat_score(self, one: Scored) -> dict[str, Any]:
        top = [self._entry(id, score) for id, score in one.token.top]
        return {**self._entry(one.token.id, one.token.logprob), "top_logprobs": top}

    def _entry(self, token: int, score: float | None) -> dict[str, Any]:
        as_bytes = list(self._words.token_bytes(token))
        return {"token": self._words.shown(token), "logprob": score, "bytes": as_bytes}


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def error_body(error: ApiError) -> bytes:
    """The error as OpenAI's clients read it; the message ends with the fix."""
    shown: Mapping[str, Any] = {
        "message": f"{error} ({error.fix})",
        "type": _TYPES.get(error.status, "invalid_request_error"),
        "param": error.param,
        "code": error.code,
    }
    return json.dumps({"error": shown}).encode()


def error_event(error: ApiError) -> bytes:
    """The error as the last event of a stream that had begun."""
    return b"data: " + error_body(error) + b"\n\n"


def models_body(names: Sequence[str], *, created_s: int, context_tokens: int) -> bytes:
    """The list of models."""
    data = [
        model_object(name, created_s=created_s, context_tokens=context_tokens) for name in names
    ]
    return json.dumps({"object": "list", "data": data}).encode()


def model_object(name: str, *, created_s: int, context_tokens: int) -> dict[str, Any]:
    """One model; `max_model_len` is the longest prompt and answer in tokens."""
    return {
        "id": name, "object": "model", "created": created_s, "owned_by": "llmdeploy",
        "max_model_len": context_tokens,
    }  # fmt: skip

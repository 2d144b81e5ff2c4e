"""A chat engine in a few lines behind FakeHttp: sound unless told to misbehave."""

import json
from dataclasses import dataclass, field

from llmdeploy.edge import Event, Response

from ..fakes import FakeHttp

PROSE = "The sea is wide and blue and its waves never rest ; 4 ships sail home from far away"
WORDS = PROSE.split()
CODE = "context_length_exceeded"


def reply(status, body):
    return Response(status=status, headers={}, body=json.dumps(body).encode())


@dataclass
class EngineDouble:
    """Answers every prompt with the same words, at temperature 0 for ever the same."""

    words: list[str] = field(default_factory=lambda: list(WORDS))
    served_name: str = "chat"
    max_model_len: int = 64
    resident_bytes: int = 1_000_000_000
    growth_bytes_per_request: int = 0
    ignores_stop: bool = False
    other_answers: int = 0
    """So many answers with a stop string take another turn, as a loaded engine's may."""
    crashes_on_long: bool = False
    too_long: dict = field(default_factory=lambda: {"message": "long", "code": CODE})
    """The error that a prompt beyond the context gets."""
    logprob: float = -0.1
    runner_up: float = -3.0
    generated: int = 0
    asked: int = 0

    def http(self):
        return FakeHttp(on_request=self.request, on_stream=self.stream)

    def request(self, method, url, body):
        path = "/" + url.split("/", 3)[3]
        if path == "/v1/models":
            return reply(200, {"data": [{"id": self.served_name}]})
        if path == "/metrics":
            return Response(status=200, headers={}, body=self.metrics().encode())
        if path == "/health":
            return reply(200, {})
        return self.complete(path, body)

    def complete(self, path, body):
        if self.asked < 0:
            return None  # it crashed
        error = {"error": {"message": "no", "code": "invalid", "param": None}}
        if not isinstance(body, dict) or body.get("max_tokens", 1) < 1:
            return reply(400, error)
        if "messages" not in body and "prompt" not in body:
            return reply(400, error)
        prompt = body["messages"][0]["content"] if "messages" in body else body["prompt"]
        if len(prompt.split()) > self.max_model_len:
            self.asked = -1 if self.crashes_on_long else self.asked
            return reply(400, {"error": self.too_long})
        return reply(200, self.answer(path, body))

    def answer(self, path, body):
        self.asked += 1
        self.resident_bytes += self.growth_bytes_per_request
        words, finish = (self.words * 4)[: body["max_tokens"]], "length"
        if body.get("stop") and self.other_answers:
            self.other_answers -= 1
            words = ["Blue."] * body["max_tokens"]
        for stop in [] if self.ignores_stop else body.get("stop", []):
            if stop in words:
                words, finish = words[: words.index(stop)], "stop"
        self.generated += len(words)
        text = " ".join(words)
        choice = {"index": 0, "finish_reason": finish}
        choice |= {"message": {"content": text}} if "chat" in path else {"text": text}
        if body.get("logprobs"):
            choice["logprobs"] = {"content": [self.scored(word) for word in words]}
        return {"choices": [choice], "usage": {"completion_tokens": len(words)}}

    def scored(self, word):
        top = [
            {"token": word, "logprob": self.logprob},
            {"token": "?", "logprob": self.runner_up},
        ]
        return {"token": word, "logprob": self.logprob, "top_logprobs": top}

    def stream(self, method, url, body):
        words = self.words[: body["max_tokens"]]
        events = [
            Event(at_s=i * 0.01, data=json.dumps({"choices": [{"delta": {"content": w}}]}))
            for i, w in enumerate(words)
        ]
        usage = json.dumps({"choices": [], "usage": {"completion_tokens": len(words)}})
        return [*events, Event(at_s=1.0, data=usage), Event(at_s=1.0, data="[DONE]")]

    def metrics(self):
        values = {
            "running": 0, "waiting": 0, "kv_used_ratio": 0, "kv_cache_tokens": 4096,
            "resident_bytes": self.resident_bytes, "generated_tokens_total": self.generated,
            "prompt_tokens_total": 0, "steps_total": 0, "restarts_total": 0,
        }  # fmt: skip
        lines = [f"llmdeploy_engine_{name} {value}" for name, value in values.items()]
        for name in ("ttft_seconds", "inter_token_seconds", "queue_seconds"):
            lines += [f"llmdeploy_engine_{name}_sum 0", f"llmdeploy_engine_{name}_count 0"]
        return "\n".join(lines)

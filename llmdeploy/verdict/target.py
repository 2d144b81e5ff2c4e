"""One release as acceptance and probes reach it: through the gateway's dark listener."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from llmdeploy.edge import Http, Response
from llmdeploy.errors import Unreachable
from llmdeploy.plan.document import Promises

REQUEST_TIMEOUT_S = 60.0
"""A probe that takes longer has failed.

Source: own choice: 8 answers of 16 tokens take 1 s on one core at 130 tokens/s."""

CHAT_PATH = "/v1/chat/completions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a release answers and what it is held to."""

    release: str
    url: str
    """Without a path; behind `socket_path` the host's name means nothing."""
    socket_path: str | None
    headers: tuple[tuple[str, str], ...]
    served_name: str
    max_model_len: int
    model_key: str
    """Equal for two releases that hold the same weights in the same format."""
    promises: Promises
    metrics_urls: tuple[str, ...]
    """One for each engine endpoint."""
    log_paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredToken:
    """One output token with its log-probability and that of the best other one."""

    text: str
    logprob: float
    runner_up: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One whole answer of a chat or text completion."""

    text: str
    finish: str
    output_tokens: int
    tokens: tuple[ScoredToken, ...] = ()


def chat_body(target: Target, prompt: str, *, max_tokens: int, **more: object) -> dict[str, object]:
    """A chat request at temperature 0."""
    return {
        "model": target.served_name,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "temperature": 0,
        **more,
    }


def post(
    target: Target,
    path: str,
    body: object,
    *,
    timeout_s: float = REQUEST_TIMEOUT_S,
    http: Http,
) -> Response:
    """The answer to a POST, any status."""
    return http.request(
        "POST",
        target.url + path,
        timeout_s=timeout_s,
        json_body=body,
        headers=dict(target.headers),
        socket_path=target.socket_path,
    )


def ask(
    target: Target,
    prompt: str,
    *,
    max_tokens: int,
    timeout_s: float = REQUEST_TIMEOUT_S,
    http: Http,
    **more: object,
) -> Answer:
    """The chat answer; Unreachable when the status is not 200 or the shape is another."""
    body = chat_body(target, prompt, max_tokens=max_tokens, **more)
    response = post(target, CHAT_PATH, body, timeout_s=timeout_s, http=http)
    return read_answer(target, response)


def ask_together(
    target: Target, prompts: Sequence[str], *, max_tokens: int, http: Http, ignore_eos: bool = False
) -> tuple[Answer, ...]:
    """All answers to prompts sent at once, in their order; the first failure is raised."""

    def one(prompt: str) -> Answer:
        return ask(target, prompt, max_tokens=max_tokens, http=http, ignore_eos=ignore_eos)

    with ThreadPoolExecutor(max_workers=len(prompts)) as threads:
        return tuple(threads.map(one, prompts))


def read_answer(target: Target, response: Response) -> Answer:
    """The answer in a 200 of either API; Unreachable naming what is missing otherwise."""
    if response.status != 200:
        text = response.body[:300].decode(errors="replace")
        raise Unreachable(
            f"release {target.release}: answered {response.status}, needed 200: {text}",
            fix="see the release's log for that time: llmdeploy logs",
        )
    body = response.json()
    try:
        choice = body["choices"][0]
        text = choice["message"]["content"] if "message" in choice else choice["text"]
        if not isinstance(text, str):
            raise TypeError(f"text is {type(text).__name__}")
        return Answer(
            text=text,
            finish=str(choice["finish_reason"]),
            output_tokens=int(body["usage"]["completion_tokens"]),
            tokens=_tokens(choice.get("logprobs")),
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise Unreachable(
            f"release {target.release}: an answer without {error}, needed OpenAI's shape: "
            f"{response.body[:200].decode(errors='replace')}",
            fix="check which program listens behind the gateway for this release",
        ) from error


def _tokens(logprobs: Mapping[str, Any] | None) -> tuple[ScoredToken, ...]:
    return tuple(_token(one) for one in (logprobs or {}).get("content") or ())


def _token(one: Mapping[str, Any]) -> ScoredToken:
    others = [t["logprob"] for t in one.get("top_logprobs", ()) if t["token"] != one["token"]]
    return ScoredToken(
        text=one["token"],
        logprob=float(one["logprob"]),
        runner_up=max(map(float, others), default=None),
    )

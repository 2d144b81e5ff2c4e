"""The engine's HTTP API as an ASGI application: routing, completions, refusals."""

import asyncio
import logging
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2

from llmdeploy.engine import answers, log, openai
from llmdeploy.engine.answers import Answer, Usage, WholeChoice
from llmdeploy.engine.choice import Finish, Scored
from llmdeploy.engine.exchange import ClientGone, Exchange, Receive, Reply, Send
from llmdeploy.engine.fields import ApiError
from llmdeploy.engine.job import Job, draining
from llmdeploy.engine.metrics import Metrics
from llmdeploy.engine.openai import Asked, Kind, Limits
from llmdeploy.engine.pages import Pages
from llmdeploy.engine.pool import Pool
from llmdeploy.engine.settings import EngineSettings
from llmdeploy.engine.text import ModelText

_LONG_TEXT_CHARACTERS = 20_000
"""Tokenising more than this (about 5 ms) happens beside the event loop."""
_CLIENT_GONE_STATUS = 499
_KINDS: Mapping[str, Kind] = {"/v1/chat/completions": "chat", "/v1/completions": "text"}


class Api:
    """Answers HTTP; all work is in the pool's processes."""

    def __init__(
        self, settings: EngineSettings, *, model: ModelText, pool: Pool, created_s: int
    ) -> None:
        self._settings = settings
        self._model = model
        self._pool = pool
        self._limits = Limits(
            served_name=settings.served_name,
            vocabulary=model.vocabulary.size,
            most_in_flight=settings.max_num_seqs + settings.max_queue,
            defaults=model.defaults,
        )
        self._metrics = Metrics()
        pages = Pages(settings, pool=pool, metrics=self._metrics, created_s=created_s)
        self._pages = pages.by_path()

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """The ASGI entry: whatever happens, the client gets an answer in OpenAI's shape."""
        if scope["type"] != "http":
            return
        exchange = Exchange(
            scope=scope, receive=receive, send=send, id=f"req-{os.urandom(12).hex()}"
        )
        exchange.id = exchange.header(b"x-request-id") or exchange.id
        try:
            await self._answer(exchange)
        except ClientGone:
            return
        except ApiError as error:
            await _refuse(exchange, error)
        except Exception as error:
            logging.getLogger("llmdeploy.engine").exception("a bug answered 500")
            bug = f"internal error: {type(error).__name__}"
            fix = "see the traceback in the engine's log"
            await _refuse(exchange, ApiError(bug, status=500, code="internal_error", fix=fix))
        finally:
            exchange.close()

    async def _answer(self, exchange: Exchange) -> None:
        path, method = exchange.scope["path"], exchange.scope["method"]
        kind = _KINDS.get(path)
        page = self._pages.get(path)
        if kind is None and page is None:
            raise _not_found(path)
        allowed = "GET" if page else "POST"
        if method != allowed and not (page and method == "HEAD"):
            await exchange.reply(_wrong_method(path, method, allowed))
        elif page:
            await exchange.reply(page())
        elif kind:
            await self._complete(exchange, kind)

    # --- completions

    async def _complete(self, exchange: Exchange, kind: Kind) -> None:
        began_s = time.perf_counter()
        finish = "none"
        code: int | None = None
        try:
            async with asyncio.timeout(self._settings.request_timeout_s):
                finish = await self._generate(exchange, kind)
            self._metrics.e2e.observe(time.perf_counter() - began_s)
        except TimeoutError:
            finish, code = "timeout", 504
            raise _too_late(self._settings.request_timeout_s) from None
        except ClientGone:
            finish, code = "cancelled", _CLIENT_GONE_STATUS
            raise
        except ApiError as error:
            finish, code = "error" if error.status >= 500 else "none", error.status
            raise
        finally:
            code = code or exchange.status or 500
            self._metrics.requests[code, finish] += 1
            took_s = round(time.perf_counter() - began_s, 4)
            log.write(
                "request", level=logging.DEBUG,
                id=exchange.id, kind=kind, code=code, finish=finish, took_s=took_s,
            )  # fmt: skip

    async def _generate(self, exchange: Exchange, kind: Kind) -> str:
        """Answers one completion request; how it ended."""
        self._check_open()
        asked = openai.parse(await exchange.body(), kind, limits=self._limits)
        prompts = await self._prompts(asked)
        context = self._pool.context_tokens
        lengths = [openai.answer_tokens(len(p), asked, context_tokens=context) for p in prompts]
        self._check_room(asked.choices * len(prompts))
        words = self._model.vocabulary
        job = Job(asked, decode=words.decode, pool=self._pool, metrics=self._metrics)
        try:
            seed = int.from_bytes(os.urandom(7)) if asked.seed is None else asked.seed
            job.begin(prompts, lengths, seed)
            exchange.on_leave(job.leave)
            answer = self._new_answer(asked)
            await (_stream if asked.stream else _whole)(exchange, job, answer)
        finally:
            job.cancel()
        return job.finish or "none"

    def _new_answer(self, asked: Asked) -> Answer:
        prefix = "chatcmpl" if asked.kind == "chat" else "cmpl"
        return Answer(
            asked.kind,
            id=f"{prefix}-{os.urandom(12).hex()}",
            created_s=int(time.time()),
            model=self._settings.served_name,
            scores=asked.sampling.top_logprobs is not None,
            words=self._model.vocabulary,
        )

    def _check_open(self) -> None:
        """503 unless requests are taken."""
        phase = self._pool.phase
        if phase == "ready":
            return
        if phase == "draining":
            self._metrics.rejections["draining"] += 1
            raise draining()
        self._metrics.rejections["not_ready"] += 1
        raise ApiError(
            f"the engine is {phase}, needed ready",
            status=503,
            code="not_ready",
            retry_after_s=5,
            fix="wait until /ready answers 200",
        )

    def _check_room(self, answers_asked: int) -> None:
        """429 where the request's answers do not fit into what is decoded and waits."""
        self._check_open()  # it may have changed while the body came
        most, now = self._limits.most_in_flight, self._pool.in_flight
        if now + answers_asked > most:
            self._metrics.rejections["queue_full"] += 1
            raise ApiError(
                f"found {now} answers running or waiting and {answers_asked} asked, "
                f"needed at most {most}",
                status=429,
                code="queue_full",
                retry_after_s=1,
                fix="ask again after Retry-After",
            )

    async def _prompts(self, asked: Asked) -> list[Sequence[int]]:
        if asked.kind == "chat":
            return [await self._tokens(self._chat_text(asked), asked)]
        return [await self._tokens(p, asked) if isinstance(p, str) else p for p in asked.prompts]

    async def _tokens(self, text: str, asked: Asked) -> Sequence[int]:
        """Tokens of a prompt; a chat's template has already set what stands around its text."""
        words, special = self._model.vocabulary, asked.kind == "text"
        if len(text) < _LONG_TEXT_CHARACTERS:
            return words.encode(text, special=special)
        least, context = words.least_tokens(text), self._pool.context_tokens
        openai.answer_tokens(least or 1, asked, context_tokens=context, at_least=True)
        return await asyncio.to_thread(words.encode, text, special=special)

    def _chat_text(self, asked: Asked) -> str:
        template = self._model.template
        if template is None:
            raise ApiError(
                "the model has no chat template",
                status=400,
                code="no_chat_template",
                fix="use /v1/completions",
            )
        try:
            return template.render(asked.messages, options=asked.template_options)
        except (jinja2.TemplateError, TypeError, ValueError) as error:
            raise ApiError(
                f"messages: the model's chat template refuses them: {error}",
                status=400,
                code="invalid_value",
                param="messages",
                fix="change the messages' roles or order",
            ) from error


async def _stream(exchange: Exchange, job: Job, answer: Answer) -> None:
    opened: set[int] = set()
    while not job.done:
        parts = []
        for index, piece in await job.pieces():
            if index not in opened:
                opened.add(index)
                parts.append(answer.opening(index))
            parts.append(answer.piece(index, piece))
        if job.done:
            parts.append(answer.ending(_usage(job)))
        if body := b"".join(parts):
            await exchange.chunk(body, last=job.done)


async def _whole(exchange: Exchange, job: Job, answer: Answer) -> None:
    texts: list[list[str]] = [[] for _ in range(job.answers)]
    scored: list[list[Scored]] = [[] for _ in range(job.answers)]
    finishes: list[Finish] = ["stop"] * job.answers
    while not job.done:
        for index, piece in await job.pieces():
            texts[index].append(piece.text)
            scored[index].extend(piece.scored)
            finishes[index] = piece.finish or finishes[index]
    choices = [
        WholeChoice(text="".join(texts[i]), scored=tuple(scored[i]), finish=finishes[i])
        for i in range(job.answers)
    ]
    await exchange.reply(Reply(body=answer.whole(choices, _usage(job))))


def _usage(job: Job) -> Usage:
    return Usage(prompt_tokens=job.prompt_tokens, answer_tokens=job.answer_tokens)


async def _refuse(exchange: Exchange, error: ApiError) -> None:
    """Sends an error; in a stream that has begun as its last event, and the connection is cut:
    whoever counts broken streams must not take this one for a whole answer."""
    if exchange.status is not None:
        await exchange.chunk(answers.error_event(error))
        return
    retry = () if error.retry_after_s is None else (("retry-after", str(error.retry_after_s)),)
    reply = Reply(body=answers.error_body(error), status=error.status, headers=retry)
    await exchange.reply(reply)


def _not_found(path: str) -> ApiError:
    return ApiError(
        f"{path[:200]}: no such path",
        status=404,
        code="not_found",
        fix=f"use {', '.join(_KINDS)} or /v1/models",
    )


def _wrong_method(path: str, method: str, allowed: str) -> Reply:
    error = ApiError(
        f"{path}: found {method}, needed {allowed}",
        status=405,
        code="method_not_allowed",
        fix=f"send {allowed}",
    )
    return Reply(body=answers.error_body(error), status=405, headers=(("allow", allowed),))


def _too_late(timeout_s: float) -> ApiError:
    return ApiError(
        f"no whole answer after {timeout_s:g} s, the engine's limit for one request",
        status=504,
        code="request_timeout",
        fix="ask for fewer tokens, or raise engine.request_timeout",
    )

"""One completion request while it is answered: its pieces as the pool brings them."""

import asyncio
import functools
import time
from collections.abc import Sequence
from dataclasses import replace

from llmdeploy.engine.choice import Choice, Finish, Piece
from llmdeploy.engine.exchange import ClientGone
from llmdeploy.engine.fields import ApiError
from llmdeploy.engine.messages import Output
from llmdeploy.engine.metrics import Metrics
from llmdeploy.engine.openai import Asked
from llmdeploy.engine.pool import Pool
from llmdeploy.engine.text import Decode

_SEED_VALUES = 2**63


class Job:
    """Puts a request's answers into the pool and gathers what comes back, one wake-up at a time."""

    def __init__(self, asked: Asked, *, decode: Decode, pool: Pool, metrics: Metrics) -> None:
        self._asked = asked
        self._decode = decode
        self._pool = pool
        self._metrics = metrics
        self._arrived: list[tuple[int, Output]] = []
        self._wake = asyncio.Event()
        self._ids: list[str] = []
        self._choices: list[Choice] = []
        self._last_at_s: list[float] = []
        self._began_s = time.perf_counter()
        self._gone = False
        self.prompt_tokens = 0

    def begin(self, prompts: Sequence[Sequence[int]], max_tokens: Sequence[int], seed: int) -> None:
        """Submits `asked.choices` answers for each prompt; choice i draws with seed + i."""
        self.prompt_tokens = sum(map(len, prompts))
        self._metrics.prompt_tokens += self.prompt_tokens
        for prompt, most in zip(prompts, max_tokens, strict=True):
            for _ in range(self._asked.choices):
                index = len(self._choices)
                self._choices.append(
                    Choice(
                        self._decode,
                        prompt=prompt,
                        stops=self._asked.stops,
                        scores=self._asked.sampling.top_logprobs is not None,
                    )
                )
                self._last_at_s.append(0.0)
                sampling = replace(self._asked.sampling, seed=(seed + index) % _SEED_VALUES)
                sink = functools.partial(self._deliver, index)
                self._ids.append(
                    self._pool.submit(prompt, max_tokens=most, sampling=sampling, sink=sink)
                )

    @property
    def answers(self) -> int:
        """How many answers the request has."""
        return len(self._choices)

    @property
    def answer_tokens(self) -> int:
        """Tokens generated so far, over all answers."""
        return sum(choice.tokens for choice in self._choices)

    @property
    def done(self) -> bool:
        """Whether every answer is at its end."""
        return all(choice.finish for choice in self._choices)

    @property
    def finish(self) -> Finish | None:
        """How the first answer ended."""
        return self._choices[0].finish

    def _deliver(self, index: int, output: Output) -> None:
        self._arrived.append((index, output))
        self._wake.set()

    def leave(self) -> None:
        """The client is gone: whoever waits for pieces gets ClientGone."""
        self._gone = True
        self._wake.set()

    async def pieces(self) -> list[tuple[int, Piece]]:
        """What came since the last call, with the answer's index; waits until there is something.

        ApiError where an answer failed, ClientGone where nobody waits for it."""
        await self._wake.wait()
        self._wake.clear()
        if self._gone:
            raise ClientGone
        arrived, self._arrived = self._arrived, []
        now_s = time.perf_counter()
        return [(index, self._piece(index, output, now_s)) for index, output in arrived]

    def _piece(self, index: int, output: Output, now_s: float) -> Piece:
        if output.finish in ("error", "cancelled"):
            raise self._failed(output.error or "the engine ended the request")
        self._measure(index, output, now_s)
        choice = self._choices[index]
        piece = choice.push(output)
        if choice.cut and not output.finish:
            self._pool.cancel(self._ids[index])
        return piece

    def _measure(self, index: int, output: Output, now_s: float) -> None:
        metrics = self._metrics
        if output.queued_s is not None:
            metrics.queue.observe(output.queued_s)
        tokens = len(output.tokens)
        if not tokens:
            return
        metrics.generated_tokens += tokens
        if last_at_s := self._last_at_s[index]:
            metrics.inter_token.observe((now_s - last_at_s) / tokens, tokens)
        else:
            metrics.ttft.observe(now_s - self._began_s)
        self._last_at_s[index] = now_s

    def _failed(self, reason: str) -> ApiError:
        if self._pool.phase == "draining":
            return draining()
        if self._pool.failure:
            return ApiError(
                reason, status=503, code="engine_failed", retry_after_s=5, fix="ask again"
            )
        return ApiError(reason, status=500, code="engine_error", fix="ask again")

    def cancel(self) -> None:
        """Ends in the pool whatever is still running."""
        for id, choice in zip(self._ids, self._choices, strict=True):
            if not choice.finish:
                self._pool.cancel(id)


def draining() -> ApiError:
    """503: the engine is about to end."""
    return ApiError(
        "the engine drains and takes no requests",
        status=503,
        code="draining",
        retry_after_s=1,
        fix="ask again, another replica answers",
    )

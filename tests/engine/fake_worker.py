"""A worker process without a model: answers each prompt with its own tokens, over the real pipe.

What it does is in the prompt, whose text it reads through the tokenizer at hand:
`crash` ends the process, `hang` never answers, `fail` answers with an error, `scores` gives
log-probabilities with the answer. Every answer is the prompt's tokens again, one every step.
"""

import os
import pathlib
import time
from multiprocessing.connection import Connection

import tokenizers

from llmdeploy.engine.messages import (
    Cancel,
    Failed,
    Generate,
    Heartbeat,
    Output,
    Outputs,
    Reached,
    Shutdown,
    Token,
)
from llmdeploy.engine.settings import EngineSettings

_WEIGHTS_BYTES = 1000


def main(settings: EngineSettings, connection: Connection, *, worker: int) -> None:
    """Behaves like `llmdeploy.engine.worker.main`."""
    if settings.served_name == "too-large":
        connection.send(Failed(reason="needs 9 GiB, 1 GiB is free", fix="choose a smaller model"))
        raise SystemExit(3)
    connection.send(Reached(phase="comm_ready"))
    connection.send(Reached(phase="loaded", weights_bytes=_WEIGHTS_BYTES))
    tokens = settings.kv_cache_tokens // settings.data_parallel
    connection.send(Reached(phase="kv_ready", kv_cache_tokens=tokens))
    tokenizer = tokenizers.Tokenizer.from_file(str(pathlib.Path(settings.model) / "tokenizer.json"))
    _Fake(settings, connection, tokenizer).run()


class _Fake:
    def __init__(
        self, settings: EngineSettings, connection: Connection, tokenizer: tokenizers.Tokenizer
    ) -> None:
        self._settings = settings
        self._connection = connection
        self._tokenizer = tokenizer
        self._running: dict[str, tuple[Generate, list[int]]] = {}
        self._steps = 0
        self._cancelled = 0

    def run(self) -> None:
        """Steps once a turn; an idle turn waits for a message."""
        step_s = self._settings.batch_window_s  # here: how long one step takes
        while True:
            while self._connection.poll(None if not self._running else step_s):
                message = self._connection.recv()
                if isinstance(message, Shutdown):
                    return
                self._take(message)
            self._step()

    def _take(self, message: Generate | Cancel) -> None:
        if isinstance(message, Cancel):
            self._cancelled += self._running.pop(message.id, None) is not None
            self._beat()
            return
        text = self._tokenizer.decode(list(message.prompt))
        if "crash" in text:
            os._exit(9)
        if "fail" in text:
            error = Output(id=message.id, finish="error", error="the drill failed this request")
            self._connection.send(error)
            return
        if "stuck" in text:
            time.sleep(600)
        script = [] if "hang" in text else list(message.prompt)
        self._running[message.id] = (message, script)

    def _step(self) -> None:
        ids = [id for id, (_, script) in self._running.items() if script]
        outputs = tuple(self._next(id) for id in ids)
        if outputs:
            self._steps += 1
            self._connection.send(Outputs(outputs=outputs))
        self._beat()

    def _next(self, id: str) -> Output:
        request, script = self._running[id]
        done = len(request.prompt) - len(script)
        token = Token(id=script.pop(0))
        if (top := request.sampling.top_logprobs) is not None:
            alternatives = tuple((token.id + i, -0.5 - i) for i in range(top))
            token = Token(id=token.id, logprob=-0.5, top=alternatives)
        finish = "length" if done + 1 == request.max_tokens else None if script else "stop"
        if finish:
            del self._running[id]
        return Output(id=id, tokens=(token,), finish=finish, queued_s=None if done else 0.01)

    def _beat(self) -> None:
        beat = Heartbeat(
            steps=self._steps, running=len(self._running), kv_used_tokens=32 * len(self._running)
        )
        self._connection.send(beat)

"""The loop of one worker: messages in, steps, outputs and heartbeats out."""

import contextlib
import time
from multiprocessing.connection import Connection

import torch

from llmdeploy.engine import log
from llmdeploy.engine.batch import Batch
from llmdeploy.engine.drill import Drill
from llmdeploy.engine.messages import Cancel, Generate, Heartbeat, Output, Outputs, Shutdown

_HEARTBEAT_S = 0.2


def serve(batch: Batch, drill: Drill, connection: Connection, *, batch_window_s: float) -> None:
    """Works until the other side says Shutdown or is gone."""
    loop = _Loop(batch, drill, connection, batch_window_s)
    gone = (EOFError, BrokenPipeError, ConnectionResetError)
    with contextlib.suppress(*gone), torch.inference_mode():
        loop.run()


class _Loop:
    def __init__(
        self, batch: Batch, drill: Drill, connection: Connection, batch_window_s: float
    ) -> None:
        self._batch = batch
        self._drill = drill
        self._connection = connection
        self._batch_window_s = batch_window_s
        self._beat_at_s = 0.0
        self._stopped = False

    def run(self) -> None:
        while not self._stopped:
            if self._batch.idle:
                self._wait()
            else:
                self._receive(wait_s=0)
            if not self._batch.idle or self._batch.shared:
                self._step()
            self._beat()

    def _wait(self) -> None:
        """Until a request comes or the next heartbeat is due; then for company, a while."""
        self._beat(now=True)
        self._receive(wait_s=_HEARTBEAT_S)
        until_s = time.monotonic() + self._batch_window_s
        while not self._batch.idle and (left_s := until_s - time.monotonic()) > 0:
            self._receive(wait_s=left_s)

    def _receive(self, *, wait_s: float) -> None:
        outputs = []
        while not self._stopped and self._connection.poll(wait_s):
            wait_s = 0
            output = self._handle(self._connection.recv())
            if output is not None:
                outputs.append(output)
        self._send(tuple(outputs))

    def _handle(self, message: object) -> Output | None:
        match message:
            case Generate():
                return self._batch.add(message)
            case Cancel():
                return self._batch.cancel(message.id)
            case Shutdown():
                self._stopped = True
                return None
        raise TypeError(f"a worker got {type(message).__name__}, needed Generate, Cancel, Shutdown")

    def _step(self) -> None:
        started_s = time.perf_counter()
        try:
            outputs = self._batch.advance()
        except Exception as error:  # the top of the loop: one bad step must not end it
            if self._batch.shared:  # the other ranks are inside the step: all must start anew
                raise
            log.failed("step_failed", next="an empty cache")
            outputs = self._batch.recover(error)
        pause_s = self._drill.pause_s(time.perf_counter() - started_s)
        if pause_s:
            time.sleep(pause_s)
        self._send(outputs)

    def _send(self, outputs: tuple[Output, ...]) -> None:
        if outputs:
            self._connection.send(Outputs(outputs=outputs))

    def _beat(self, *, now: bool = False) -> None:
        at_s = time.monotonic()
        if not now and at_s - self._beat_at_s < _HEARTBEAT_S:
            return
        self._beat_at_s = at_s
        batch = self._batch
        self._connection.send(
            Heartbeat(
                steps=batch.steps,
                generated_tokens=batch.generated_tokens,
                prompt_tokens=batch.prompt_tokens,
                running=batch.running,
                waiting=batch.waiting,
                kv_used_tokens=batch.kv_used_tokens(),
                restarts=batch.restarts,
            )
        )

"""A real worker process as the pool starts it, for tests."""

import contextlib
import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection

from llmdeploy.engine import worker
from llmdeploy.engine.messages import (
    Failed,
    FromWorker,
    Heartbeat,
    Output,
    Outputs,
    Reached,
    Shutdown,
    ToWorker,
)
from llmdeploy.engine.settings import EngineSettings

_PATIENCE_S = 180.0


class WorkerProcess:
    """The pipe to a worker, with what it said by kind."""

    def __init__(self, connection: Connection, process: multiprocessing.Process) -> None:
        self.process = process
        self.reached: list[Reached] = []
        self.heartbeats: list[Heartbeat] = []
        self.outputs: dict[str, list[Output]] = {}
        self._connection = connection

    def send(self, *messages: ToWorker) -> None:
        for message in messages:
            self._connection.send(message)

    def hear(self) -> FromWorker:
        """The worker's next message, kept by kind; EOFError when it is gone."""
        assert self._connection.poll(_PATIENCE_S), "the worker has been silent for too long"
        message: FromWorker = self._connection.recv()
        match message:
            case Reached():
                self.reached.append(message)
            case Heartbeat():
                self.heartbeats.append(message)
            case Outputs(outputs=outputs):
                for output in outputs:
                    self.outputs.setdefault(output.id, []).append(output)
        return message

    def until_ready(self) -> None:
        """Until the KV cache is there; AssertionError with the reason when the start fails."""
        while True:
            message = self.hear()
            assert not isinstance(message, Failed), message
            if isinstance(message, Reached) and message.phase == "kv_ready":
                return

    def until_failed(self) -> Failed:
        while True:
            message = self.hear()
            if isinstance(message, Failed):
                return message

    def until_finished(self, *ids: str) -> None:
        def finished(id: str) -> bool:
            return id in self.outputs and self.outputs[id][-1].finish is not None

        while not all(finished(id) for id in ids):
            self.hear()

    def until_idle(self) -> Heartbeat:
        """The next heartbeat that shows no request."""
        while True:
            message = self.hear()
            if isinstance(message, Heartbeat) and message.running + message.waiting == 0:
                return message

    def tokens(self, id: str) -> list[int]:
        return [token.id for output in self.outputs[id] for token in output.tokens]


@contextlib.contextmanager
def running_worker(settings: EngineSettings) -> Iterator[WorkerProcess]:
    """A started worker; asked to end afterwards, and killed where it does not."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=worker.main, args=(settings, theirs), kwargs={"worker": 0})
    process.start()
    theirs.close()
    try:
        yield WorkerProcess(ours, process)
    finally:
        with contextlib.suppress(OSError):
            ours.send(Shutdown())
        process.join(20)
        if process.is_alive():
            process.kill()
            process.join()
        ours.close()

"""One worker process and the pipe to it, as the API process holds them."""

import ctypes
import importlib
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Literal

from llmdeploy.engine.messages import Heartbeat, Output, ToWorker
from llmdeploy.engine.settings import EngineSettings

Phase = Literal["starting", "comm_ready", "loaded", "kv_ready", "ready", "draining", "failed"]
Sink = Callable[[Output], None]

_PR_SET_PDEATHSIG = 1


@dataclass(slots=True, kw_only=True)
class Worker:
    """One worker process as the API process sees it."""

    number: int
    process: BaseProcess
    connection: Connection
    outbox: "queue.SimpleQueue[ToWorker | None]" = field(default_factory=queue.SimpleQueue)
    sinks: dict[str, Sink] = field(default_factory=dict)
    phase: Phase = "starting"
    kv_cache_tokens: int = 0
    weights_bytes: int = 0
    heartbeat: Heartbeat = field(default_factory=Heartbeat)
    moved_at_s: float = 0.0
    """Monotonic time of its last sign of progress."""
    alive: bool = True

    def send(self, message: ToWorker) -> None:
        """Hands the message to the sender thread: a full pipe must not stop the event loop."""
        self.outbox.put(message)


def start(module: str, settings: EngineSettings, number: int) -> Worker:
    """Starts worker `number`, whose process runs `module`'s `main`."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(
        target=_enter, args=(module, settings, theirs, number), name=f"worker-{number}"
    )
    process.start()
    theirs.close()
    worker = Worker(number=number, process=process, connection=ours)
    threading.Thread(target=_send_all, args=(worker,), daemon=True).start()
    return worker


def _send_all(worker: Worker) -> None:
    """The sender thread: passes messages on until None; a broken pipe shows on the reading side."""
    while (message := worker.outbox.get()) is not None:
        try:
            worker.connection.send(message)
        except OSError:
            return


def _enter(module: str, settings: EngineSettings, connection: Connection, number: int) -> None:
    """Runs in the worker process: leaves signals to the API process and dies with it."""
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: None)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    if parent is None or os.getppid() != parent.pid:  # it died before the line above
        return
    importlib.import_module(module).main(settings, connection, worker=number)

"""The engine's worker processes: started together, fed over pipes, and gone together.

A worker that ends takes the whole engine with it: the supervisor starts the group anew.
"""

import asyncio
import itertools
import logging
import signal
import time
from collections.abc import Sequence
from typing import get_args

from llmdeploy.engine import link, log
from llmdeploy.engine.link import Phase, Sink, Worker
from llmdeploy.engine.messages import (
    Cancel,
    Failed,
    FromWorker,
    Generate,
    Heartbeat,
    Output,
    Outputs,
    Reached,
    Sampling,
    Shutdown,
)
from llmdeploy.engine.settings import EngineSettings

FROZEN_AFTER_S = 30.0
"""A worker with requests whose step counter stands still this long is counted as dead."""
_SHUTDOWN_GRACE_S = 5.0
_WARM_UP_TOKENS = 8


class Pool:
    """All workers of the engine; every method runs on the event loop's thread."""

    def __init__(self, settings: EngineSettings, *, worker_module: str) -> None:
        self._settings = settings
        self._worker_module = worker_module
        self._ids = itertools.count()
        self.workers: tuple[Worker, ...] = ()
        self.failure: Failed | None = None
        self.changed = asyncio.Event()
        """Set at each change of phase and at the failure."""
        self._draining = False
        self._stopping = False

    def start(self) -> None:
        """Starts the workers; their progress shows in `phase`."""
        numbers = range(self._settings.data_parallel)
        self.workers = tuple(link.start(self._worker_module, self._settings, n) for n in numbers)
        loop = asyncio.get_running_loop()
        for worker in self.workers:
            loop.add_reader(worker.connection.fileno(), self._read, worker)
            loop.add_reader(worker.process.sentinel, self._ended, worker)

    # --- what the API asks

    @property
    def phase(self) -> Phase:
        """How far the slowest worker is."""
        if self.failure:
            return "failed"
        if self._draining:
            return "draining"
        phases = get_args(Phase)
        return min((w.phase for w in self.workers), key=phases.index, default="starting")

    @property
    def in_flight(self) -> int:
        """Answers that are generated or wait, over all workers."""
        return sum(len(worker.sinks) for worker in self.workers)

    @property
    def kv_cache_tokens(self) -> int:
        """KV capacity of all workers in tokens."""
        return sum(worker.kv_cache_tokens for worker in self.workers)

    @property
    def weights_bytes(self) -> int:
        """Weights that all workers hold, in bytes."""
        return sum(worker.weights_bytes for worker in self.workers)

    @property
    def context_tokens(self) -> int:
        """The longest prompt and answer that any worker can hold, in tokens."""
        return min([self._settings.max_model_len, *(w.kv_cache_tokens for w in self.workers)])

    def unhealthy(self) -> str | None:
        """Why this engine should get no traffic and be started anew; None when it is well."""
        if self.failure:
            return self.failure.reason
        now_s = time.monotonic()
        for worker in self.workers:
            still_s = now_s - worker.moved_at_s
            if worker.sinks and still_s > FROZEN_AFTER_S:
                return (
                    f"worker {worker.number}: no step for {still_s:.0f} s with "
                    f"{len(worker.sinks)} requests, needed one every {FROZEN_AFTER_S:.0f} s"
                )
        return None

    def submit(
        self, prompt: Sequence[int], *, max_tokens: int, sampling: Sampling, sink: Sink
    ) -> str:
        """Gives the prompt to the least loaded worker; `sink` gets its outputs up to the finish.
        The id cancels it."""
        worker = min(self.workers, key=lambda w: len(w.sinks))
        return self._submit(worker, prompt, max_tokens=max_tokens, sampling=sampling, sink=sink)

    def _submit(
        self,
        worker: Worker,
        prompt: Sequence[int],
        *,
        max_tokens: int,
        sampling: Sampling,
        sink: Sink,
    ) -> str:
        request = Generate(
            id=str(next(self._ids)), prompt=tuple(prompt), max_tokens=max_tokens, sampling=sampling
        )
        if not worker.sinks:
            worker.moved_at_s = time.monotonic()
        worker.sinks[request.id] = sink
        worker.send(request)
        return request.id

    def cancel(self, id: str) -> None:
        """Ends the request in its worker; its sink hears nothing more."""
        for worker in self.workers:
            if worker.sinks.pop(id, None):
                worker.send(Cancel(id=id))

    def drain(self) -> None:
        """From now on the phase is `draining`."""
        self._draining = True
        self.changed.set()

    # --- what the workers say

    def _read(self, worker: Worker) -> None:
        try:
            while worker.connection.poll():
                self._take(worker, worker.connection.recv())
        except (EOFError, OSError):
            self._lost(worker)

    def _take(self, worker: Worker, message: FromWorker) -> None:
        match message:
            case Outputs(outputs=outputs):
                worker.moved_at_s = time.monotonic()
                for output in outputs:
                    self._deliver(worker, output)
            case Output():
                worker.moved_at_s = time.monotonic()
                self._deliver(worker, message)
            case Heartbeat():
                if message.steps != worker.heartbeat.steps:
                    worker.moved_at_s = time.monotonic()
                worker.heartbeat = message
            case Reached():
                self._reached(worker, message)
            case Failed():
                self._fail(message, worker)

    def _deliver(self, worker: Worker, output: Output) -> None:
        sink = worker.sinks.pop if output.finish else worker.sinks.get
        if found := sink(output.id, None):
            found(output)

    def _reached(self, worker: Worker, reached: Reached) -> None:
        worker.phase = reached.phase
        worker.kv_cache_tokens = reached.kv_cache_tokens or worker.kv_cache_tokens
        worker.weights_bytes = reached.weights_bytes or worker.weights_bytes
        log.write(
            "worker", worker=worker.number, phase=worker.phase,
            kv_cache_tokens=worker.kv_cache_tokens, weights_bytes=worker.weights_bytes,
        )  # fmt: skip
        self.changed.set()
        if reached.phase == "kv_ready":
            self._warm_up(worker)

    def _warm_up(self, worker: Worker) -> None:
        """A first answer before `ready`: it proves the path and pays for what is slow once.
        A drill's engine is let in unproven: its fault must show later, not here."""
        if self._settings.drill:
            worker.phase = "ready"
            return

        def sink(output: Output) -> None:
            if output.finish == "error":
                self._fail(Failed(reason=f"the warm-up failed: {output.error}"), worker)
            elif output.finish:
                worker.phase = "ready"
                self.changed.set()

        size = min(_WARM_UP_TOKENS, worker.kv_cache_tokens // 2, self._settings.max_model_len // 2)
        greedy = Sampling(temperature=0.0, ignore_eos=True)
        self._submit(worker, [0] * size, max_tokens=size, sampling=greedy, sink=sink)

    # --- how they end

    def _ended(self, worker: Worker) -> None:
        asyncio.get_running_loop().remove_reader(worker.process.sentinel)
        self._read(worker)
        self._lost(worker)

    def _lost(self, worker: Worker) -> None:
        if not worker.alive:
            return
        worker.alive = False
        asyncio.get_running_loop().remove_reader(worker.connection.fileno())
        worker.process.join(timeout=1.0)
        code = worker.process.exitcode
        ended = "closed its pipe" if code is None else f"ended with exit code {code}"
        if code is not None and code < 0:
            ended = f"was killed by {signal.Signals(-code).name}"
        self._fail(Failed(reason=f"worker {worker.number} {ended}"), worker)

    def _fail(self, failed: Failed, worker: Worker) -> None:
        """The first failure counts; every request gets it as its last output."""
        if self.failure or self._stopping:
            return
        self.failure = failed
        log.write(
            "failed",
            level=logging.ERROR,
            worker=worker.number,
            reason=failed.reason,
            fix=failed.fix,
        )
        self.end_requests(failed.reason)
        self.changed.set()

    def end_requests(self, reason: str) -> None:
        """Ends every request with an error."""
        for worker in self.workers:
            sinks, worker.sinks = worker.sinks, {}
            for id, sink in sinks.items():
                worker.send(Cancel(id=id))
                sink(Output(id=id, finish="error", error=reason))

    async def stop(self) -> None:
        """Ends all workers: asked, then killed after a grace period."""
        self._stopping = True
        for worker in self.workers:
            worker.send(Shutdown())
            worker.outbox.put(None)
        deadline_s = time.monotonic() + _SHUTDOWN_GRACE_S
        while time.monotonic() < deadline_s and any(w.process.is_alive() for w in self.workers):
            await asyncio.sleep(0.02)
        for worker in self.workers:
            if worker.process.is_alive():
                worker.process.kill()
            worker.process.join()

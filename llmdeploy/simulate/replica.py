"""One engine over time: continuous batching, chunked prefill, KV cache, queue, preemption."""

import heapq
import math
from collections import deque

from llmdeploy.simulate.limits import Limits
from llmdeploy.simulate.pace_table import PaceTable
from llmdeploy.simulate.request import Request, Served

WINDOW_S = 3600.0
"""Busy time and occupancy are summed for each such window."""


class Job:
    """A request inside the replica."""

    __slots__ = ("done", "end_step", "first_s", "generated", "prompt", "request")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.prompt = request.input_tokens
        """Tokens to prefill; after a preemption the generated ones too."""
        self.done = 0
        """Of them, those in the cache."""
        self.generated = 0
        self.first_s = 0.0
        self.end_step = 0
        """Step after which its last token is there."""


class Window:
    """Sums over the replica's busy time in one window."""

    __slots__ = ("batch_s", "busy_s", "kv_tokens_s", "tokens")

    def __init__(self) -> None:
        self.busy_s = 0.0
        self.batch_s = 0.0
        self.kv_tokens_s = 0.0
        self.tokens = 0


class Replica:
    """Steps happen one after the other; steps that are alike are taken together.

    A step decodes every running request and prefills waiting ones with the tokens its budget has
    left, first come first served. A request is admitted where a slot, the step's budget and the
    KV cache for its prompt are free. Where decoding finds the cache full, the request admitted
    last goes back to the head of the queue and is prefilled again with what it had.
    Source: vLLM 0.11 scheduler (`Scheduler.schedule`: running first, then waiting, preemption by
    recomputation from the end).
    """

    __slots__ = (
        "_context", "_ends", "_kv_tokens", "_limits", "_prefilling", "_running", "_started",
        "_steps", "_table", "_used", "_waiting", "kv_most", "now_s", "preempted", "served",
        "windows",
    )  # fmt: skip

    def __init__(self, table: PaceTable, limits: Limits) -> None:
        self._table = table
        self._limits = limits
        self._kv_tokens = limits.kv_cache_tokens
        self._waiting: deque[Job] = deque()
        self._prefilling: deque[Job] = deque()
        self._running: dict[int, Job] = {}
        """By identity, in order of admission."""
        self._ends: list[tuple[int, int, Job]] = []
        self._context = 0
        """Tokens in the cache of all running requests."""
        self._used = 0
        """Tokens of the cache that are taken, prompts in prefill included."""
        self._steps = 0
        self._started = 0
        self.now_s = 0.0
        self.preempted = 0
        self.kv_most = 0
        self.served: list[Served] = []
        self.windows: dict[int, Window] = {}

    @property
    def active(self) -> int:
        """Requests inside, waiting ones too."""
        return len(self._running) + len(self._prefilling) + len(self._waiting)

    def offer(self, request: Request) -> bool:
        """Takes the request at its arrival, up to which the replica was advanced; False where it
        is longer than the cache or the queue is full."""
        limits = self._limits
        if request.input_tokens + request.output_tokens > self._kv_tokens:
            return False
        if limits.max_queue is not None and self.active >= limits.max_num_seqs + limits.max_queue:
            return False
        self.now_s = max(self.now_s, request.arrival_s)
        self._waiting.append(Job(request))
        return True

    def advance(self, until_s: float) -> None:
        """Goes on to the first end of a step at or after `until_s`, or until nothing is left."""
        while self.now_s < until_s and (self._running or self._prefilling or self._waiting):
            self._make_room()
            self._admit()
            if self._prefilling:
                self._mixed_step()
            else:
                self._decode_steps(until_s)

    def _make_room(self) -> None:
        """Preempts the newest while the next step's tokens do not fit."""
        while self._used + len(self._running) > self._kv_tokens:
            if self._prefilling:
                job = self._prefilling.pop()
                self._used -= job.prompt
            else:
                _, job = self._running.popitem()
                job.generated = job.request.output_tokens - (job.end_step - self._steps)
                tokens = job.request.input_tokens + job.generated
                self._used -= tokens
                self._context -= tokens
                job.prompt, job.end_step = tokens, 0
            self.preempted += 1
            job.done = 0
            self._waiting.appendleft(job)

    def _admit(self) -> None:
        running, prefilling = len(self._running), self._prefilling
        budget = self._limits.max_num_batched_tokens - running
        for job in prefilling:
            budget -= job.prompt - job.done
        while self._waiting and budget > 0:
            job = self._waiting[0]
            if running + len(prefilling) >= self._limits.max_num_seqs:
                return
            if self._used + job.prompt + running + 1 > self._kv_tokens and self.active > len(
                self._waiting
            ):
                return
            self._waiting.popleft()
            prefilling.append(job)
            self._used += job.prompt
            budget -= job.prompt

    def _mixed_step(self) -> None:
        batch = len(self._running)
        budget = max(1, self._limits.max_num_batched_tokens - batch)
        tokens, behind, whole = 0, 0, 0
        for job in self._prefilling:
            piece = min(budget - tokens, job.prompt - job.done)
            behind += piece * job.done
            tokens += piece
            job.done += piece
            whole += job.done == job.prompt
            if tokens >= budget:
                break
        step_s = self._table.prefill_s(tokens, behind // tokens)
        if batch:
            step_s += self._table.decode_step_s(batch, self._context / batch)
        self._pass(step_s, 1, batch)
        for _ in range(whole):
            self._start(self._prefilling.popleft())

    def _start(self, job: Job) -> None:
        """The prompt is done: its first token is there, or the next one after a preemption."""
        job.generated += 1
        self._window().tokens += 1
        if job.generated == 1:
            job.first_s = self.now_s
        if job.generated >= job.request.output_tokens:
            self._used -= job.prompt
            self._end(job)
            return
        job.end_step = self._steps + job.request.output_tokens - job.generated
        self._running[id(job)] = job
        self._used += 1
        self._context += job.prompt + 1
        self._started += 1
        heapq.heappush(self._ends, (job.end_step, self._started, job))

    def _decode_steps(self, until_s: float) -> None:
        """As many steps as are alike: to the next end, to `until_s`, or until the cache is full."""
        batch = len(self._running)
        while self._ends[0][2].end_step != self._ends[0][0]:  # was preempted since
            heapq.heappop(self._ends)
        count = min(self._ends[0][0] - self._steps, (self._kv_tokens - self._used) // batch)
        context = self._context / batch
        step_s = self._table.decode_step_s(batch, context + (count - 1) / 2)
        if step_s * count > until_s - self.now_s:
            wanted = math.ceil((until_s - self.now_s) / step_s)
            count = max(1, min(count, wanted))
            step_s = self._table.decode_step_s(batch, context + (count - 1) / 2)
        self._pass(step_s * count, count, batch)

    def _pass(self, duration_s: float, count: int, batch: int) -> None:
        """Lets the steps take their time, then gives every running request their tokens."""
        window = self._window()
        window.busy_s += duration_s
        window.batch_s += batch * duration_s
        window.kv_tokens_s += (self._used + batch * count / 2) * duration_s
        window.tokens += batch * count
        self.now_s += duration_s
        self._steps += count
        self._used += batch * count
        self._context += batch * count
        if self._used > self.kv_most:
            self.kv_most = self._used
        ends, steps = self._ends, self._steps
        while ends and ends[0][0] <= steps:
            at_step, _, job = heapq.heappop(ends)
            if job.end_step == at_step and id(job) in self._running:
                del self._running[id(job)]
                tokens = job.request.input_tokens + job.request.output_tokens
                self._used -= tokens
                self._context -= tokens
                self._end(job)

    def _end(self, job: Job) -> None:
        request = job.request
        self.served.append(
            Served(
                arrival_s=request.arrival_s,
                first_s=job.first_s,
                end_s=self.now_s,
                input_tokens=request.input_tokens,
                output_tokens=request.output_tokens,
            )
        )

    def _window(self) -> Window:
        index = int(self.now_s // WINDOW_S)
        found = self.windows.get(index)
        if found is None:
            found = self.windows[index] = Window()
        return found

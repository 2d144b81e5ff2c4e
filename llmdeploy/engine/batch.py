"""Continuous batching of one worker: requests in, a step's tokens out, on transformers' manager.

The manager's own thread is not used: its batch processor is driven step by step, so that a cancel,
a heartbeat and a fault are handled between two steps, by the thread that runs them.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig
from transformers.generation.continuous_batching.requests import RequestStatus

from llmdeploy.engine.attention import CurrentStep, PackedSequence, PageShape, pack
from llmdeploy.engine.drill import Drill
from llmdeploy.engine.messages import FinishReason, Generate, Output, Token
from llmdeploy.engine.sampler import Choice, choose

PAGE_TOKENS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """How much one worker takes on."""

    kv_cache_tokens: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int


@dataclass(slots=True)
class Running:
    """A request that the batch works on."""

    request: Generate
    choice: Choice
    arrived_s: float
    """Monotonic."""
    queued_s: float | None = None
    """Until its first step began; None before that and once it was told."""
    stepped: bool = False
    fresh: list[Token] = field(default_factory=list)


class Batch:
    """Requests that are decoded together with one model."""

    def __init__(
        self,
        model: Any,
        *,
        limits: BatchLimits,
        drill: Drill,
        step: CurrentStep,
        fused: PageShape | None,
    ) -> None:
        self._model = model
        self._limits = limits
        self._drill = drill
        self._step = step
        self._fused = fused
        self._running: dict[str, Running] = {}
        self._cancelled = False
        self._end_tokens = _end_tokens(model.generation_config)
        self._vocabulary = model.get_input_embeddings().num_embeddings
        self.steps = self.generated_tokens = self.prompt_tokens = self.restarts = 0
        self._start()

    def _start(self) -> None:
        """A manager with an empty cache; called again after a fatal error."""
        limits = self._limits
        config = ContinuousBatchingConfig(
            page_size=PAGE_TOKENS,
            num_blocks=max(1, limits.kv_cache_tokens // PAGE_TOKENS),
            max_batch_tokens=limits.max_num_batched_tokens,
            max_requests_per_batch=min(limits.max_num_seqs, limits.max_num_batched_tokens),
            scheduler_type="fifo",
            use_async_batching=False,
            use_cuda_graph=False,
        )
        generation = GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0)
        self._manager = self._model.init_continuous_batching(
            generation_config=generation, continuous_batching_config=config
        )
        processor = self._manager._create_batch_processor()
        self._manager.batch_processor = processor
        processor.model_runner._sample = self._sample
        self._processor = processor
        self.kv_cache_tokens: int = processor.cache.num_blocks * PAGE_TOKENS

    @property
    def idle(self) -> bool:
        """Whether there is nothing to step for, not even pages to free."""
        return not self._running and not self._cancelled

    @property
    def shared(self) -> bool:
        """Whether other ranks compute along and wait for each step, even an empty one."""
        return bool(self._manager.distributed_helper.tp_size > 1)

    @property
    def waiting(self) -> int:
        """Requests that have not had their first step."""
        scheduled = len(self._processor.scheduler.active_requests)
        return max(0, len(self._running) - scheduled)

    @property
    def running(self) -> int:
        return len(self._running) - self.waiting

    def kv_used_tokens(self) -> int:
        """Cache tokens that live requests hold; finished requests' reusable pages count as free."""
        return PAGE_TOKENS * max(
            len({block for table in allocator.block_table.values() for block in table})
            for allocator in self._processor.cache.cache_allocators.values()
        )

    def add(self, request: Generate) -> Output | None:
        """Takes the request on, or the output that refuses it."""
        error = self._refusal(request)
        if error is None and self._drill.fails_request():
            error = "drill: this request was picked to fail"
        if error is not None:
            return Output(id=request.id, finish="error", error=error)
        self._running[request.id] = Running(
            request, Choice(request.sampling), arrived_s=time.monotonic()
        )
        self._manager.add_request(
            list(request.prompt),
            request_id=request.id,
            max_new_tokens=request.max_tokens,
            eos_token_id=[] if request.sampling.ignore_eos else sorted(self._end_tokens),
        )
        self.prompt_tokens += len(request.prompt)
        return None

    def _refusal(self, request: Generate) -> str | None:
        """Why the request cannot be served; each of these would stop the manager for everyone."""
        prompt, total = request.prompt, len(request.prompt) + request.max_tokens
        if request.id in self._running:
            return f"request id {request.id!r} is already running"
        if not prompt:
            return "the prompt has 0 tokens, needed at least 1"
        if request.max_tokens < 1:
            return f"max_tokens is {request.max_tokens}, needed at least 1"
        outside = [token for token in prompt if not 0 <= token < self._vocabulary]
        if outside:
            return f"prompt token {outside[0]} is outside the vocabulary of {self._vocabulary}"
        biased = [token for token, _ in request.sampling.logit_bias]
        if any(not 0 <= token < self._vocabulary for token in biased):
            return f"logit_bias names a token outside the vocabulary of {self._vocabulary}"
        if total > self._limits.max_model_len:
            return f"prompt and max_tokens are {total} tokens, at most {self._limits.max_model_len}"
        if total > self.kv_cache_tokens:
            return (
                f"prompt and max_tokens are {total} tokens, the cache holds {self.kv_cache_tokens}"
            )
        return None

    def cancel(self, request_id: str) -> Output | None:
        """The request's last output, if it was running; the next step frees its pages first."""
        if self._running.pop(request_id, None) is None:
            return None
        self._manager.cancel_request(request_id)
        self._cancelled = True
        return Output(id=request_id, finish="cancelled")

    def advance(self) -> tuple[Output, ...]:
        """One step for all requests that fit: what came out. Raises whatever the model raises."""
        processor = self._processor
        prepared = processor.prepare_next_batch()
        self._cancelled = False
        if not prepared:
            return ()
        inputs = processor.inputs_and_outputs
        self._note_first_steps(inputs.requests_in_batch)
        if self._fused is not None:
            self._step.packing = self._packing(inputs)
        processor._generation_step(self._model)
        processor.update_batch()
        self.steps += 1
        return tuple(self._collect(inputs.requests_in_batch))

    def _note_first_steps(self, scheduled: list[Any]) -> None:
        now_s = time.monotonic()
        for item in scheduled:
            running = self._running[item.state.request_id]
            if not running.stepped:
                running.stepped, running.queued_s = True, now_s - running.arrived_s

    def follow(self) -> None:
        """Steps along with rank 0, which sends requests and tokens, until the group ends."""
        processor = self._processor
        while True:
            if processor.prepare_next_batch():
                processor._generation_step(self._model)
                processor.update_batch()

    def _packing(self, inputs: Any) -> Any:
        assert self._fused is not None, "only fused layers need a packing"
        (allocator,) = self._processor.cache.cache_allocators.values()
        sequences, row = [], 0
        for scheduled in inputs.requests_in_batch:
            state = scheduled.state
            sequences.append(
                PackedSequence(
                    first_row=row,
                    rows=scheduled.query_length,
                    length=state.position_offset,
                    blocks=allocator.block_table[state.request_id],
                )
            )
            row += scheduled.query_length
        write_index = inputs.write_index_storage[0, :row]
        return pack(sequences, write_index, shape=self._fused, dtype=self._model.dtype)

    def _sample(self, scores: torch.Tensor, output_ids: torch.Tensor) -> None:
        """Stands in for the manager's argmax: `scores` (1, sequences, vocabulary) fp32."""
        scheduled = self._processor.inputs_and_outputs.requests_in_batch
        ready = [s.state.request_id for s in scheduled if s.has_new_token]
        if not ready:
            return
        if self._manager.is_tp_driver:
            running = [self._running[request_id] for request_id in ready]
            logits = scores[0, : len(ready)].cpu()
            tokens = [self._drill.replace(t) for t in choose(logits, [r.choice for r in running])]
            for request, token in zip(running, tokens, strict=True):
                request.fresh.append(token)
            output_ids[0, : len(ready)] = torch.tensor([token.id for token in tokens])
        if self.shared:
            chosen = output_ids[0, : len(ready)].contiguous()
            output_ids[0, : len(ready)] = self._manager.distributed_helper.tp_broadcast_from_rank_0(
                chosen
            )

    def _collect(self, scheduled: list[Any]) -> Iterator[Output]:
        for item in scheduled:
            if not item.has_new_token:
                continue
            state = item.state
            running = self._running[state.request_id]
            tokens, running.fresh = tuple(running.fresh), []
            finished = state.status == RequestStatus.FINISHED
            ended = tokens[-1].id in state._eos_token_ids
            if ended:
                tokens = tokens[:-1]
            self.generated_tokens += len(tokens)
            finish: FinishReason | None = ("stop" if ended else "length") if finished else None
            if finished:
                del self._running[state.request_id]
            queued_s, running.queued_s = running.queued_s, None
            yield Output(id=state.request_id, tokens=tokens, finish=finish, queued_s=queued_s)
        self._manager.output_router.output_queue.queue.clear()

    def recover(self, error: BaseException) -> tuple[Output, ...]:
        """Starts anew with an empty cache after a failed step: the end of all running requests."""
        failed = tuple(
            Output(id=request_id, finish="error", error=f"the step failed: {error}")
            for request_id in self._running
        )
        self._running.clear()
        self._step.packing = None
        self._manager.batch_processor = self._processor = None
        self._start()
        self.restarts += 1
        return failed


def _end_tokens(config: Any) -> set[int]:
    found = config.eos_token_id
    if found is None:
        return set()
    return {found} if isinstance(found, int) else set(found)

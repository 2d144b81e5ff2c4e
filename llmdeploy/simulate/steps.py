"""One replica's load and the length of its steps: decoding, with the prompts between."""

import bisect
import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from llmdeploy.simulate.lengths import Lengths
from llmdeploy.simulate.limits import Limits
from llmdeploy.simulate.pace import Pace

EDGES = (0, 0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.87, 0.92, 0.95, 0.97, 0.985, 0.993, 1)
"""Shares between which one prompt length stands for all, finer where quantiles are asked.
Source: own choice: ttft_p99 moves by less than 2 % with four times as many."""

SHORTEST_S = 1e-9
"""Of a step: an engine model may answer 0 s. Source: own choice."""

ROUNDS = 4
"""Of the fixed point of a step's length; the last changes it by less than 0.1 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A class of prompts."""

    share: float
    tokens: float
    prefill_s: float
    """Of the whole prompt, in as many passes as the step's budget asks for."""
    least_s: float
    """The same for the shortest prompt of the class."""
    most_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How many requests a replica decodes together."""

    most_batch: float
    """What slots, KV cache and a step's tokens allow."""
    free_batch: float
    """Up to here a request of mean length finds room at once."""
    context_tokens: float
    """Mean context of the requests in decoding."""
    variation: float
    """Of one request's share of the KV cache, variance over square; 0 where slots end first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefill:
    """The time that prompts take, over their lengths."""

    s_per_token: float
    """In full chunks."""
    overhead_s: float
    """What a pass takes beyond its tokens."""
    mean_s: float
    square_mean: float
    cube_mean: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Load of one replica, and how long a step takes at each batch."""

    rate_per_s: float
    prompts: tuple[Prompt, ...]
    input_tokens: float
    output_tokens: float
    decoded_tokens: float
    """Output tokens of a request after its first, which prefill gives."""
    output_variation: float
    """Variance of the output length over its mean's square."""
    room: Room
    chunk_tokens: float
    """Prompt tokens of a step at most, beside a full batch."""
    prefill: Prefill
    knots: tuple[float, ...]
    decode_s: tuple[float, ...]
    """Of one step without prompts, at each knot of the batch."""
    sustained_rate_per_s: float

    @property
    def full_step_s(self) -> float:
        """The longest: a full batch, and all the prompt tokens that its budget holds."""
        prefill = self.prefill
        return self.decode_s[-1] + self.chunk_tokens * prefill.s_per_token + prefill.overhead_s

    def decode_step_s(self, batch: float) -> float:
        """A step without prompts; a batch below one is one."""
        return between(self.knots, self.decode_s, max(1.0, batch))

    def step_s(self, batch: float, rate_per_s: float) -> float:
        """A step with the prompts that arrive in its time: s = D + s x tokens + a pass's overhead,
        shared by those that come together."""
        decode_s = self.decode_step_s(batch) if batch > 0 else 0.0
        left = 1 - rate_per_s * self.input_tokens * self.prefill.s_per_token
        if left <= 0:
            return math.inf
        step_s = decode_s / left
        for _ in range(ROUNDS):
            passes = 1 - math.exp(-rate_per_s * step_s)
            step_s = (decode_s + self.prefill.overhead_s * passes) / left
        return step_s


def steps(
    pace: Pace,
    *,
    rate_per_s: float,
    input_tokens: Lengths,
    output_tokens: Lengths,
    limits: Limits,
) -> Steps:
    """The load of one replica at that rate; context and prefill from the length distributions."""
    output = max(1.0, output_tokens.mean_tokens)
    decoded = max(1e-6, output - 1)
    room = _room(pace, input_tokens, output_tokens, limits)
    chunk = max(1.0, limits.max_num_batched_tokens - room.most_batch)
    prompts = _prompts(pace, input_tokens, chunk)
    prefill = _prefill(pace, prompts, input_tokens, chunk)
    knots = _knots(room.most_batch)
    decode_s = tuple(
        max(SHORTEST_S, pace.decode_step_s(knot, room.context_tokens)) for knot in knots
    )
    arriving = room.most_batch / (decoded + 1)
    full_step_s = (
        decode_s[-1]
        + arriving * prefill.s_per_token * input_tokens.mean_tokens
        + prefill.overhead_s * (1 - math.exp(-arriving))
    )
    # a prompt in work holds its place for its own time and the step it ends in
    arriving = room.most_batch / (decoded + 1 + prefill.mean_s / full_step_s)
    most = arriving * decoded
    return Steps(
        rate_per_s=rate_per_s,
        prompts=prompts,
        input_tokens=input_tokens.mean_tokens,
        output_tokens=output,
        decoded_tokens=decoded,
        output_variation=max(0.0, output_tokens.square_mean / output**2 - 1),
        room=replace(room, most_batch=most, free_batch=min(most, room.free_batch)),
        chunk_tokens=chunk,
        prefill=prefill,
        knots=knots,
        decode_s=decode_s,
        sustained_rate_per_s=arriving / full_step_s,
    )


def _room(pace: Pace, input_tokens: Lengths, output_tokens: Lengths, limits: Limits) -> Room:
    """Places by slots, by KV cache and by a step's tokens, whichever ends first.

    A running request holds its prompt and, as long outputs are there longer, E[o^2] / 2 E[o] of
    its output. While the next prompt waits for room, half of a prompt's stays unused in the mean.
    """
    prompt, output = input_tokens.mean_tokens, max(1.0, output_tokens.mean_tokens)
    answered = output_tokens.square_mean / output / 2
    held = prompt + answered
    unused = input_tokens.square_mean / prompt / 2
    by_cache = (limits.kv_cache_tokens - unused) / held
    by_step = limits.max_num_batched_tokens / (1 + prompt / output)
    most = max(1.0, min(limits.max_num_seqs, by_cache, by_step))
    if most < by_cache:
        return Room(most_batch=most, free_batch=most, context_tokens=held, variation=0.0)
    variance = max(0.0, input_tokens.square_mean - prompt**2) + answered**2
    free = min(most, max(1.0, (limits.kv_cache_tokens - prompt) / held))
    return Room(most_batch=most, free_batch=free, context_tokens=held, variation=variance / held**2)


def _prefill(
    pace: Pace, prompts: Sequence[Prompt], lengths: Lengths, chunk_tokens: float
) -> Prefill:
    mean_s = sum(p.share * p.prefill_s for p in prompts)
    per_token_s = _marginal_s(pace, chunk_tokens, lengths.mean_tokens, mean_s)
    # the classes miss the longest prompts, which weigh in the higher moments
    square_tokens = sum(p.share * p.tokens**2 for p in prompts)
    missed = max(1.0, lengths.square_mean / square_tokens)
    return Prefill(
        s_per_token=per_token_s,
        overhead_s=max(0.0, mean_s - per_token_s * lengths.mean_tokens),
        mean_s=mean_s,
        square_mean=missed * sum(p.share * p.prefill_s**2 for p in prompts),
        cube_mean=missed**2 * sum(p.share * p.prefill_s**3 for p in prompts),
    )


def _prompts(pace: Pace, lengths: Lengths, chunk_tokens: float) -> tuple[Prompt, ...]:
    """Classes of prompts whose mean is the distribution's."""
    shares = [end - begin for begin, end in itertools.pairwise(EDGES)]
    classes = list(zip(shares, middles(lengths), strict=True))
    scale = lengths.mean_tokens / sum(share * tokens for share, tokens in classes)
    edges = [tokens * scale for tokens in _ends(lengths)]
    made = []
    for number, (share, size) in enumerate(classes):
        tokens = size * scale
        passes = math.ceil(tokens / chunk_tokens)
        each_s = pace.prefill_s(tokens / passes, (tokens - tokens / passes) / 2)
        made.append(
            Prompt(
                share=share,
                tokens=tokens,
                prefill_s=passes * each_s,
                least_s=passes * each_s * edges[number] / tokens,
                most_s=passes * each_s * edges[number + 1] / tokens,
            )
        )
    return tuple(made)


@functools.lru_cache(maxsize=256)
def middles(lengths: Lengths) -> tuple[float, ...]:
    """The length in the middle of each class of EDGES; asked for the same lengths at each rate."""
    return tuple(
        lengths.quantile_tokens((begin + end) / 2) for begin, end in itertools.pairwise(EDGES)
    )


@functools.lru_cache(maxsize=256)
def _ends(lengths: Lengths) -> tuple[float, ...]:
    """The lengths at EDGES, the rarest left out."""
    return tuple(lengths.quantile_tokens(min(0.9995, max(0.0005, edge))) for edge in EDGES)


def _marginal_s(pace: Pace, chunk_tokens: float, mean_tokens: float, mean_s: float) -> float:
    """Seconds that one more prompt token takes in a pass that has some already."""
    more = max(mean_tokens, min(chunk_tokens, 4 * mean_tokens))
    if more <= mean_tokens * 1.01:
        return mean_s / mean_tokens
    added_s = pace.prefill_s(more) - pace.prefill_s(mean_tokens)
    return min(mean_s / mean_tokens, max(0.0, added_s / (more - mean_tokens)))


def _knots(most: float) -> tuple[float, ...]:
    knots, at = [], 1.0
    while at < most:
        knots.append(at)
        if at * 1.5 < most and at > 1:
            knots.append(at * 1.5)
        at *= 2
    return (*knots, most) if most > 1 else (1.0, 2.0)


def between(knots: tuple[float, ...], values: tuple[float, ...], at: float) -> float:
    """Linear between knots and past the last."""
    index = min(max(1, bisect.bisect_left(knots, at)), len(knots) - 1)
    low, high = knots[index - 1], knots[index]
    share = (at - low) / (high - low)
    return values[index - 1] + share * (values[index] - values[index - 1])

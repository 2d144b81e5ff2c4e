"""The engine model of one replica: seconds of a decoding step and of a pass over a prompt."""

import math
from dataclasses import dataclass

from llmdeploy.catalog.links import Line
from llmdeploy.estimate.answer import Method, Origin
from llmdeploy.estimate.case import Case
from llmdeploy.estimate.speed.coefficients import Coefficients, Fitted, spread
from llmdeploy.estimate.speed.processors import fitted
from llmdeploy.estimate.speed.terms import prefill_terms, prompt_seconds
from llmdeploy.estimate.speed.work import Collective, Work, work_of

Lines = tuple[tuple[float, float], ...]
"""Protocols of all collectives of one kind in a step: seconds, and seconds per token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Times of one replica. Batches and tokens may be fractions."""

    work: Work
    coefficients: Coefficients
    method: Method
    origin: Origin = "derived"
    spread_ratio: float
    """Half of the 90 % interval of a step, as a ratio of it."""
    fixed_s: float
    """Of a decoding step whatever is in it."""
    dense_read_s: float
    dense_token_s: float
    expert_read_s: float
    expert_token_s: float
    expert_tile_s: float
    expert_miss_log: float
    request_s: float
    attended: tuple[tuple[float, float], ...]
    """Seconds per request and cached token, and the most tokens, by kind of cache."""
    collectives: tuple[tuple[float, Lines, Lines], ...]
    """By kind: most tokens of the engines' own kernel, protocols up to there and beyond."""

    def decode_step_s(self, batch: float, context_tokens: float) -> float:
        """Seconds of a step that adds a token to each of `batch` requests of that mean context."""
        work = self.work
        groups = work.groups
        tokens = batch / groups.stages if batch > groups.stages else 1.0
        own = tokens / groups.attention_workers
        if own < 1.0:
            own = 1.0
        request_s = self.request_s
        for token_s, most in self.attended:
            request_s += token_s * (context_tokens if context_tokens < most else most)
        dense_s = own * self.dense_token_s
        total_s = (
            self.fixed_s
            + own * request_s
            + math.sqrt(self.dense_read_s * self.dense_read_s + dense_s * dense_s)
        )
        if self.expert_read_s:
            read_s = -self.expert_read_s * math.expm1(tokens * self.expert_miss_log)
            visited = read_s / self.expert_read_s
            compute_s = self.expert_token_s * tokens + self.expert_tile_s * visited
            total_s += math.sqrt(read_s * read_s + compute_s * compute_s)
        for most_tokens, near, wide in self.collectives:
            total_s += min([a + b * own for a, b in (near if own <= most_tokens else wide)])
        return total_s

    def prefill_s(self, tokens: float, context_tokens: float = 0, *, prompts: float = 1.0) -> float:
        """Seconds of one forward pass over prompts of `tokens` each behind `context_tokens`."""
        terms = prefill_terms(self.work, max(tokens, 1.0), context_tokens, prompts=prompts)
        return prompt_seconds(terms, self.coefficients)


def pace(case: Case) -> Pace:
    """The pace of one replica of a case; InputError where its device or weights are unknown."""
    return paced(work_of(case), fitted(case))


def paced(work: Work, known: Fitted) -> Pace:
    """The pace of known work: constants of a decoding step multiplied out once."""
    found = known.coefficients
    low, high = spread("tpot", known)
    return Pace(
        work=work,
        coefficients=found,
        method=known.method,
        spread_ratio=(math.exp(high) - math.exp(low)) / 2,
        fixed_s=found.step_s
        + found.layer_s * work.layers
        + found.expert_layer_s * work.expert_layers
        + found.state_layer_s * work.state_layers
        + found.latent_layer_s * work.latent_layers
        + found.indexer_layer_s * work.indexer_layers
        + work.groups.stages * work.hop_s,
        dense_read_s=(work.dense_read_s + work.head_read_s) * found.dense_read,
        dense_token_s=(work.dense_token_s + work.head_token_s) * found.dense_compute,
        expert_read_s=work.expert_read_s * found.expert_read,
        expert_token_s=work.expert_token_s * found.expert_compute,
        expert_tile_s=work.expert_tile_s * found.expert_compute,
        expert_miss_log=work.expert_miss_log * found.expert_evenness,
        request_s=found.request_s + work.state_s * found.kv_read,
        attended=tuple(
            (
                part.read_s * found.kv_read + part.compute_s * found.attention_compute,
                part.most_tokens,
            )
            for part in work.attended
        ),
        collectives=tuple(_multiplied(one, found.collective) for one in work.collectives),
    )


def _multiplied(collective: Collective, factor: float) -> tuple[float, Lines, Lines]:
    """The same as `terms.collective_s`, with count, bytes and network multiplied out."""
    often, size, network = collective.count * factor, collective.token_bytes, collective.network
    more_s, more_per_byte_s = (network.latency_s, network.per_byte_s) if network else (0.0, 0.0)

    def all_of(lines: tuple[Line, ...]) -> Lines:
        return tuple(
            (often * (one.latency_s + more_s), often * size * (one.per_byte_s + more_per_byte_s))
            for one in lines
        )

    most_tokens = collective.cap_bytes / size
    return most_tokens, all_of(collective.lines), all_of(collective.wide_lines)

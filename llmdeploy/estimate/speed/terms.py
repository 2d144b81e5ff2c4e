"""The parts of one step, in seconds at data-sheet rates, and what they come to in an engine."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmdeploy.estimate.speed.work import Collective, Work

if TYPE_CHECKING:
    from llmdeploy.estimate.speed.coefficients import Coefficients


@dataclass(slots=True, kw_only=True)
class Terms:
    """One step. Fields are floats, or arrays of many steps where coefficients are fitted."""

    dense_read_s: float
    dense_compute_s: float
    expert_read_s: float
    """Of all routed experts of a device."""
    expert_miss_log: float
    """Logarithm of the chance that all tokens of the step miss an expert, if routing were even."""
    expert_compute_s: float
    expert_tile_s: float
    """Of all routed experts of a device at the least tokens that their kernels compute for."""
    kv_read_s: float
    attention_compute_s: float
    collective_s: float
    layers: float
    expert_layers: float
    state_layers: float
    latent_layers: float
    indexer_layers: float
    requests: float
    """Of one attention worker."""
    hop_s: float


def decode_terms(work: Work, batch: float, context_tokens: float) -> Terms:
    """One step that gives each of `batch` requests of a replica its next token.

    With pipeline stages each holds its share of the requests, and a token passes them all.
    """
    groups = work.groups
    tokens = max(1.0, batch / groups.stages)
    own = max(1.0, tokens / groups.attention_workers)
    kv_read = attention = 0.0
    for part in work.attended:
        seen = min(context_tokens, part.most_tokens)
        kv_read += part.read_s * seen
        attention += part.compute_s * seen
    return Terms(
        dense_read_s=work.dense_read_s + work.head_read_s,
        dense_compute_s=own * (work.dense_token_s + work.head_token_s),
        expert_read_s=work.expert_read_s,
        expert_miss_log=tokens * work.expert_miss_log,
        expert_compute_s=work.expert_token_s * tokens,
        expert_tile_s=work.expert_tile_s,
        kv_read_s=own * (kv_read + work.state_s),
        attention_compute_s=own * attention,
        collective_s=sum(collective_s(c, own) for c in work.collectives),
        layers=work.layers,
        expert_layers=work.expert_layers,
        state_layers=work.state_layers,
        latent_layers=work.latent_layers,
        indexer_layers=work.indexer_layers,
        requests=own,
        hop_s=groups.stages * work.hop_s,
    )


def prefill_terms(
    work: Work, prompt_tokens: float, context_tokens: float = 0, *, prompts: float = 1.0
) -> Terms:
    """One pass over `prompts` of that many tokens each, behind `context_tokens` that are cached.

    One attention worker computes a prompt; the experts of all devices take part.
    """
    tokens = prompt_tokens * prompts
    attention = 0.0
    for part in work.attended:
        seen = min(context_tokens + prompt_tokens / 2, part.most_tokens)
        attention += part.prefill_compute_s * seen
    return Terms(
        dense_read_s=work.dense_read_s + work.head_read_s,
        dense_compute_s=tokens * work.dense_token_s + prompts * work.head_token_s,
        expert_read_s=work.expert_read_s,
        expert_miss_log=tokens * work.expert_miss_log,
        expert_compute_s=work.expert_token_s * tokens,
        expert_tile_s=work.expert_tile_s,
        kv_read_s=0.0,
        attention_compute_s=tokens * attention,
        collective_s=sum(collective_s(c, tokens) for c in work.collectives),
        layers=work.layers,
        expert_layers=work.expert_layers,
        state_layers=work.state_layers,
        latent_layers=work.latent_layers,
        indexer_layers=work.indexer_layers,
        requests=prompts,
        hop_s=work.groups.stages * work.hop_s,
    )


def decode_seconds(terms: Terms, found: "Coefficients") -> float:
    """Seconds of a decoding step: each part at its own efficiency, one after the other.

    Products that read weights and compute take the root of both squared: the longer one when
    they differ, more than either when they are alike. Source: own form.
    """
    return (
        found.layer_s * terms.layers
        + _shared_s(terms, found)
        + _together(
            terms.dense_read_s * found.dense_read, terms.dense_compute_s * found.dense_compute
        )
        + _experts_s(terms, found, found.expert_compute)
        + terms.kv_read_s * found.kv_read
        + terms.attention_compute_s * found.attention_compute
    )


def prompt_seconds(terms: Terms, found: "Coefficients") -> float:
    """Seconds of a pass over prompts: the same with the efficiencies of long products."""
    return (
        found.prompt_layer_s * terms.layers
        + _shared_s(terms, found)
        + _together(
            terms.dense_read_s * found.dense_read,
            terms.dense_compute_s * found.prompt_dense_compute,
        )
        + _experts_s(terms, found, found.prompt_expert_compute)
        + terms.attention_compute_s * found.prompt_attention_compute
    )


def _experts_s(terms: Terms, found: "Coefficients", factor: float) -> float:
    """Routed experts: those visited, E (1 - (1 - k / E)^(evenness x tokens)), are read once and
    compute for their tokens and for what fills up a tile of the kernel."""
    visited: float = 1 - math.e ** (found.expert_evenness * terms.expert_miss_log)
    return _together(
        terms.expert_read_s * visited * found.expert_read,
        (terms.expert_compute_s + terms.expert_tile_s * visited) * factor,
    )


def _together(read_s: float, compute_s: float) -> float:
    both: float = (read_s * read_s + compute_s * compute_s) ** 0.5  # of arrays too
    return both


def _shared_s(terms: Terms, found: "Coefficients") -> float:
    return (
        found.step_s
        + found.request_s * terms.requests
        + found.expert_layer_s * terms.expert_layers
        + found.state_layer_s * terms.state_layers
        + found.latent_layer_s * terms.latent_layers
        + found.indexer_layer_s * terms.indexer_layers
        + found.collective * terms.collective_s
        + terms.hop_s
    )


def collective_s(collective: Collective, tokens: float) -> float:
    """Seconds of all collectives of this kind in a step of that many tokens a worker."""
    size = collective.token_bytes * tokens
    lines = collective.lines if size <= collective.cap_bytes else collective.wide_lines
    once = min(line.latency_s + line.per_byte_s * size for line in lines)
    if collective.network is not None:
        once += collective.network.latency_s + collective.network.per_byte_s * size
    return collective.count * once

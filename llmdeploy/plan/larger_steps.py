"""Whether larger steps (max_num_batched_tokens) would serve long prompts better, with numbers."""

from collections.abc import Iterator
from dataclasses import dataclass

from llmdeploy.model import ModelShape
from llmdeploy.plan.peak import at_rate, broken_objective
from llmdeploy.plan.proposal import batched_tokens
from llmdeploy.plan.rank import Option, Part
from llmdeploy.plan.refusal import changed
from llmdeploy.plan.rules import Broken
from llmdeploy.plan.size import Estimators, size
from llmdeploy.service import Service
from llmdeploy.simulate import Peak
from llmdeploy.units import show_seconds

MOST_STEP_TOKENS = 16384
"""Source: vLLM 0.33 `max_num_batched_tokens` of its largest default; activations grow with it."""
GAIN_RATIO = 0.1
"""Of the time to the first token, from which on it is worth a word. Source: own choice: half of
the median error of TTFT."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LargerStep:
    """A step that would serve the same replicas better."""

    tokens: int
    peak: Peak


def larger_steps(service: Service) -> Iterator[int]:
    """Doublings of the step, up to one that holds the 95th percentile of prompts whole; none
    where it does already: then no prompt waits for its next chunk."""
    step, longest = batched_tokens(service), service.workload.input_tokens.p95
    while step < min(longest, MOST_STEP_TOKENS):
        step *= 2
        yield step


def with_step(service: Service, tokens: int) -> Service:
    """The service with that many tokens a step."""
    return changed(service, "engine", max_num_batched_tokens=tokens)


def step_notes(
    option: Option, service: Service, shape: ModelShape, *, using: Estimators
) -> Iterator[str]:
    """What larger steps would gain on the chosen devices; nothing where they would not."""
    found = [_best(part, service, shape, using=using) for part in option.parts]
    gains = [(part, one) for part, one in zip(option.parts, found, strict=True) if one is not None]
    if len(gains) < len(option.parts):
        return
    part, one = max(gains, key=lambda gain: gain[0].peak.ttft_p95_s)
    yield (
        f"Prompts longer than {batched_tokens(service)} tokens are computed in chunks, one a step:"
        f" engine.max_num_batched_tokens {one.tokens} would bring p95 TTFT from"
        f" {show_seconds(part.peak.ttft_p95_s)} to {show_seconds(one.peak.ttft_p95_s)}, p95 TPOT"
        f" from {show_seconds(part.peak.tpot_p95_s)} to {show_seconds(one.peak.tpot_p95_s)}."
    )


def _best(
    part: Part, service: Service, shape: ModelShape, *, using: Estimators
) -> LargerStep | None:
    """The smallest step that gains about as much as any, with the objectives still kept."""
    made = []
    for tokens in larger_steps(service):
        larger = with_step(service, tokens)
        sized = size(part.sized.proposal, larger, shape, using=using)
        if isinstance(sized, Broken):
            break  # larger ones need more memory still
        seen = at_rate(sized, larger, rate_per_s=part.rate_per_s, replicas=part.replicas)
        if broken_objective(seen, larger) is None:
            made.append(LargerStep(tokens=tokens, peak=seen))
    if not made:
        return None
    least_s = min(one.peak.ttft_p95_s for one in made)
    if least_s > (1 - GAIN_RATIO) * part.peak.ttft_p95_s:
        return None
    return next(one for one in made if one.peak.ttft_p95_s <= least_s * (1 + GAIN_RATIO / 2))

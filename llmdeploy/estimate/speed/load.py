"""One replica under a load: a closed loop, an open one, or all it can take."""

import math
from dataclasses import dataclass, replace

from llmdeploy.estimate.speed.pace import Pace
from llmdeploy.estimate.speed.seats import BURST_REQUESTS
from llmdeploy.estimate.speed.serving import prompts_a_pass, prompts_of_many, tpot_s, ttft_s

ROUNDS = 6
"""Of the fixed point between how many run and how long they take. Source: 1 % after four."""
QUEUED_LOG = 0.7
"""What a queue for seats adds to the logarithm of TTFT's interval. Source: assumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Requests as they come to one replica."""

    input_tokens: float
    output_tokens: float
    seats: float
    """Requests that fit into the cache and the scheduler at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What one replica gives."""

    ttft_s: float
    tpot_s: float
    tokens_per_s: float
    running: float
    """Requests that decode at a time."""
    queued_log: float = 0.0
    """How much less sure TTFT is, as a logarithm."""


def closed(pace: Pace, load: Load, *, callers: float) -> Served:
    """Clients that ask again as soon as they are answered.

    Those past the seats wait: callers = throughput x (wait + TTFT + decoding), Little's law.
    """
    seated = min(callers, load.seats)
    served = _seated(pace, load, seated)
    if callers <= seated:
        return served
    whole_s = served.ttft_s + (load.output_tokens - 1) * served.tpot_s
    wait_s = (callers / seated - 1) * whole_s
    return Served(
        ttft_s=served.ttft_s + wait_s,
        tpot_s=served.tpot_s,
        tokens_per_s=served.tokens_per_s,
        running=served.running,
        queued_log=QUEUED_LOG,
    )


def saturated(pace: Pace, load: Load) -> Served:
    """As many requests as fit, and more waiting; one that wants a single token asks alone.

    Half of a burst of `BURST_REQUESTS` is served before the mean request's first token.
    """
    if load.output_tokens <= 1:
        return _seated(pace, load, 1.0)
    callers = max(1.0, load.seats)
    served = _seated(pace, load, callers)
    first_s = callers / 2 * _each_s(pace, load) / pace.work.groups.attention_workers
    if callers < BURST_REQUESTS:
        first_s = BURST_REQUESTS / 2 * load.output_tokens / served.tokens_per_s
    return Served(
        ttft_s=max(served.ttft_s, first_s),
        tpot_s=served.tpot_s,
        tokens_per_s=served.tokens_per_s,
        running=served.running,
        queued_log=QUEUED_LOG,
    )


def waves(pace: Pace, load: Load, *, requests: float) -> Served:
    """Requests that all come at once and are served in waves of as many as have a seat; the last
    wave is smaller, and faster."""
    most = saturated(pace, load)
    whole, left = divmod(requests, max(1.0, load.seats))
    if whole < 1:
        return _seated(pace, load, requests)
    each = requests * load.output_tokens
    spent_s = whole * max(1.0, load.seats) * load.output_tokens / most.tokens_per_s
    if left >= 1:
        spent_s += left * load.output_tokens / _seated(pace, load, left).tokens_per_s
    return replace(most, tokens_per_s=each / spent_s)


def open_loop(pace: Pace, load: Load, *, rate_per_s: float) -> Served:
    """Requests that come by themselves; above what is possible, the saturated server.

    Running = rate x output x TPOT (Little); prompts wait as at one server with even service,
    P u / (2 (1 - u)) at the share u of time that prompts take. Source: Pollaczek and Khinchine.
    """
    found, output = pace.coefficients, load.output_tokens
    most = saturated(pace, load)
    if rate_per_s * output >= most.tokens_per_s:
        return most
    context = load.input_tokens + output / 2
    prompt_s = pace.prefill_s(load.input_tokens)
    workers = pace.work.groups.attention_workers
    running, step_s, decode_s = 1.0, 0.0, 0.0
    for _ in range(2 * ROUNDS):
        decode_s = pace.decode_step_s(max(1.0, running), context)
        step_s = tpot_s(
            decode_s, _pass_s(pace, load, running / workers), found=found,
            running=running / workers, output_tokens=output,
        )  # fmt: skip
        running = min((running + rate_per_s * output * step_s) / 2, load.seats)
    busy = min(rate_per_s * prompt_s / workers / pace.work.groups.stages, 0.98)
    first_s = (
        found.first_s + prompt_s + found.first_steps * decode_s
        + prompt_s * busy / (2 * (1 - busy))
    )  # fmt: skip
    return Served(ttft_s=first_s, tpot_s=step_s, tokens_per_s=rate_per_s * output, running=running)


def _pass_s(pace: Pace, load: Load, running: float) -> float:
    """How long a pass over the prompts of others holds up a stage: each has its part of it, and
    the next stage computes one pass while this one goes on to the next."""
    prompts = prompts_a_pass(running, load.output_tokens)
    return pace.prefill_s(load.input_tokens, prompts=prompts) / pace.work.groups.stages


def _each_s(pace: Pace, load: Load) -> float:
    """A prompt's share of a pass that is full of them, of one stage."""
    prompts = prompts_of_many(load.input_tokens)
    return pace.prefill_s(load.input_tokens, prompts=prompts) / prompts / pace.work.groups.stages


def _seated(pace: Pace, load: Load, callers: float) -> Served:
    """A closed loop in which everyone has a seat."""
    found, output = pace.coefficients, load.output_tokens
    workers = pace.work.groups.attention_workers
    own = max(1.0, callers / workers)
    prompt_s, each_s = pace.prefill_s(load.input_tokens), _each_s(pace, load)
    context = load.input_tokens + output / 2
    running, step_s, first_s = callers, 0.0, 0.0
    for _ in range(ROUNDS):
        decode_s = pace.decode_step_s(max(1.0, running), context)
        others = running / workers * (1 - 1 / own)
        step_s = tpot_s(
            decode_s, _pass_s(pace, load, others), found=found, running=others,
            output_tokens=output,
        )  # fmt: skip
        first_s = ttft_s(prompt_s, each_s, step_s=step_s, found=found, callers=own)
        decoding_s = output * step_s
        share = decoding_s / (first_s + decoding_s)
        if math.isclose(running, callers * share, rel_tol=1e-3):
            break
        running = callers * share
    whole_s = first_s + (output - 1) * step_s
    return Served(
        ttft_s=first_s,
        tpot_s=step_s,
        tokens_per_s=callers * output / whole_s,
        running=max(running, min(1.0, callers)),
    )

"""What clients see of an engine's steps: TPOT and TTFT under a load. Also for arrays of loads."""

from llmdeploy.estimate.speed.coefficients import Coefficients

PASS_TOKENS = 8192.0
"""Prompt tokens of one pass of a busy server. Source: vLLM 0.11, SGLang 0.5 and TensorRT-LLM 1.0
defaults on large devices."""


def prompts_a_pass(running: float, output_tokens: float) -> float:
    """Prompts that are computed together: those that come in one decoding step, at least one."""
    return max(1.0, running / output_tokens)


def prompts_of_many(input_tokens: float) -> float:
    """Prompts of a pass where more wait than fit into it."""
    return max(1.0, PASS_TOKENS / max(input_tokens, 1.0))


def tpot_s(
    decode_s: float, pass_s: float, *, found: Coefficients, running: float, output_tokens: float
) -> float:
    """Seconds between tokens: a decoding step and the prompts of others that hold it up.

    Of `running` requests of one worker each brings one prompt per output, `prompts_a_pass` of
    them in a pass of `pass_s`; `found.mix` of its time holds up the rest. Where more than one
    comes in a step there is a pass beside every step. Source: balance of a closed loop.
    """
    share = running / output_tokens
    at_most_one = (share + 1 - abs(share - 1)) / 2  # min(share, 1), of arrays too
    return decode_s + found.mix * pass_s * at_most_one


def ttft_s(
    prompt_s: float,
    each_s: float,
    *,
    step_s: float,
    found: Coefficients,
    callers: float,
) -> float:
    """Seconds to the first token in a closed loop of `callers` at one worker.

    Own prompt and those computed with it, steps in progress, and a share of the burst that
    clients start with: a benchmark of N requests a client that all start at once lets 1 / N of
    them wait for half of the others, 0.05 of the prompts with the usual 10 (fitted: 0.06 to 0.08).
    Engines that compute prompts beside decoding hold no queue but this one: where more prompts
    come, steps get longer. One that lets prompts go first keeps requests of one length in step for
    good: half of all prompts each time (fitted: 0.65).
    `each_s`: a prompt's share of a pass that is full; many wait for full passes.

    Source: InferenceX `benchmark_lib.sh`, 10 requests a client at an infinite rate; TTFT of one
    launch is the same with 128, 512, 1,024 and 8,192 output tokens. SGLang 0.5 `scheduler.py`,
    get_next_batch_to_run: a prefill batch before any decoding.
    """
    return (
        found.first_s
        + prompt_s * (1 + found.cohort * (1 - 1 / callers))
        + found.first_steps * step_s
        + found.burst * (callers - 1) * each_s
    )

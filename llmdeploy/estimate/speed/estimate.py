"""TTFT, TPOT and tokens per second of a case at its load, each with a 90 % interval."""

import math
from dataclasses import replace

from llmdeploy.errors import InputError
from llmdeploy.estimate.answer import Estimated, LoadKind, SpeedEstimate
from llmdeploy.estimate.case import Case
from llmdeploy.estimate.speed.benchmark import batch_requests, benchmarked
from llmdeploy.estimate.speed.coefficients import Fitted, spread
from llmdeploy.estimate.speed.load import Load, Served, closed, open_loop, saturated, waves
from llmdeploy.estimate.speed.pace import Pace, paced
from llmdeploy.estimate.speed.processors import fitted as fitted_to
from llmdeploy.estimate.speed.seats import seats
from llmdeploy.estimate.speed.spread import HOST_DEVICES, Groups
from llmdeploy.estimate.speed.work import work_of

OUTPUT_TOKENS, INPUT_TOKENS = 256.0, 512.0
"""Of a request where the case does not say. Source: assumed; near the means of chat logs."""
SINGLE_STREAM = ("llama.cpp", "mlc", "exllama")
"""Engines whose tokens per second of one stream are those of decoding, prompts apart.
Source: llama-bench `tg`, `mlc_llm bench`."""
UNKNOWN_LENGTHS = 0.5
"""What unknown lengths add to the interval's logarithm. Source: assumed: a factor of 1.6."""
UNKNOWN_LOAD = 0.4
"""What an unknown load adds, but for TensorRT-LLM, whose full servers were fitted: how many come
at once is assumed. Source: own reading of the GPUStack performance lab's bursts."""
OPEN_LOAD = 0.3
"""What an open loop adds: prefixes that requests share are not known.
Source: 20 public runs of vLLM 0.15 with shared prefixes took 0.6 of the foretold TPOT."""

UNCLEAR_LAYOUT = 0.5
"""What experts add that attention workers share or that more than one host holds, TTFT twice:
how workers wait for each other and which devices TP and EP both count is told by no key.
Source: 300 public points of such launches; log(measured / foretold) of TPOT from -1.0 to 0.5."""


def estimate(case: Case, fitted: Fitted | None = None) -> SpeedEstimate:
    """Speed at the asked concurrency or rate, at the smaller load where both are given; of the
    saturated server where neither is.

    `fitted`: other coefficients than the case's own, as while they are fitted. InputError where
    the device or the model's parameters are unknown.
    """
    case = benchmarked(case)
    fitted = fitted or fitted_to(case)
    made = paced(work_of(case), fitted)
    load = Load(
        input_tokens=case.input_tokens or INPUT_TOKENS,
        output_tokens=max(case.output_tokens or OUTPUT_TOKENS, 1.0),
        seats=seats(case),
    )
    replicas = made.work.groups.replicas
    most = saturated(made, load)
    kind, served = _held(case, made, load, most=most)
    unclear = _unclear(case, made.work.groups)
    wider = _wider(case, kind) + unclear
    queued = wider + unclear + served.queued_log
    return SpeedEstimate(
        ttft_s=_number(served.ttft_s, "ttft", fitted, queued),
        tpot_s=_number(served.tpot_s, "tpot", fitted, wider),
        output_tokens_per_s=_number(served.tokens_per_s * replicas, "tokens", fitted, wider),
        utilisation_ratio=_ratio(served.tokens_per_s / most.tokens_per_s, fitted),
        concurrency=served.running * replicas,
        load=kind,
    )


def _held(case: Case, pace: Pace, load: Load, *, most: Served) -> tuple[LoadKind, Served]:
    """What one replica serves. Of clients that ask again and of a rate at which requests come, the
    one with fewer tokens a second holds: the rate feeds no more clients, or they take no more."""
    replicas, callers, rate_per_s = (
        pace.work.groups.replicas, case.concurrency, case.request_rate_per_s,
    )  # fmt: skip
    looped = coming = None
    if callers is not None:
        if callers <= 0:
            raise InputError("concurrency is not above 0", fix="give the requests at once")
        looped = closed(pace, load, callers=max(1.0, callers / replicas))
        if callers <= 1 and case.engine.name in SINGLE_STREAM:
            looped = replace(looped, tokens_per_s=1 / looped.tpot_s)
    if rate_per_s is not None:
        coming = open_loop(pace, load, rate_per_s=rate_per_s / replicas)
    if coming is not None and (looped is None or coming.tokens_per_s < looped.tokens_per_s):
        return "request rate", coming
    if looped is not None:
        return "concurrency", looped
    requests = batch_requests(case)
    return "saturation", most if requests is None else waves(
        pace, load, requests=requests / replicas
    )


def _wider(case: Case, kind: LoadKind) -> float:
    """What is not known of the load, added to the logarithm of each interval's ends."""
    wider = 0.0 if case.input_tokens and case.output_tokens else UNKNOWN_LENGTHS
    if kind == "concurrency":
        return wider
    if kind == "request rate":
        return wider + OPEN_LOAD
    return wider if case.engine.name == "tensorrt-llm" else wider + UNKNOWN_LOAD


def _unclear(case: Case, spread: Groups) -> float:
    """What a layout of experts leaves open, added to the logarithm of each interval's ends."""
    wide = spread.attention_workers > 1 or case.tensor_parallel > HOST_DEVICES
    return UNCLEAR_LAYOUT if wide and case.shape.experts is not None else 0.0


def _number(value: float, figure: str, fitted: Fitted, wider: float) -> Estimated:
    low, high = spread(figure, fitted)
    return Estimated(
        value=value,
        low=value * math.exp(low - wider),
        high=value * math.exp(high + wider),
        origin="derived",
        method=fitted.method,
    )


def _ratio(value: float, fitted: Fitted) -> Estimated:
    """A share of what is possible: its own error is that of the saturated server alone."""
    low, high = spread("tokens", fitted)
    value = min(1.0, value)
    return Estimated(
        value=value,
        low=value * math.exp(low),
        high=min(1.0, value * math.exp(high)),
        origin="derived",
        method=fitted.method,
    )

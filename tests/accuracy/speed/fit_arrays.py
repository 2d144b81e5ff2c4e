"""Measured points side by side: what each had to read, compute and send, and what was measured."""

import functools
from collections import Counter
from dataclasses import dataclass, fields

import numpy as np

from llmdeploy.estimate.speed.benchmark import benchmarked
from llmdeploy.estimate.speed.coefficients import classes
from llmdeploy.estimate.speed.serving import prompts_a_pass, prompts_of_many
from llmdeploy.estimate.speed.terms import Terms, decode_terms, prefill_terms
from llmdeploy.estimate.speed.work import work_of

from .fit_points import cell, loaded, running_of
from .rows import Point

CELL_POINTS = 32
"""Points that count of one engine, device and model: more of them repeat one error."""
TERMS = tuple(field.name for field in fields(Terms))


@dataclass(frozen=True, slots=True, kw_only=True)
class One:
    """One point."""

    decode: Terms
    prompt: Terms
    full: Terms
    prompts_full: float
    mixed: Terms
    stages: float
    callers: float
    running: float
    output_tokens: float
    has_prompt: float
    tpot_s: float
    ttft_s: float
    classes: dict[str, str]


@dataclass(slots=True, kw_only=True)
class Arrays:
    """Points side by side."""

    decode: Terms
    prompt: Terms
    full: Terms
    """Of a pass that is full of prompts, `prompts_full` of them."""
    prompts_full: np.ndarray
    mixed: Terms
    """Of the prompts that are computed beside a decoding step."""
    stages: np.ndarray
    callers: np.ndarray
    running: np.ndarray
    output_tokens: np.ndarray
    has_prompt: np.ndarray
    tpot_s: np.ndarray
    ttft_s: np.ndarray
    late: np.ndarray
    weights: np.ndarray
    classes: list[dict[str, str]]


@functools.cache
def _one(point: Point) -> One:
    case = benchmarked(point.case)
    work = work_of(case)
    spread = work.groups
    at_once, tpot_s = loaded(point)
    batch = (running_of(point) or 1) / spread.replicas
    output = case.output_tokens or 1
    tokens = 0 if point.group.startswith("llama") else case.input_tokens or 0
    asked = max(tokens, 1)
    running = batch / spread.attention_workers
    many = prompts_of_many(asked)
    return One(
        decode=decode_terms(work, max(batch, 1), (case.input_tokens or 0) + output / 2),
        prompt=prefill_terms(work, asked),
        full=prefill_terms(work, asked, prompts=many),
        prompts_full=many,
        mixed=prefill_terms(work, asked, prompts=prompts_a_pass(running, output)),
        stages=float(spread.stages),
        callers=max(1.0, at_once / (spread.replicas * spread.attention_workers)),
        running=running,
        output_tokens=output,
        has_prompt=float(tokens > 0),
        tpot_s=tpot_s,
        ttft_s=point.ttft_s or np.nan,
        classes=classes(case),
    )


def arrays(found: list[Point]) -> Arrays:
    each = [_one(point) for point in found]
    counts = Counter(cell(point) for point in found)

    def column(name: str) -> np.ndarray:
        return np.array([getattr(one, name) for one in each], dtype=float)

    def terms(name: str) -> Terms:
        parts = [getattr(one, name) for one in each]
        return Terms(**{t: np.array([float(getattr(p, t)) for p in parts]) for t in TERMS})

    return Arrays(
        decode=terms("decode"),
        prompt=terms("prompt"),
        full=terms("full"),
        prompts_full=column("prompts_full"),
        mixed=terms("mixed"),
        stages=column("stages"),
        callers=column("callers"),
        running=column("running"),
        output_tokens=column("output_tokens"),
        has_prompt=column("has_prompt"),
        tpot_s=column("tpot_s"),
        ttft_s=column("ttft_s"),
        late=np.array([p.late for p in found]),
        weights=np.array(
            [
                min(1.0, CELL_POINTS / counts[cell(p)]) ** 0.5 * (1 if p.tpot_s else 0.5)
                for p in found
            ]
        ),
        classes=[one.classes for one in each],
    )

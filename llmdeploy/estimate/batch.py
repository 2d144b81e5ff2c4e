"""Cases in, answers out: one JSON line each, in the same order, an error where there is none."""

import json
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import replace

from llmdeploy.errors import InputError, LlmDeployError
from llmdeploy.estimate import memory, speed
from llmdeploy.estimate.answer import Estimated, MemoryEstimate, SpeedEstimate
from llmdeploy.estimate.case import Case
from llmdeploy.estimate.parse import case_line
from llmdeploy.estimate.parse_case import Resolved, resolve
from llmdeploy.estimate.parse_layout import allowed_tensor_parallel
from llmdeploy.estimate.parse_load import load_words
from llmdeploy.estimate.parse_model import Models
from llmdeploy.estimate.write import SPEED_KEYS, Result, Unanswered, error_tree, result_tree

_BUGS = (ArithmeticError, LookupError, TypeError, ValueError, AssertionError, RecursionError)


def answers(lines: Iterable[str], *, place: str, models: Models) -> Iterator[str]:
    """One JSON text a line, as soon as its line was read; a line that cannot be answered gives
    `{"error": {…}}`, and the next one is read all the same."""
    for number, text in enumerate(lines, start=1):
        where = f"{place}:{number}"
        try:
            found = answer(resolve(case_line(text, place=where), place=where, models=models))
            yield json.dumps(result_tree(found), ensure_ascii=False)
        except LlmDeployError as error:
            yield json.dumps(error_tree(error, place=where), ensure_ascii=False)
        except _BUGS as bug:
            # the other lines of a long file are worth more than this one's traceback
            yield json.dumps(error_tree(_of_bug(bug, text), place=where), ensure_ascii=False)


def _of_bug(bug: Exception, text: str) -> LlmDeployError:
    at = traceback.extract_tb(bug.__traceback__)[-1]
    return LlmDeployError(
        f"a bug of llmdeploy: {type(bug).__name__}: {bug} in {at.name}, line {at.lineno}",
        fix=f"report it with the case: {text.strip()[:2000]}",
    )


def answer(resolved: Resolved) -> Result:
    """Memory, and speed where the device is known; each missing number with its reason."""
    case = resolved.case
    taken = memory.estimate(case)
    for other in resolved.other_cases:
        taken = memory.joined(taken, memory.estimate(other))
    pace, why_not = _speed(resolved)
    missing = [Unanswered(key=key, why=why_not) for key in SPEED_KEYS if why_not]
    missing += _missing_memory(case, taken)
    return Result(
        case=case,
        model_source=resolved.model_source,
        memory=taken,
        speed=pace,
        assumptions=(*resolved.assumptions, *(load_words(case, pace) if pace else ())),
        unanswered=tuple(missing),
    )


def _speed(resolved: Resolved) -> tuple[SpeedEstimate | None, str]:
    if resolved.no_device is not None:
        return None, resolved.no_device
    try:
        found = speed.estimate(resolved.case)
        others = _others(resolved.case) if resolved.guessed_devices else []
        if resolved.other_hosts is not None:
            others.append(replace(resolved.case, hosts=resolved.other_hosts))
        found = _widened(found, [speed.estimate(case) for case in others]) if others else found
    except InputError as unknown:
        return None, f"{unknown}; {unknown.fix}"
    return found, ""


def _others(case: Case) -> list[Case]:
    """The launch on half, twice and eight times as many devices."""
    tp, fitting = case.tensor_parallel, allowed_tensor_parallel(case.shape)
    wider = [n for n in (tp // 2, 2 * tp) if n in fitting]
    spread = [replace(case, tensor_parallel=n) for n in wider]
    copies = replace(case, data_parallel=8, hosts=8 * case.hosts)
    if case.shape.experts is not None:
        spread.append(replace(copies, expert_parallel=True))
    return [*spread, copies]


def _widened(found: SpeedEstimate, others: list[SpeedEstimate]) -> SpeedEstimate:
    """The same figures; intervals reach over those of fewer and of more devices."""

    def over(key: str) -> Estimated:
        own: Estimated = getattr(found, key)
        each: list[Estimated] = [own, *(getattr(other, key) for other in others)]
        low, high = min(one.low for one in each), max(one.high for one in each)
        return replace(own, low=low, high=high, origin="assumed")

    return replace(
        found,
        ttft_s=over("ttft_s"),
        tpot_s=over("tpot_s"),
        output_tokens_per_s=over("output_tokens_per_s"),
        utilisation_ratio=over("utilisation_ratio"),
    )


def _missing_memory(case: Case, taken: MemoryEstimate) -> list[Unanswered]:
    known = case.device is not None or case.device_memory_bytes is not None
    why = taken.refusal or (
        "the engine does not say it"
        if known
        else "the device's memory is not known: give gpu or gpu_memory_bytes"
    )
    numbers = {
        "kv_cache_bytes": taken.kv_cache_bytes,
        "kv_cache_tokens": taken.kv_cache_tokens,
        "max_concurrency": taken.max_concurrency,
        "fits": taken.fits,
    }
    missing = [Unanswered(key=key, why=why) for key, number in numbers.items() if number is None]
    if taken.fits is None and known:
        missing[-1] = Unanswered(key="fits", why=taken.refusal or "too close to say")
    return missing

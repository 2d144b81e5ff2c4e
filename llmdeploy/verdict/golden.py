"""Golden prompts: known good answers at temperature 0, the same twice and as the old release's."""

from llmdeploy.edge import Http
from llmdeploy.errors import Unreachable
from llmdeploy.facts.finding import Finding, Status
from llmdeploy.service import GoldenPrompt
from llmdeploy.verdict.api_checks import finding, passed
from llmdeploy.verdict.target import Answer, Target, ask
from llmdeploy.verdict.texts import NEAR_TIE, SAME_DISTANCE, Agreement, agreement, soundness

GOLDEN_TOKENS = 32
"""Length of a golden answer. Source: own choice: long enough for drift and repetition to show."""


def golden(
    target: Target, prompts: tuple[GoldenPrompt, ...], *, old: Target | None, http: Http
) -> tuple[Finding, ...]:
    """What golden prompts say: expected text, sound text, twice the same, as the old release."""
    answers = [_answer(target, p.prompt, http) for p in prompts]
    again = [_answer(target, p.prompt, http) for p in prompts]
    findings = [
        _expected(target, prompts, answers),
        _sound(target, answers),
        _repeatable(target, answers, again),
    ]
    if old is not None:
        findings.append(_against_old(target, old, prompts, answers=answers, http=http))
    return tuple(findings)


def golden_fault(
    target: Target, prompt: GoldenPrompt, *, timeout_s: float, http: Http
) -> str | None:
    """What is wrong with one golden answer now, in words; None where it is good."""
    answer = ask(target, prompt.prompt, max_tokens=GOLDEN_TOKENS, timeout_s=timeout_s, http=http)
    if prompt.expect not in answer.text:
        return f"golden answer {answer.text[:80]!r}, needed {prompt.expect!r} in it"
    return soundness(answer.text)


def _answer(target: Target, prompt: str, http: Http) -> Answer:
    return ask(target, prompt, max_tokens=GOLDEN_TOKENS, http=http, logprobs=True, top_logprobs=2)


def _expected(target: Target, prompts: tuple[GoldenPrompt, ...], answers: list[Answer]) -> Finding:
    missing = [
        f"{prompt.expect!r} not in {answer.text[:80]!r}"
        for prompt, answer in zip(prompts, answers, strict=True)
        if prompt.expect not in answer.text
    ]
    found = "; ".join(missing) or f"{len(prompts)} of {len(prompts)} as expected"
    return finding(target, "golden", passed(not missing), found, "the expected text in each answer")


def _sound(target: Target, answers: list[Answer]) -> Finding:
    faults = [fault for answer in answers if (fault := soundness(answer.text))]
    found = "; ".join(faults) or f"{len(answers)} of {len(answers)} answers are sound text"
    return finding(target, "garbage", passed(not faults), found, "printable, varied text")


def _repeatable(target: Target, answers: list[Answer], again: list[Answer]) -> Finding:
    pairs = [agreement(a.tokens, b.tokens) for a, b in zip(answers, again, strict=True)]
    ok = all(pair.same for pair in pairs) and all(a.tokens for a in answers)
    needed = "the same answer twice, but for near ties"
    return finding(target, "repeatable", passed(ok), _words(pairs), needed)


def _against_old(
    target: Target,
    old: Target,
    prompts: tuple[GoldenPrompt, ...],
    *,
    answers: list[Answer],
    http: Http,
) -> Finding:
    try:
        olds = [_answer(old, p.prompt, http) for p in prompts]
    except Unreachable as error:  # the old release's fault, not the new one's
        needed = "an answer of the old release to compare with"
        return finding(target, "like_old", Status.WARN, str(error), needed)
    return _like_old(target, old, answers, olds)


def _like_old(target: Target, old: Target, answers: list[Answer], olds: list[Answer]) -> Finding:
    pairs = [agreement(a.tokens, b.tokens) for a, b in zip(answers, olds, strict=True)]
    found = f"against {old.release}: {_words(pairs)}"
    if target.model_key != old.model_key:
        needed = "a report only: the releases hold other weights"
        return finding(target, "like_old", Status.PASS, found, needed)
    ok = all(pair.same for pair in pairs)
    needed = f"equal but for near ties ({NEAR_TIE:g}), mean distance at most {SAME_DISTANCE:g}"
    return finding(target, "like_old", passed(ok), found, needed)


def _words(pairs: list[Agreement]) -> str:
    parted = [p for p in pairs if p.gap is not None]
    distances = [p.distance for p in pairs if p.distance is not None]
    mean = f"{sum(distances) / len(distances):.3f}" if distances else "unknown"
    gaps = f", parted at gaps {', '.join(f'{p.gap:.2f}' for p in parted)}" if parted else ""
    return (
        f"{len(pairs) - len(parted)} of {len(pairs)} answers equal, mean log-probability "
        f"distance {mean}{gaps}"
    )

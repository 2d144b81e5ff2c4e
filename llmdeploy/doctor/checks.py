"""Checks at hand by name: findings of preflight and of the running service, one answer each."""

from collections.abc import Iterable, Mapping, Sequence

from llmdeploy.doctor.diagnosis import Proof, Verdict
from llmdeploy.facts.finding import Finding, Status

_WORST = (Status.FAIL, Status.WARN, Status.UNKNOWN, Status.PASS, Status.SKIP)
RUN_FACTS = "llmdeploy preflight service.yaml"
RUN_DEEP = "llmdeploy preflight service.yaml --level deep"
RUN_LIVE = "llmdeploy doctor --service NAME"
_DEEP = ("gpu.compute.golden", "gpu.vram.pattern", "fab.p2p.actual")
"""Those that preflight runs only when it may test the devices."""


def by_name(findings: Iterable[Finding]) -> Mapping[str, tuple[Finding, ...]]:
    """Findings of each check, the worst subject first."""
    named: dict[str, list[Finding]] = {}
    for finding in findings:
        named.setdefault(finding.check, []).append(finding)
    return {
        check: tuple(sorted(of_check, key=lambda f: _WORST.index(f.status)))
        for check, of_check in named.items()
    }


def proofs(checks: Sequence[str], findings: Mapping[str, tuple[Finding, ...]]) -> tuple[Proof, ...]:
    """One answer a check: that of the worst host, or how to get one; what has nothing to judge
    (no such card, no such link) is left out."""
    answers = (_proof(check, findings.get(check, ())) for check in checks)
    return tuple(answer for answer in answers if answer.status != Status.SKIP)


def without_object(checks: Sequence[str], findings: Mapping[str, tuple[Finding, ...]]) -> bool:
    """Whether the hosts have nothing that any of the checks could be about, such as no card."""
    said = [findings.get(check, ()) for check in checks if not check.startswith("live.")]
    return bool(said) and all(of and of[0].status == Status.SKIP for of in said)


def verdict(answers: Sequence[Proof], *, known: bool) -> Verdict:
    """What the checks say of a cause; `known`: whether all checks of its kind were at hand."""
    said = [answer.status for answer in answers]
    if Status.FAIL in said:
        return Verdict.PROVEN
    if Status.WARN in said:
        return Verdict.LIKELY
    content = bool(said) and all(status == Status.PASS for status in said)
    return Verdict.EXCLUDED if content and known else Verdict.OPEN


def _proof(check: str, found: Sequence[Finding]) -> Proof:
    run = RUN_LIVE if check.startswith("live.") else RUN_FACTS
    run = RUN_DEEP if check in _DEEP else run
    if not found:
        return Proof(check=check, run=run)
    worst = found[0]
    return Proof(
        check=check,
        status=worst.status,
        found=f"{worst.subject}: {worst.found}",
        needed=worst.needed,
        run=run,
    )

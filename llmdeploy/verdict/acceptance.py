"""Acceptance: every check a dark release must pass before it gets any traffic, and its record."""

from collections.abc import Callable, Mapping, Sequence

from llmdeploy.document import Document
from llmdeploy.edge import Clock, Http, Shell
from llmdeploy.errors import LlmDeployError
from llmdeploy.facts.finding import Finding, Status
from llmdeploy.observe.signatures import Severity, causes
from llmdeploy.service import ReleasePolicy
from llmdeploy.verdict import api_checks
from llmdeploy.verdict.api_checks import finding
from llmdeploy.verdict.golden import golden
from llmdeploy.verdict.speed import Speed, measure, memory, speed_findings
from llmdeploy.verdict.target import Target


class AcceptanceRecord(Document):
    """What acceptance found, kept as runs/<release>/acceptance.json."""

    release: str
    at_s: float
    took_s: float
    speed: Speed | None
    findings: tuple[Finding, ...]

    @property
    def accepted(self) -> bool:
        """Whether nothing failed and nothing is unknown."""
        return not self.failed

    @property
    def failed(self) -> tuple[Finding, ...]:
        """What speaks against the release: all that neither passed nor only warns."""
        return tuple(f for f in self.findings if f.status not in (Status.PASS, Status.WARN))


def accept(
    target: Target,
    policy: ReleasePolicy,
    *,
    old: Target | None,
    old_record: AcceptanceRecord | None,
    shell: Shell,
    http: Http,
    clock: Clock,
) -> AcceptanceRecord:
    """The record of all checks; after an endpoint that does not answer the rest is skipped."""
    began_s, at_s = clock.monotonic_s(), clock.now_s()
    ends = {path: len(shell.read(path) or b"") for path in target.log_paths}
    measured: list[Speed] = []

    def burst() -> tuple[Finding, ...]:
        measured.append(measure(target, http=http, clock=clock))
        old_speed = old_record.speed if old_record else None
        return speed_findings(target, measured[0], old=old_speed)

    findings = _run(
        target,
        (
            ("models", lambda: (api_checks.models(target, http=http),)),
            ("completions", lambda: (api_checks.completions(target, http=http),)),
            ("streaming", lambda: (api_checks.streaming(target, http=http),)),
            ("stop", lambda: (api_checks.stop_strings(target, http=http),)),
            ("too_long", lambda: (api_checks.too_long(target, http=http),)),
            ("bad_input", lambda: (api_checks.bad_input(target, http=http),)),
            ("golden", lambda: golden(target, policy.golden, old=old, http=http)),
            ("concurrent", lambda: (api_checks.concurrent(target, http=http),)),
            ("speed", burst),
            ("memory", lambda: memory(target, http=http)),
            ("log", lambda: (_log(target, ends, shell),)),
        ),
    )
    return AcceptanceRecord(
        release=target.release,
        at_s=at_s,
        took_s=clock.monotonic_s() - began_s,
        speed=measured[0] if measured else None,
        findings=findings,
    )


def _run(
    target: Target, checks: Sequence[tuple[str, Callable[[], tuple[Finding, ...]]]]
) -> tuple[Finding, ...]:
    findings: list[Finding] = []
    broken = False
    for name, check in checks:
        if broken and name != "log":
            found = "not run: an earlier check got no proper answer"
            findings.append(finding(target, name, Status.SKIP, found, "an answer"))
            continue
        try:
            findings.extend(check())
        except LlmDeployError as error:
            findings.append(finding(target, name, Status.FAIL, str(error), "a proper answer"))
            broken = True
    return tuple(findings)


def _log(target: Target, ends: Mapping[str, int], shell: Shell) -> Finding:
    """Known failures in the engine's log: fatal ones since acceptance began fail."""
    fatal, told = [], []
    for path, end in ends.items():
        text = shell.read(path) or b""
        new = causes(text[end:].decode(errors="replace"))
        before = causes(text[:end].decode(errors="replace"))
        fatal += [c for c in new if c.signature.severity == Severity.FATAL]
        told += [*before, *new]
    status = Status.FAIL if fatal else Status.WARN if told else Status.PASS
    shown = [f"{c.signature.id}: {c.line[:120]}" for c in fatal or told]
    found = "; ".join(shown[:3]) or "no line of a known failure"
    return finding(target, "log", status, found, "no known failure since the checks began")

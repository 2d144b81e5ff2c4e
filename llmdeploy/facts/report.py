"""Findings as text for people, grouped by what is to be done; what must be done stands first."""

import textwrap
from collections.abc import Iterator, Sequence

from llmdeploy.facts.compare import Change
from llmdeploy.facts.examine import GATES, Report
from llmdeploy.facts.finding import Finding, Remedy, Status

ORDER = (Status.FAIL, Status.UNKNOWN, Status.WARN, Status.PASS, Status.SKIP)
WORK: dict[Remedy | None, str] = {
    Remedy.CONFIG: "settings, packages, files",
    Remedy.REBOOT: "a reset or a reboot",
    Remedy.HARDWARE: "hands on the hardware",
    None: "by its fix",
}
"""What kind of work the fix is, in words."""
WIDTH = 100
_SHOWN_HOSTS = 6


def table(report: Report, *, changes: Sequence[Change] | None = None) -> str:
    """One block a status, to-dos with their fix, then the verdict; readable without colour.

    `changes` is what differs from the last good run; None: it was not compared.
    """
    counting = [finding for finding in report.findings if finding.waived is None]
    groups = [(status, of(counting, status)) for status in ORDER]
    text = [_block(status, findings) for status, findings in groups if findings]
    waived = [finding for finding in report.findings if finding.waived is not None]
    if waived:
        text.append("\n".join([f"WAIVED ({len(waived)})", *_waived(waived)]))
    if changes is not None:
        text.append("\n".join(_changes(changes)))
    legend = "* gates: nothing starts while it is FAIL or UNKNOWN; any FAIL blocks"
    return "\n\n".join([*text, f"{legend}\n{summary(report)}"]) + "\n"


def summary(report: Report) -> str:
    """The verdict in one line: fit or blocked and by what, and how many findings of each status."""
    counting = [finding for finding in report.findings if finding.waived is None]
    parts = [f"{len(of(counting, status))} {status}" for status in ORDER if of(counting, status)]
    waived = len(report.findings) - len(counting)
    counts = ", ".join([*parts, *([f"{waived} waived"] if waived else [])])
    asked = [facts.host for facts in report.facts.hosts]
    hosts = named_hosts([*asked, *(host.host for host in report.facts.unreached)])
    if report.fit:
        return f"{report.service} on {hosts}: fit ({counts})"
    return f"{report.service} on {hosts}: blocked by {', '.join(report.blocked_by)} ({counts})"


def named_hosts(names: Sequence[str]) -> str:
    """A few hosts by name, many by their number."""
    if len(names) <= _SHOWN_HOSTS:
        return ", ".join(names)
    return f"{', '.join(names[:_SHOWN_HOSTS])} and {len(names) - _SHOWN_HOSTS} more hosts"


def of(findings: Sequence[Finding], status: Status) -> tuple[Finding, ...]:
    """Those of one status."""
    return tuple(finding for finding in findings if finding.status == status)


def to_do(findings: Sequence[Finding]) -> dict[Remedy | None, list[list[Finding]]]:
    """By kind of work: findings that one fix mends, on all hosts that need it, are one thing."""
    alike: dict[tuple[Remedy | None, str, str], list[Finding]] = {}
    for finding in findings:
        alike.setdefault((finding.remedy, finding.found, finding.fix), []).append(finding)
    work: dict[Remedy | None, list[list[Finding]]] = {}
    for remedy in WORK:
        same = [group for (kind, *_), group in alike.items() if kind == remedy]
        if same:
            work[remedy] = same
    return work


def _block(status: Status, findings: Sequence[Finding]) -> str:
    lines = [f"{status} ({len(findings)})"]
    if status == Status.SKIP:
        return "\n".join([*lines, *_skipped(findings)])
    if status == Status.PASS:
        return "\n".join([*lines, *_passed(findings)])
    for remedy, groups in to_do(findings).items():
        if status != Status.UNKNOWN and any(group[0].fix for group in groups):
            lines.append(f"needs {WORK[remedy]}:")
        for same in groups:
            lines += _to_do(same) if same[0].fix else [ln for f in same for ln in _fine(f)]
    return "\n".join(lines)


def _to_do(same: Sequence[Finding]) -> list[str]:
    """Several checks or hosts that lack the same thing are one thing to do."""
    checks = list(dict.fromkeys(finding.check for finding in same))
    hosts = list(dict.fromkeys(finding.subject for finding in same))
    names = ", ".join(f"*{name}" if name in GATES else name for name in checks)
    single = len(checks) == 1
    start = _mark(same[0]) if single else "  "
    lines = _wrapped(start, f"{checks[0] if single else names}  ({named_hosts(hosts)})")
    for word in ("found", "needed", "fix") if single else ("found", "fix"):
        lines += _wrapped(f"      {word:8}", getattr(same[0], word))
    return lines


def _passed(findings: Sequence[Finding]) -> Iterator[str]:
    """One line a check; what differs between many hosts is counted."""
    by_check: dict[str, list[Finding]] = {}
    for finding in findings:
        by_check.setdefault(finding.check, []).append(finding)
    for same in by_check.values():
        found = list(dict.fromkeys(finding.found for finding in same))
        if len(same) == 1:
            yield from _fine(same[0])
        elif len(found) == 1:
            words = f"{len(same)} hosts: {found[0]}"
            yield from _fine(same[0].model_copy(update={"found": words}))
        else:
            words = f"{len(same)} hosts: {', '.join(found[:3])}{', …' if len(found) > 3 else ''}"
            yield from _fine(same[0].model_copy(update={"found": words}))


def _skipped(findings: Sequence[Finding]) -> Iterator[str]:
    """One entry a reason, with all checks that it leaves nothing to judge."""
    reasons: dict[str, dict[str, None]] = {}
    for finding in findings:
        name = f"*{finding.check}" if finding.check in GATES else finding.check
        reasons.setdefault(finding.found, {})[name] = None
    for reason, names in reasons.items():
        yield from _wrapped("  ", f"{reason}: {', '.join(names)}", later="      ")


def _waived(findings: Sequence[Finding]) -> Iterator[str]:
    for finding in findings:
        yield from _wrapped(_mark(finding), f"{finding.check}  ({finding.subject})")
        yield from _wrapped("      found   ", f"{finding.status}: {finding.found}")
        yield from _wrapped("      waived  ", str(finding.waived))


def _changes(changes: Sequence[Change]) -> Iterator[str]:
    yield f"CHANGED SINCE THE LAST GOOD RUN ({len(changes)})"
    for change in changes[:40]:
        text = f"{change.host}: {change.fact}: {change.before} -> {change.now}"
        yield from _wrapped("  ", text, later="      ")
    if len(changes) > 40:
        yield f"  and {len(changes) - 40} more"


def _fine(finding: Finding) -> list[str]:
    return _wrapped(f"{_mark(finding)}{finding.check:22} ", finding.found)


def _mark(finding: Finding) -> str:
    return "* " if finding.check in GATES else "  "


def _wrapped(start: str, text: str, *, later: str | None = None) -> list[str]:
    return textwrap.wrap(
        text,
        width=WIDTH,
        initial_indent=start,
        subsequent_indent=" " * len(start) if later is None else later,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [start.rstrip()]

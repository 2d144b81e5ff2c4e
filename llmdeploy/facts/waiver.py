"""Waivers: findings that a person accepts for a while, by check, with the reason."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from llmdeploy.document import HumanDocument
from llmdeploy.facts.finding import Finding, Status
from llmdeploy.inventory import Waiver


class Waivers(HumanDocument):
    """The file of `preflight --waivers`."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    waivers: tuple[Waiver, ...] = ()


def holds(waiver: Waiver, finding: Finding, *, now_s: float) -> bool:
    """Whether it is about that finding, and its last day is not over."""
    about = finding.check == waiver.check and waiver.host in (None, finding.subject)
    return about and now_s < waiver.ends_s


def waive(
    findings: Sequence[Finding], waivers: Sequence[Waiver], *, now_s: float
) -> tuple[Finding, ...]:
    """The findings, those that a waiver holds for marked so; only what would count is marked.

    `now_s` is when the facts were collected: a replayed bundle is judged as of then. A waiver whose
    last day is over, or that no finding needs, becomes a finding of its own.
    """
    marked = tuple(_marked(finding, waivers, now_s=now_s) for finding in findings)
    return (*marked, *_spent(findings, waivers, now_s=now_s))


def _marked(finding: Finding, waivers: Sequence[Waiver], *, now_s: float) -> Finding:
    if finding.status in (Status.PASS, Status.SKIP):
        return finding
    holding = next((w for w in waivers if holds(w, finding, now_s=now_s)), None)
    if holding is None:
        return finding
    return finding.model_copy(update={"waived": f"{holding.reason} (until {holding.until})"})


def _spent(
    findings: Sequence[Finding], waivers: Sequence[Waiver], *, now_s: float
) -> tuple[Finding, ...]:
    counting = [f for f in findings if f.status not in (Status.PASS, Status.SKIP)]
    found = []
    for waiver in waivers:
        over = now_s >= waiver.ends_s
        if not over and any(holds(waiver, f, now_s=now_s) for f in counting):
            continue
        where = waiver.host or "all hosts"
        said = f"it ended on {waiver.until}" if over else f"{waiver.check} is fine on {where}"
        found.append(
            Finding(
                check="waiver",
                status=Status.WARN,
                subject=where,
                found=f"{waiver.check}: {said}",
                needed="waivers that something needs and that still hold",
                fix=f"take the waiver of {waiver.check} out, or give it a new day",
                origin="waivers",
            )
        )
    return tuple(found)

"""Judges a bundle: every check on every host, and whether what is asked for can start there."""

from collections.abc import Mapping, Sequence

from llmdeploy.document import Document
from llmdeploy.errors import InputError
from llmdeploy.facts.active.judge import active_findings
from llmdeploy.facts.bundle import Bundle
from llmdeploy.facts.cause import told_once
from llmdeploy.facts.check import Check, Planned, Question, skipped
from llmdeploy.facts.checks.table import CHECKS
from llmdeploy.facts.consistency import compare
from llmdeploy.facts.finding import Finding, Status
from llmdeploy.facts.reached import not_reached
from llmdeploy.facts.waiver import waive
from llmdeploy.inventory import Inventory, Waiver
from llmdeploy.service import Service

GATES = frozenset(check.id for check in CHECKS if check.gate)


class Report(Document):
    """What preflight says: findings in the order of the table, and the facts behind them."""

    service: str
    fit: bool
    blocked_by: tuple[str, ...]
    """Ids of the checks that block: those with FAIL, then gates with UNKNOWN."""
    findings: tuple[Finding, ...]
    facts: Bundle


def examine(
    bundle: Bundle,
    *,
    service: Service,
    inventory: Inventory,
    planned: Mapping[str, Planned] | None = None,
    waivers: Sequence[Waiver] = (),
) -> Report:
    """The report of a bundle; the same bundle gives the same report, with or without its hosts.

    `planned` is what a plan puts on each host, by the host's name; waivers are judged as of the
    time at which the facts were collected.
    """
    silent = {host.host: host for host in bundle.unreached}
    said = {facts.host: facts for facts in bundle.hosts}
    findings: list[Finding] = []
    for host in inventory.hosts:
        for name in host.names:
            if name in silent:
                findings.append(not_reached(silent[name]))
                continue
            question = Question(
                facts=said.get(name) or bundle.host(name),
                host=host.numbered(name),
                inventory=inventory,
                service=service,
                llmdeploy=bundle.llmdeploy,
                planned=(planned or {}).get(name),
            )
            _check_asked(question)
            tools = {source.fact: source.tool for source in question.facts.sources}
            findings += [_finding(check, question, tools) for check in CHECKS]
    asked = [name for host in inventory.hosts for name in host.names if name not in silent]
    findings += told_once(compare([said[name] for name in asked]), findings)
    measured = active_findings(bundle)
    findings += told_once(measured, [*findings, *measured])
    accepted = (*inventory.waivers, *waivers)
    findings = list(waive(findings, accepted, now_s=_collected_s(bundle)))
    first = sorted(filter(blocks, findings), key=lambda finding: finding.status != Status.FAIL)
    blocked = tuple(dict.fromkeys(finding.check for finding in first))
    return Report(
        service=service.name,
        fit=not blocked,
        blocked_by=blocked,
        findings=tuple(findings),
        facts=bundle,
    )


def _collected_s(bundle: Bundle) -> float:
    """When the last host's answer was complete, or given up."""
    answered = [facts.collected_s for facts in bundle.hosts]
    return max([*answered, *(host.collected_s for host in bundle.unreached)], default=0.0)


def blocks(finding: Finding) -> bool:
    """Whether the finding keeps the service from starting."""
    if finding.waived is not None:
        return False
    unknown = finding.status == Status.UNKNOWN and finding.check in GATES
    return finding.status == Status.FAIL or unknown


def _check_asked(question: Question) -> None:
    asked, inventory = question.facts.asked, question.inventory
    for key, found, needed in (
        ("service", asked.service, question.service.name),
        ("state_root", asked.state_root, inventory.state_root),
        ("model_store", asked.model_store, inventory.model_store),
    ):
        if found != needed:
            raise InputError(
                f"facts: {question.facts.host}/asked/{key}: found {found}, needed {needed}",
                fix="collect them for this service: llmdeploy preflight SERVICE --out FILE",
            )


def _finding(check: Check, question: Question, tools: Mapping[str, str]) -> Finding:
    """One check's answer; `tools` gave the facts that it looks at."""
    if check.gateway and not question.is_gateway:
        where = question.inventory.gateway_name
        outcome = skipped(f"the gateway runs on {where}", check.what)
    else:
        outcome = check.judge(question)
    said = dict.fromkeys(tools[fact] for fact in check.reads if fact in tools)
    return Finding(
        check=check.id,
        status=outcome.status,
        subject=question.facts.host,
        found=outcome.found,
        needed=outcome.needed,
        fix=outcome.fix,
        remedy=(outcome.remedy or check.remedy) if outcome.fix else None,
        origin=", ".join(said) or "service.yaml, cluster.yaml",
    )

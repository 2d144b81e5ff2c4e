"""The report as one HTML file without anything outside of it: findings by work, hosts, cards."""

from collections.abc import Iterator, Sequence
from html import escape

from llmdeploy.facts.bundle import HostFacts
from llmdeploy.facts.compare import Change
from llmdeploy.facts.examine import GATES, Report
from llmdeploy.facts.finding import Finding, Remedy, Status
from llmdeploy.facts.report import ORDER, named_hosts, of, summary, to_do
from llmdeploy.units import show_bytes

TITLES: dict[Remedy | None, str] = {
    Remedy.CONFIG: "Change settings, packages, files",
    Remedy.REBOOT: "Reset a card or reboot",
    Remedy.HARDWARE: "Look at the hardware",
    None: "Other",
}
_STYLE = """
:root{color-scheme:light dark;--ink:#1a1d21;--dim:#5b6470;--paper:#fff;--line:#dfe3e8;
--card:#f6f7f9;--fail:#b3261e;--unknown:#8a5a00;--warn:#8a6d00;--pass:#1b6e3c;--skip:#6b7280}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--dim:#9aa4b1;--paper:#14171a;--line:#2c3238;
--card:#1c2024;--fail:#ff8a80;--unknown:#ffcc80;--warn:#ffe082;--pass:#8fd6a8;--skip:#9aa4b1}}
*{box-sizing:border-box}body{margin:0 auto;max-width:76rem;padding:1rem;background:var(--paper);
color:var(--ink);font:15px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.4rem;margin:.2rem 0}h2{font-size:1.1rem;margin:1.6rem 0 .5rem}
h3{font-size:1rem;margin:1rem 0 .3rem;color:var(--dim)}
.verdict{padding:.7rem 1rem;border-radius:.5rem;background:var(--card);border-left:.4rem solid}
.fit{border-color:var(--pass)}.blocked{border-color:var(--fail)}
.todo{border:1px solid var(--line);border-radius:.5rem;padding:.6rem .9rem;margin:.5rem 0;
background:var(--card)}.todo dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem .8rem;
margin:.3rem 0 0}.todo dt{color:var(--dim)}.todo dd{margin:0}
code{font:13px/1.5 ui-monospace,monospace}
.s{font-weight:600;font-size:.8rem;padding:.05rem .45rem;border-radius:1rem;border:1px solid}
.FAIL{color:var(--fail)}.UNKNOWN{color:var(--unknown)}.WARN{color:var(--warn)}
.PASS{color:var(--pass)}.SKIP{color:var(--skip)}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:.25rem .6rem;border-bottom:1px solid var(--line);vertical-align:top}
th{color:var(--dim);font-weight:600}td.n{text-align:right;font-variant-numeric:tabular-nums}
.wide td,.wide th{overflow-wrap:normal}details{margin:.4rem 0}summary{cursor:pointer}
@media(max-width:30rem){.todo dl{grid-template-columns:1fr}.todo dt{margin-top:.3rem}}
"""


def render(report: Report, *, changes: Sequence[Change] | None = None) -> str:
    """The whole file; the same report gives the same bytes."""
    counting = [finding for finding in report.findings if finding.waived is None]
    parts = [
        *_head(report),
        *_to_dos(counting),
        *_waived(report.findings),
        *_changes(changes),
        *_hosts(report, counting),
        *_cards(report.facts.hosts),
        *_fine(counting),
    ]
    title = escape(f"Preflight of {report.service}")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE}</style></head><body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _head(report: Report) -> Iterator[str]:
    yield f"<h1>Preflight of {escape(report.service)}</h1>"
    kind = "fit" if report.fit else "blocked"
    yield f'<p class="verdict {kind}">{escape(summary(report))}</p>'


def _to_dos(findings: Sequence[Finding]) -> Iterator[str]:
    """Everything that has a fix, by the kind of work, the gravest first."""
    open_ones = [f for status in ORDER[:3] for f in of(findings, status)]
    if not open_ones:
        yield "<h2>Nothing to do</h2>"
        return
    for remedy, groups in to_do(open_ones).items():
        yield f"<h2>{TITLES[remedy]}</h2>"
        for same in groups:
            yield _todo(same)


def _todo(same: Sequence[Finding]) -> str:
    checks = list(dict.fromkeys(finding.check for finding in same))
    hosts = list(dict.fromkeys(finding.subject for finding in same))
    first = same[0]
    gate = " (gate)" if any(check in GATES for check in checks) else ""
    rows = [("found", first.found), ("needed", first.needed), ("fix", first.fix)]
    rows += [("hosts", named_hosts(hosts)), ("said by", first.origin)]
    items = "".join(f"<dt>{key}</dt><dd>{escape(text)}</dd>" for key, text in rows if text)
    names = ", ".join(f"<code>{escape(check)}</code>" for check in checks)
    return f'<div class="todo">{_status(first.status)} {names}{gate}<dl>{items}</dl></div>'


def _status(status: Status) -> str:
    return f'<span class="s {status}">{status}</span>'


def _waived(findings: Sequence[Finding]) -> Iterator[str]:
    waived = [finding for finding in findings if finding.waived is not None]
    if not waived:
        return
    yield "<h2>Waived</h2>"
    rows = [[f.check, f.subject, f.found, str(f.waived)] for f in waived]
    yield _table(["check", "host", "found", "reason"], rows)


def _changes(changes: Sequence[Change] | None) -> Iterator[str]:
    if changes is None:
        return
    yield "<h2>Changed since the last good run</h2>"
    if not changes:
        yield "<p>Nothing.</p>"
        return
    rows = [[c.host, c.fact, c.before, c.now] for c in changes]
    yield _table(["host", "fact", "before", "now"], rows)


def _hosts(report: Report, findings: Sequence[Finding]) -> Iterator[str]:
    yield "<h2>Hosts</h2>"
    counts: dict[str, dict[Status, int]] = {}
    for finding in findings:
        row = counts.setdefault(finding.subject, dict.fromkeys(ORDER, 0))
        row[finding.status] += 1
    facts = {host.host: host for host in report.facts.hosts}
    rows = [
        [name, *_system(facts.get(name)), *(str(count[status]) for status in ORDER)]
        for name, count in counts.items()
    ]
    yield _table(["host", "system", "processor", "memory", *(str(s) for s in ORDER)], rows)


def _system(host: HostFacts | None) -> list[str]:
    if host is None:
        return ["", "", ""]
    memory = show_bytes(host.memory_total_bytes) if host.memory_total_bytes else "?"
    processor = f"{host.cpu_model or host.machine or '?'}, {host.cpu_cores or '?'} cores"
    return [f"{host.os_name or '?'}, {host.kernel or '?'}", processor, memory]


def _cards(hosts: Sequence[HostFacts]) -> Iterator[str]:
    rows = [
        [
            host.host, str(card.index), card.name, card.pci_address or "",
            show_bytes(card.memory_total_bytes) if card.memory_total_bytes else "?",
            show_bytes(card.memory_free_bytes) if card.memory_free_bytes is not None else "?",
            card.driver_version or "",
        ]
        for host in hosts
        for card in host.accelerators or ()
    ]  # fmt: skip
    if rows:
        yield "<h2>Accelerators</h2>"
        yield _table(["host", "card", "name", "address", "memory", "free", "driver"], rows)


def _fine(findings: Sequence[Finding]) -> Iterator[str]:
    for status, title in ((Status.PASS, "Fine"), (Status.SKIP, "Nothing to judge")):
        some = of(findings, status)
        if some:
            rows = [[f.check, f.subject, f.found, f.origin] for f in some]
            inner = _table(["check", "host", "found", "said by"], rows)
            yield f"<details><summary>{title} ({len(some)})</summary>{inner}</details>"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(f"<tr>{''.join(_cell(cell) for cell in row)}</tr>" for row in rows)
    return (
        f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _cell(text: str) -> str:
    number = ' class="n"' if text.isdigit() else ""
    return f"<td{number}>{escape(text)}</td>"

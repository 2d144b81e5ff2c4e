"""The diagnosis as text for people: the first cause first, readable without colour."""

import datetime
import textwrap
from collections.abc import Iterator, Sequence

from llmdeploy.doctor.diagnosis import Diagnosis, Evidence, Proof, Suspect, Verdict
from llmdeploy.doctor.symptoms import symptoms

WIDTH = 100
_SHOWN_LINE = 160


def table(diagnosis: Diagnosis) -> str:
    """Suspects with evidence, checks and fix; then consequences, what is unknown, and notes."""
    blocks = ["\n".join(_head(diagnosis))]
    for number, suspect in enumerate(diagnosis.suspects, start=1):
        blocks.append("\n".join(_suspect(number, suspect)))
    if diagnosis.consequences:
        blocks.append("\n".join(_consequences(diagnosis)))
    for block in diagnosis.unknown:
        start = f"{block.source}: no known failure; its last error, from line {block.first_line}:"
        blocks.append("\n".join([start, *(f"  {line}" for line in block.lines)]))
    if diagnosis.notes:
        blocks.append("\n".join(f"note: {note}" for note in diagnosis.notes))
    return "\n\n".join(blocks) + "\n"


def overview() -> str:
    """What can be asked: every symptom with its names and its causes."""
    blocks = ["symptoms (llmdeploy doctor SYMPTOM, or LOG files, --from FACTS, --service NAME)"]
    for symptom in symptoms():
        lines = [f"{symptom.id}  {symptom.title}  ({', '.join(symptom.words[:3])})"]
        lines += [f"    {cause.cause}" for cause in symptom.causes]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def _head(diagnosis: Diagnosis) -> Iterator[str]:
    titles = {symptom.id: symptom.title for symptom in symptoms()}
    if diagnosis.symptoms:
        yield f"symptom: {'; '.join(titles[id] for id in diagnosis.symptoms)}"
    if diagnosis.looked_at:
        yield f"looked at: {', '.join(diagnosis.looked_at)}"
    if not diagnosis.suspects:
        error = diagnosis.unknown
        yield "no known failure" if error else "nothing here looks like a failure"


def _suspect(number: int, suspect: Suspect) -> Iterator[str]:
    yield from _wrapped(f"{number}. ", f"{suspect.verdict}: {suspect.cause}  [{suspect.id}]")
    for evidence in suspect.evidence:
        yield from _evidence("   evidence  ", evidence)
    shown = [proof for proof in suspect.proofs if proof.status is not None]
    for proof in shown:
        yield from _wrapped("   check     ", _answer(proof))
    missing = [proof for proof in suspect.proofs if proof.status is None]
    if missing and suspect.verdict != Verdict.EXCLUDED:
        runs = dict.fromkeys(proof.run for proof in missing)
        for run in runs:
            names = ", ".join(proof.check for proof in missing if proof.run == run)
            yield from _wrapped("   not run   ", f"{names}: {run}")
    if suspect.by_hand and suspect.verdict != Verdict.EXCLUDED:
        yield from _wrapped("   be sure   ", suspect.by_hand)
    if suspect.verdict != Verdict.EXCLUDED:
        yield from _wrapped("   fix       ", suspect.fix)


def _answer(proof: Proof) -> str:
    said = f"{proof.check} {proof.status}: {proof.found}"
    return said if proof.status == "PASS" else f"{said}, needed {proof.needed}"


def _consequences(diagnosis: Diagnosis) -> Iterator[str]:
    yield "consequences, not causes:"
    for one in diagnosis.consequences:
        yield from _evidence("   ", one.evidence[0])
        if len(one.evidence) > 1:
            others = dict.fromkeys(e.source for e in one.evidence[1:])
            yield f"     and {len(one.evidence) - 1} more in {', '.join(others)}"


def _evidence(start: str, evidence: Evidence) -> Sequence[str]:
    place = f"{evidence.source}:{evidence.line_number}"
    rank = f" rank {evidence.rank}" if evidence.rank else ""
    at = f" at {_clock(evidence.at_s)}" if evidence.at_s is not None else ""
    return [
        f"{start}{place}{rank}{at}",
        f"{' ' * len(start)}{evidence.line[:_SHOWN_LINE].rstrip()}",
    ]


def _clock(at_s: float) -> str:
    moment = datetime.datetime.fromtimestamp(at_s, tz=datetime.UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def _wrapped(start: str, text: str) -> list[str]:
    return textwrap.wrap(
        text,
        width=WIDTH,
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [start.rstrip()]

"""The diagnosis: suspects from logs, from the symptoms asked about, and from checks that fail."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from llmdeploy.doctor.checks import by_name, proofs, verdict, without_object
from llmdeploy.doctor.diagnosis import Consequence, Diagnosis, Suspect, Verdict
from llmdeploy.doctor.log import Log, last_error
from llmdeploy.doctor.rank import KEPT, Found, Ranked, ranked
from llmdeploy.doctor.symptoms import PossibleCause, Symptom, symptoms
from llmdeploy.facts.finding import Finding, Status

_CERTAINTY = (Verdict.PROVEN, Verdict.LIKELY, Verdict.OPEN, Verdict.EXCLUDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """All that is at hand."""

    asked: tuple[Symptom, ...] = ()
    logs: tuple[Log, ...] = ()
    findings: tuple[Finding, ...] = ()
    """Of preflight's checks and of the running service."""
    looked_at: tuple[str, ...] = ()
    """What the findings are of, in words."""
    notes: tuple[str, ...] = ()
    """What else is known, for people."""
    year: int
    """For log stamps that have none."""


def diagnose(question: Question) -> Diagnosis:
    """Suspects, the first cause first; what is not known is said with its last error."""
    found = ranked(question.logs, year=question.year)
    checks = by_name(question.findings)
    said = [*found.first, *(() if question.asked else found.warnings)]
    suspects = [_from_log(lines, checks) for lines in said]
    if question.asked:
        suspects = [*suspects, *_from_symptoms(question, found, checks)]
    else:
        suspects += list(_from_findings(question.findings, suspects))
    named = {line.evidence.source for lines in found.first for line in lines}
    blocks = (last_error(log) for log in question.logs if log.name not in named)
    unknown = () if found.first else tuple(block for block in blocks if block is not None)
    asked = tuple(symptom.id for symptom in question.asked)
    return Diagnosis(
        symptoms=asked or (suspects[0].symptoms if suspects else ()),
        suspects=tuple(suspects),
        consequences=tuple(map(_consequence, found.consequences)),
        unknown=unknown,
        looked_at=(*(log.name for log in question.logs), *question.looked_at),
        notes=(*question.notes, *_notes(question, found)),
    )


def _from_log(lines: Sequence[Found], checks: Mapping[str, tuple[Finding, ...]]) -> Suspect:
    signature = lines[0].signature
    answers = proofs(signature.checks, checks)
    sure = signature.severity == "fatal" and signature.specificity == "specific"
    sure = (sure and not signature.echo) or verdict(answers, known=False) == Verdict.PROVEN
    return Suspect(
        id=signature.id,
        verdict=Verdict.PROVEN if sure else Verdict.LIKELY,
        cause=signature.cause,
        symptoms=signature.symptoms,
        evidence=tuple(line.evidence for line in lines[:KEPT]),
        proofs=answers,
        by_hand=signature.proof,
        fix=signature.fix,
    )


def _from_symptoms(
    question: Question, found: Ranked, checks: Mapping[str, tuple[Finding, ...]]
) -> list[Suspect]:
    """The causes of what was asked, the surest first."""
    causes = [(one, cause) for one in question.asked for cause in one.causes]
    suspects = [_possible(one, cause, found, checks) for one, cause in causes]
    return sorted(suspects, key=lambda suspect: _CERTAINTY.index(suspect.verdict))


def _possible(
    symptom: Symptom,
    cause: PossibleCause,
    found: Ranked,
    checks: Mapping[str, tuple[Finding, ...]],
) -> Suspect:
    groups = (*found.first, *found.warnings)
    lines = [line for group in groups for line in group if line.signature.id in cause.signatures]
    answers = proofs(cause.checks, checks)
    fatal = any(line.signature.severity == "fatal" for line in lines)
    said = verdict(answers, known=all(answer.status is not None for answer in answers))
    if not answers and without_object(cause.checks, checks):
        said = Verdict.EXCLUDED
    if lines and said != Verdict.PROVEN:
        said = Verdict.PROVEN if fatal else Verdict.LIKELY
    return Suspect(
        id=cause.id,
        verdict=said,
        cause=cause.cause,
        symptoms=(symptom.id,),
        evidence=tuple(line.evidence for line in lines[:KEPT]),
        proofs=answers,
        by_hand=cause.proof,
        fix=cause.fix,
    )


def _from_findings(findings: Sequence[Finding], known: Sequence[Suspect]) -> Iterator[Suspect]:
    """Each check that fails and that no suspect has told yet."""
    told = {proof.check for suspect in known for proof in suspect.proofs}
    failed = by_name(f for f in findings if f.status == Status.FAIL and f.waived is None)
    for check, same in failed.items():
        if check in told:
            continue
        worst = same[0]
        yield Suspect(
            id=check,
            verdict=Verdict.PROVEN,
            cause=f"{worst.found}, needed {worst.needed}",
            symptoms=tuple(
                symptom.id
                for symptom in symptoms()
                if any(check in cause.checks for cause in symptom.causes)
            ),
            proofs=proofs((check,), failed),
            fix=worst.fix,
        )


def _consequence(lines: Sequence[Found]) -> Consequence:
    signature = lines[0].signature
    return Consequence(
        id=signature.id,
        cause=signature.cause,
        evidence=tuple(line.evidence for line in lines[:KEPT]),
    )


def _notes(question: Question, found: Ranked) -> Iterator[str]:
    if found.first and all(line.signature.echo for lines in found.first for line in lines):
        yield "every line found is one that healthy ranks say too: give the logs of all ranks"
    if found.consequences and not found.first:
        yield "only wrappers and after-effects were found: the cause is in another process's log"
    if question.asked and not (question.logs or question.findings):
        yield (
            "nothing was looked at: add the service (--service), a facts bundle (--from) or log "
            "files, and each check is run"
        )

"""One look's whole evidence: what the judge sees, kept in a decision record for replay."""

from collections.abc import Iterable, Mapping, Sequence

from llmdeploy.document import Document
from llmdeploy.observe.flight import InFlight
from llmdeploy.observe.requests import Ending, RequestRecord
from llmdeploy.service import Objectives, ReleasePolicy
from llmdeploy.verdict.like_load import LoadCurve, curve_of

WHOLE_ANSWER_TOKENS = 8
"""Fewest tokens over which the prompt's time is spread in an answer that was not streamed.

Source: own choice: a prompt takes about as long as a few output tokens."""


class Sample(Document):
    """One finished request as evidence; cancelled and rejected ones are none."""

    new: bool
    probe: bool
    """Sent by `verify` itself: its latency is compared with other probes only."""
    failed: bool
    ended_s: float
    """Seconds since 1970."""
    ttft_s: float | None = None
    tpot_s: float | None = None
    output_tokens: int | None = None
    load: float | None = None
    """Requests its release had in flight, mean over its time; None where nobody counted."""


class Pace(Document):
    """The old release's latencies by its requests in flight; None where too few were seen."""

    ttft: LoadCurve | None = None
    tpot: LoadCurve | None = None


class Baseline(Document):
    """What the old release did when it last carried traffic: excuses what it broke, too."""

    requests: int
    failures: int
    answers: int
    slow_starts: int
    """Answers whose TTFT was above the objective."""
    slow_answers: int


class Look(Document):
    """Everything one verdict follows from."""

    release: str
    old_release: str | None
    """The release to compare with; None for the first release of a service."""
    share: float
    step_started_s: float
    at_s: float
    policy: ReleasePolicy
    objectives: Objectives
    samples: tuple[Sample, ...]
    """Both releases' requests since the step began, in order of completion."""
    baseline: Baseline | None = None
    pace: Pace = Pace()


def samples_of(
    records: Iterable[RequestRecord],
    *,
    new: str,
    old: str | None,
    loads: Mapping[str, InFlight] | None = None,
) -> tuple[Sample, ...]:
    """The evidence in access records, in their order; `loads` by release.

    A request that another release had to answer counts as failed for the one it was meant for:
    the client saw none of it, but without the other release it would have.
    """
    return tuple(
        _sample(record, new, (loads or {}).get(record.release))
        for record in records
        if record.release in (new, old) and record.ending in (Ending.OK, Ending.FAILED)
    )


def baseline_of(samples: Sequence[Sample], objectives: Objectives) -> Baseline:
    """The old release's counts among samples."""
    olds = [s for s in samples if not s.new]
    answers = [s for s in olds if not s.failed]
    return Baseline(
        requests=len(olds),
        failures=len(olds) - len(answers),
        answers=len(answers),
        slow_starts=sum((s.ttft_s or 0) > objectives.ttft_p95_s for s in answers),
        slow_answers=sum((s.tpot_s or 0) > objectives.tpot_p95_s for s in answers),
    )


def pace_of(samples: Iterable[Sample]) -> Pace:
    """What the old release's live answers among samples teach."""
    olds = [s for s in samples if not s.new and not s.probe and s.load is not None]
    return Pace(
        ttft=curve_of((s.load or 0, s.ttft_s) for s in olds if s.ttft_s is not None),
        tpot=curve_of((s.load or 0, s.tpot_s) for s in olds if s.tpot_s is not None),
    )


def _sample(record: RequestRecord, new: str, flying: InFlight | None) -> Sample:
    elsewhere = record.served_by is not None and record.served_by != record.release
    failed = record.ending == Ending.FAILED or elsewhere
    ended_s = record.started_s + record.duration_s
    return Sample(
        new=record.release == new,
        probe=record.probe,
        failed=failed,
        ended_s=ended_s,
        load=flying.mean(record.started_s, ended_s) if flying else None,
        ttft_s=None if failed else record.ttft_s,
        tpot_s=None if failed else _tpot_s(record),
        output_tokens=None if failed else record.completion_tokens,
    )


def _tpot_s(record: RequestRecord) -> float | None:
    """Seconds per output token; of an answer that came whole, all its time over its tokens."""
    if record.ttft_s is not None:
        return record.tpot_s
    tokens = record.completion_tokens or 0
    return record.duration_s / tokens if tokens >= WHOLE_ANSWER_TOKENS else None

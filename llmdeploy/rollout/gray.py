"""The gray release: set weights, watch, judge, then the next step or back."""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field

from llmdeploy.errors import Busy
from llmdeploy.gateway.apply import read_state
from llmdeploy.gateway.confirm import confirm
from llmdeploy.release import journal, lock
from llmdeploy.release.site import Site
from llmdeploy.release.state import Standing
from llmdeploy.rollout.candidate import Candidate, accepted, choose, load
from llmdeploy.rollout.forecast import keep_forecast
from llmdeploy.rollout.outcome import Outcome, Result
from llmdeploy.rollout.position import Position, Step, next_share, position
from llmdeploy.rollout.probes import Prober
from llmdeploy.rollout.shift import go_back, promote, step_to
from llmdeploy.rollout.watch import REPORT_S, Ending, watch
from llmdeploy.units import show_ratio, show_seconds
from llmdeploy.verdict.document import Decision, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How long `verify` may take."""

    timeout_s: float
    """Over all steps; the release then stays where it is."""
    once: bool
    """One look only."""


def verify(
    release_id: str | None,
    options: Options,
    *,
    report: Callable[[str], None],
    executor: Executor,
    site: Site,
) -> Outcome:
    """The outcome for the release asked for, else the newest candidate.

    A killed command's release goes on at its step with the evidence it had. Ctrl-C leaves the
    step as it is. `executor` runs the probes beside the looks. Busy, naming its owner, while
    another `verify` of the service runs.
    """
    with lock.hold(
        site.layout, path=site.layout.verify_lock, reason=f"verify {release_id or 'a release'}",
        longest_s=options.timeout_s + lock.LONGEST_HOLD_S, shell=site.shell, clock=site.clock,
    ):  # fmt: skip
        began_s = site.clock.monotonic_s()
        state = journal.state(site.layout, shell=site.shell)
        release = choose(state, release_id)
        if release.standing == Standing.LIVE:
            return Outcome(
                service=site.service, release=release.id, old_release=None, result=Result.LIVE,
                share=1.0, reasons=(), took_s=0.0,
            )  # fmt: skip
        candidate = load(release, state, site=site)
        if release.standing == Standing.ROLLED_BACK:  # asked for by its id: once more
            journal.mark_standings(
                {release.id: Standing.CANDIDATE}, release=release.id,
                layout=site.layout, shell=site.shell, clock=site.clock,
            )  # fmt: skip
        prober = Prober(
            new=candidate.target, old=candidate.old_target, golden=candidate.plan.release.golden,
            http=site.http, executor=executor,
        )  # fmt: skip
        return _carry_out(
            Run(
                candidate=candidate, options=options, began_s=began_s, report=report,
                prober=prober, site=site,
            )
        )  # fmt: skip


def _carry_out(run: "Run") -> Outcome:
    """The run's outcome; interrupted, the release is held where it is."""
    try:
        return run.outcome()
    except KeyboardInterrupt:
        step = run.seen().step
        return run.ended(
            Result.HELD,
            share=step.share if step else 0.0,
            reasons=(f"interrupted; `llmdeploy verify {run.site.service}` goes on from here",),
        )


@dataclass(slots=True, kw_only=True)
class Run:
    """One `verify` of one candidate."""

    candidate: Candidate
    options: Options
    began_s: float
    report: Callable[[str], None]
    prober: Prober
    site: Site
    verdicts: list[Verdict] = field(default_factory=list)

    def outcome(self) -> Outcome:
        """Acceptance, then one step after the other until the release is live, back or held."""
        seen = self.seen()
        if seen.step is None:
            record = accepted(self.candidate, seen, report=self.report, site=self.site)
            if not record.accepted:
                bad = tuple(f"{f.check}: {f.found}" for f in record.failed)
                ended = self.ended(Result.REJECTED, share=0.0, reasons=bad)
                return ended.model_copy(update={"acceptance": record})
        elif not seen.intended and self._left_without_traffic():
            why = "a rollback had begun when its command ended"
            return self._back(seen.step, (why,), step_s=None)
        else:
            confirm(self.site.layout, shell=self.site.shell, http=self.site.http,
                    clock=self.site.clock)  # fmt: skip
        return self._steps()

    def _steps(self) -> Outcome:
        while True:
            seen = self.seen()
            try:
                outcome = self._step(seen)
            except Busy as busy:
                outcome = self._wait(busy, seen)
            if outcome is not None:
                return outcome

    def _step(self, seen: Position) -> Outcome | None:
        """The outcome, None where the release went on to its next step."""
        if seen.step is None or seen.intended:
            self._next(seen)
            return None
        ending = self._watch(seen)
        verdict = ending.record.verdict
        self.verdicts.append(verdict)
        self.report(f"{show_ratio(seen.step.share)}: {verdict.decision}: "
                    + "; ".join(verdict.reasons))  # fmt: skip
        step_s = verdict.at_s - seen.step.started_s
        if verdict.decision == Decision.ROLL_BACK:
            outcome = self._back(seen.step, verdict.reasons, step_s=step_s)
            ending.keep(site=self.site)
            return outcome
        ending.keep(site=self.site)
        if verdict.decision == Decision.HOLD:
            reasons = (*verdict.reasons, _missing(verdict))
            return self.ended(Result.HELD, share=seen.step.share, reasons=reasons)
        if seen.step.share >= 1:
            promote(self.candidate.release.id, old=seen.step.old, seen=seen, site=self.site)
            self._keep_forecast()
            return self.ended(Result.PROMOTED, share=1.0, reasons=(), step_s=step_s)
        self._next(seen)
        return None

    def _wait(self, busy: Busy, seen: Position) -> Outcome | None:
        """None after a moment in which the other command may have ended; held when time is over."""
        if self.options.once or self.site.clock.monotonic_s() >= self._ends_s:
            share = seen.step.share if seen.step else 0.0
            return self.ended(Result.HELD, share=share, reasons=(f"{busy}",))
        if seen.step is None or seen.intended:  # else watching waits, and goes on with its looks
            self.report(f"waiting: {busy}")
            self.site.clock.sleep(REPORT_S)
        return None

    def seen(self) -> Position:
        """Where the release stands now, from the journal."""
        entries = journal.read(self.site.layout, self.site.shell)
        return position(entries, self.candidate.release.id)

    def ended(
        self,
        result: Result,
        *,
        share: float,
        reasons: tuple[str, ...],
        switch_s: float | None = None,
        step_s: float | None = None,
    ) -> Outcome:
        """The outcome of this command."""
        old = self.candidate.old
        return Outcome(
            service=self.site.service,
            release=self.candidate.release.id,
            old_release=old.id if old else None,
            result=result,
            share=share,
            reasons=reasons,
            took_s=self.site.clock.monotonic_s() - self.began_s,
            switch_s=switch_s,
            step_s=step_s,
            verdicts=tuple(self.verdicts),
        )

    def _next(self, seen: Position) -> None:
        """The step that was begun before, else the one after the present one."""
        old = self.candidate.old
        shares = self.candidate.plan.release.steps
        now = seen.step.share if seen.step else 0.0
        share = next_share(shares, now=now, first_release=old is None)
        if seen.intended:
            share = seen.intended.share
        took_s = step_to(
            self.candidate.release.id,
            old=old.id if old else None,
            share=share,
            seen=seen,
            site=self.site,
        )
        self.report(f"{show_ratio(share)}: weights confirmed after {show_seconds(took_s)}")

    @property
    def _ends_s(self) -> float:
        """When the time for all steps is over, as the monotonic clock has it."""
        return self.began_s + self.options.timeout_s

    def _keep_forecast(self) -> None:
        problem = keep_forecast(self.candidate.plan, self.candidate.release.id, site=self.site)
        if problem:
            self.report(problem)

    def _watch(self, seen: Position) -> Ending:
        step_timeout_s = self.candidate.plan.release.step_timeout_s
        now_s = self.site.clock.monotonic_s()
        until_s = min(now_s + step_timeout_s, self._ends_s)
        return watch(
            self.candidate,
            seen,
            until_s=now_s if self.options.once else until_s,
            prober=self.prober,
            report=self.report,
            site=self.site,
        )

    def _back(self, step: Step, reasons: tuple[str, ...], *, step_s: float | None) -> Outcome:
        switch_s = go_back(
            self.candidate.release.id, to=step.old, reason="; ".join(reasons), site=self.site
        )
        return self.ended(
            Result.ROLLED_BACK, share=step.share, reasons=reasons, switch_s=switch_s, step_s=step_s
        )

    def _left_without_traffic(self) -> bool:
        state = read_state(self.site.layout, self.site.shell)
        return state is not None and state.share(self.candidate.release.id) == 0


def _missing(verdict: Verdict) -> str:
    about = "nothing arrives at present"
    if verdict.missing_s is not None:
        about = f"about {show_seconds(verdict.missing_s)} at the present rate"
    return f"needs {verdict.missing_requests} more requests ({about})"

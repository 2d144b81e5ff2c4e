"""What `verify` came to."""

from enum import StrEnum

from llmdeploy.document import Document
from llmdeploy.units import show_ratio, show_seconds
from llmdeploy.verdict.acceptance import AcceptanceRecord
from llmdeploy.verdict.document import Verdict


class Result(StrEnum):
    """How a gray release ended, or did not."""

    PROMOTED = "promoted"
    LIVE = "live"
    """It was live already: nothing was done."""
    REJECTED = "rejected"
    """Acceptance failed: it never got traffic."""
    ROLLED_BACK = "rolled_back"
    HELD = "held"


class Outcome(Document):
    """The end of one `verify`."""

    service: str
    release: str
    old_release: str | None
    result: Result
    share: float
    """What the release has now; what it had before a rollback."""
    reasons: tuple[str, ...]
    took_s: float
    switch_s: float | None = None
    """From the decision to roll back until the gateway confirmed the old weights."""
    step_s: float | None = None
    """How long the last step took from its confirmed weights to the decision."""
    verdicts: tuple[Verdict, ...] = ()
    """The last of each step that this command watched."""
    acceptance: AcceptanceRecord | None = None
    """Where it was rejected: what was found."""

    def words(self) -> str:
        """The outcome in one or two sentences for people."""
        why = "; ".join(self.reasons)
        if self.acceptance:  # whose findings say it
            failed, found = self.acceptance.failed, self.acceptance.findings
            why = f"{len(failed)} of {len(found)} checks did not pass"
        if self.result == Result.ROLLED_BACK:
            return f"{self._rolled_back()}: {why}"
        said = {
            Result.PROMOTED: "has all traffic",
            Result.LIVE: "is live already, nothing to do",
            Result.REJECTED: "was not accepted and stays dark",
            Result.HELD: f"stays at {show_ratio(self.share)}",
        }[self.result]
        return f"release {self.release} {said}" + (f": {why}" if why else "")

    def _rolled_back(self) -> str:
        old = f"release {self.old_release} has all traffic" if self.old_release else "no traffic"
        said = f"release {self.release} rolled back at {show_ratio(self.share)}, {old}"
        if self.verdicts and self.step_s is not None:
            last = self.verdicts[-1]
            said += (
                f"; found after {last.live_requests} live and {last.synthetic_requests} "
                f"synthetic requests in {show_seconds(self.step_s)}"
            )
        if self.switch_s is not None:
            said += f", weights confirmed {show_seconds(self.switch_s)} after the decision"
        return said

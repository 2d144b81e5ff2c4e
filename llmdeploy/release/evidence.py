"""What a launch saw at each phase: journaled, and kept in runs/<id>/launch.jsonl."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from llmdeploy.document import Document
from llmdeploy.release import journal
from llmdeploy.release.site import Site
from llmdeploy.release.state import Phase
from llmdeploy.units import show_seconds


class Evidence(Document):
    """One line of launch.jsonl."""

    phase: Phase
    at_s: float
    took_s: float
    """Since the phase before it, or since the launch began."""
    seen: dict[str, str]
    """What proved the phase: numbers and words, never prompt text."""


@dataclass(slots=True, kw_only=True)
class Diary:
    """Writes one launch's evidence; knows when the phase before was reached."""

    release_id: str
    report: Callable[[str], None]
    site: Site
    since_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.since_s = self.site.clock.monotonic_s()

    def reached(self, phase: Phase, seen: Mapping[str, str]) -> None:
        """The phase is on disk, in the journal and reported."""
        layout, shell, clock = self.site.layout, self.site.shell, self.site.clock
        now_s = clock.monotonic_s()
        evidence = Evidence(
            phase=phase,
            at_s=clock.now_s(),
            took_s=round(now_s - self.since_s, 3),
            seen=dict(seen),
        )
        self.since_s = now_s
        path = f"{layout.run(self.release_id)}/launch.jsonl"
        shell.append(path, f"{evidence.model_dump_json()}\n".encode())
        journal.mark_phase(
            self.release_id,
            phase,
            reason=seen.get("reason", ""),
            layout=layout,
            shell=shell,
            clock=clock,
        )
        shown = ", ".join(f"{name} {value}" for name, value in seen.items())
        took = show_seconds(evidence.took_s)
        self.report(f"release {self.release_id}: {phase} after {took} ({shown})")

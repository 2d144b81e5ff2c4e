"""How long each rank's engine has logged nothing, and where its threads stood when that is too
long."""

import json

from llmdeploy.edge import Clock
from llmdeploy.errors import LlmDeployError
from llmdeploy.release import aboard
from llmdeploy.release.group_evidence import Heard
from llmdeploy.release.groups import Rank
from llmdeploy.release.together import together

SILENCE_S = 120.0
"""A starting engine that logs nothing for so long hangs, reading its weights apart.

Source: own choice: importing torch alone took 88 s on crowded cores without a line."""
STACKS_TIMEOUT_S = 120.0
"""For all processes of a rank. Source: own choice: a healthy one takes under a second."""
_NO_PY_SPY = "llmdeploy installs nothing there: pip install py-spy beside the engine shows where"


class Quiet:
    """Since when each rank's log has not grown."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._grown: dict[str, tuple[int, float]] = {}

    def log_bytes(self, rank: Rank) -> int:
        """How much of its log is known."""
        return self._grown.get(rank.place, (0, 0.0))[0]

    def note(self, one: Heard) -> None:
        """One look; a rank whose engine was not started yet waits for others and is not quiet."""
        before = self._grown.get(one.rank.place)
        if before is None or not one.started or one.silent or one.log_bytes > before[0]:
            self._grown[one.rank.place] = (one.log_bytes, self._clock.monotonic_s())

    def longest(self, heard: tuple[Heard, ...]) -> tuple[Heard, float]:
        """The rank that has been quiet longest, and for how many seconds."""
        now_s = self._clock.monotonic_s()
        since = [(one, now_s - self._grown[one.rank.place][1]) for one in heard]
        return max(since, key=lambda pair: pair[1])


def stacks(quiet: Rank, ranks: tuple[Rank, ...]) -> str:
    """In words where the group's stacks are kept, the quiet rank's first, or why there are none.

    Of all its ranks: one that waits shows for what, the one that it waits for shows why.
    """
    told = dict(zip((rank.place for rank in ranks), together(_stacks, ranks), strict=True))
    others = [words for place, (words, there) in told.items() if there and place != quiet.place]
    also = f" (and {', '.join(others)})" if others else ""
    words, there = told[quiet.place]
    return f"stacks of its threads: {words}{also}" if there else f"no stacks: {words}{also}"


def _stacks(rank: Rank) -> tuple[str, bool]:
    """The file's place, or what is lacking; and whether there is one."""
    station = rank.station
    try:
        program = aboard.bring(station, aboard.archive())
        argv = (station.python, "-I", "-S", program, "stacks", rank.mark, station.python,
                rank.stacks_path)  # fmt: skip
        done = station.shell.run(argv, timeout_s=STACKS_TIMEOUT_S)
    except LlmDeployError as error:
        return str(error), False
    try:
        said = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return f"{station.name}: {last[:200]}", False
    if "lacks" in said:
        hint = f" ({_NO_PY_SPY})" if str(said["lacks"]).startswith("py-spy is") else ""
        return f"{station.name}: {said['lacks']}{hint}", False
    return f"{station.name}:{said['path']}", True

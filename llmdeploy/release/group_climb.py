"""Waits while groups climb: communication group, weights, KV cache, answers; or says why not."""

from llmdeploy.backends.progress import Progress, at_least, progress
from llmdeploy.edge import Http
from llmdeploy.errors import Refused, Unreachable
from llmdeploy.release.group_evidence import Heard, broken, engine_lines, hear
from llmdeploy.release.group_silence import Quiet, stacks
from llmdeploy.release.groups import Rank, by_replica
from llmdeploy.release.site import Orders, Site
from llmdeploy.release.together import together
from llmdeploy.units import show_seconds

POLL_S = 1.0
"""Between two looks at all ranks. Source: own choice: each takes some ms of a host's processor."""
ANSWER_POLL_S, ANSWER_TIMEOUT_S = 0.2, 1.0
"""Between two questions to the heads' ports meanwhile, and for one. Source: own choice: they cost
next to nothing, and what answers is not waited for."""
SILENT_LOOKS = 10
"""So many looks in a row without an answer and the host is taken for lost.

Source: own choice: 10 s, as the ranks themselves wait (onhost/group.py)."""
TELL_S = 1.0
"""For the other ranks to log why theirs ended. Source: own choice."""


class Watch:
    """Looks at all ranks of a launch."""

    def __init__(self, ranks: tuple[Rank, ...], orders: Orders, site: Site) -> None:
        self._groups = by_replica(ranks)
        self._orders, self._site = orders, site
        self._silent: dict[str, int] = {}
        self._quiet = Quiet(site.clock)

    @property
    def heads(self) -> tuple[Rank, ...]:
        return tuple(group[0] for group in self._groups)

    def wait(self, phase: str, *, timeout_s: float, silence_s: float) -> tuple[Progress, ...]:
        """What each head's log tells once all have come to `phase`.

        Refused with the first cause over all ranks once one ended, past `timeout_s`, or once a
        rank of a group that is not there has logged nothing for `silence_s`.
        """
        clock = self._site.clock
        deadline_s = clock.monotonic_s() + timeout_s
        while True:
            heard = self.look()
            told = tuple(_progress(group[0]) for group in heard)
            if all(one is not None and at_least(one, phase) for one in told):
                return tuple(one for one in told if one is not None)
            for group, one in zip(heard, told, strict=True):
                if one is None or not at_least(one, phase):
                    self._check_quiet(phase, group, silence_s)
            if clock.monotonic_s() > deadline_s:
                raise self._late(phase, heard, told, timeout_s)
            self._pause()

    def wait_answers(self, *, timeout_s: float) -> None:
        """Returns once every head lists its model; Refused as `wait`."""
        clock = self._site.clock
        deadline_s = clock.monotonic_s() + timeout_s
        while not all(answers(rank, http=self._site.http) for rank in self.heads):
            heard = self.look()
            if clock.monotonic_s() > deadline_s:
                told = tuple(_progress(group[0]) for group in heard)
                raise self._late("ready", heard, told, timeout_s)
            self._pause()

    def _pause(self) -> None:
        """Until the next look, or until every head answers."""
        clock = self._site.clock
        until_s = clock.monotonic_s() + POLL_S
        while clock.monotonic_s() < until_s:
            clock.sleep(ANSWER_POLL_S)
            http = self._site.http
            if all(answers(rank, http=http, timeout_s=ANSWER_TIMEOUT_S) for rank in self.heads):
                return

    def look(self) -> list[tuple[Heard, ...]]:
        """All groups' ranks; Refused once one ended."""
        heard = [together(self._hear, group) for group in self._groups]
        for group in heard:
            if any(one.ended for one in group):
                raise self._broken(group)
            for one in group:
                self._note_silence(one)
                self._quiet.note(one)
        return heard

    def _hear(self, rank: Rank) -> Heard:
        head = rank.member.position == 0
        return hear(rank, with_log=head, known_bytes=self._quiet.log_bytes(rank))

    def _check_quiet(self, phase: str, group: tuple[Heard, ...], silence_s: float) -> None:
        one, quiet_s = self._quiet.longest(group)
        if quiet_s <= silence_s:
            return
        raise Refused(
            f"{one.rank.place}: its engine logged nothing for {show_seconds(quiet_s)} on the way "
            f"to {phase}; {self._last_words(one)}",
            fix="read the stacks and the logs of all ranks: llmdeploy logs NAME --release ID",
        )

    def _last_words(self, one: Heard) -> str:
        """The rank's last line, and the stacks of its group's threads, taken now."""
        group = next(ranks for ranks in self._groups if one.rank in ranks)
        log = one.log if one.log is not None else hear(one.rank, with_log=True).log
        lines = engine_lines(log or "").splitlines() or ["none"]
        return (
            f"last log line: {lines[-1][:300]} (log: {one.rank.station.name}:{one.rank.log_path}); "
            f"{stacks(one.rank, group)}"
        )

    def _late(
        self,
        phase: str,
        heard: list[tuple[Heard, ...]],
        told: tuple[Progress | None, ...],
        timeout_s: float,
    ) -> Refused:
        """Names the rank that has been quiet longest, of the first group that is not there."""
        behind = (i for i, one in enumerate(told) if one is None or not at_least(one, phase))
        slow = next(behind, 0)
        seen, (one, _) = told[slow], self._quiet.longest(heard[slow])
        found = seen.phase if seen is not None and seen.phase else "no sign of its group"
        return Refused(
            f"{one.rank.place}: found {found} after {show_seconds(timeout_s)}, needed {phase}; "
            f"{self._last_words(one)}",
            fix="read the stacks and the logs of all ranks: llmdeploy logs NAME --release ID",
        )

    def _note_silence(self, one: Heard) -> None:
        name = one.rank.station.name
        self._silent[name] = self._silent.get(name, 0) + 1 if one.silent else 0
        if self._silent[name] >= SILENT_LOOKS:
            raise Refused(
                f"{one.rank.place}: {one.silent}",
                fix=f"see whether {name} is up and reachable: llmdeploy preflight",
            )

    def _broken(self, group: tuple[Heard, ...]) -> Refused:
        """The cause, from one more look at all logs: what ended first has told why by now."""
        self._site.clock.sleep(TELL_S)
        again = tuple(hear(one.rank, with_log=True) for one in group)
        found = broken(again, self._orders)
        assert found is not None, "an end stays among a rank's events"
        return found


def answers(rank: Rank, *, http: Http, timeout_s: float = 5.0) -> bool:
    """Whether the head lists the model that it serves."""
    url = f"http://{rank.member.address}:{rank.ports.http}/v1/models"
    try:
        answer = http.request("GET", url, timeout_s=timeout_s)
        return answer.status == 200 and rank.replica.serve.served_name in answer.body.decode()
    except Unreachable:
        return False


def _progress(heard: Heard) -> Progress | None:
    if heard.log is None:
        return None
    return progress(heard.rank.replica.serve.engine, engine_lines(heard.log))

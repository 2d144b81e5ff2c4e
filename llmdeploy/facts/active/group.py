"""The all-reduce: a group over all hosts, and one over the cards of each, under watchdogs."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from llmdeploy.edge import Clock
from llmdeploy.facts.active.measured import AllReduce, RankState, Sample, Untested
from llmdeploy.facts.active.send import Answer, Seat, ask, command, end, text
from llmdeploy.facts.active.tasks import Report, counted, side_by_side
from llmdeploy.facts.bundle import HostFacts

CROSS, WITHIN = "net.allreduce.cross", "fab.allreduce.intra"
CPU_SIZES_BYTES = tuple(4**power for power in range(5, 13))
"""1 KiB to 16 MiB."""
CARD_SIZES_BYTES = tuple(4**power for power in range(5, 15))
"""1 KiB to 256 MiB."""
FREE_RATIO = 0.9
"""Of a card's memory: below it something runs there that must not be disturbed.

Source: own choice, as `MOST_TAKEN_RATIO` of program_compute.py."""
OWN_WORDS_S = 5.0
"""What the others get to say themselves what they saw, once a host failed: then they are ended.

Source: own choice: a peer's closed connection is an error at once, a meeting lasts `meet_s`."""
KILLED = ("was killed there by a signal", "signal 15 ended it")
"""How shells tell of a program that was ended."""
TOLD_TO_END = "it was told to end, as another host had failed"
Backend = Literal["gloo", "nccl"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """What one host brings to a group."""

    seat: Seat
    local: int
    env: tuple[tuple[str, str], ...] = ()
    """Such as which of its cards take part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long a group's parts may take, in seconds."""

    meet_s: float = 120.0
    """For torch to be imported on the slowest host, which all others wait for. Source: 5 s where it
    is in the page cache, 60 s from a network disk."""
    step_s: float = 30.0
    """For one collective, and for the group to form: a host behind that is given up."""
    size_s: float = 0.5
    """For the repetitions of one size."""

    def whole_s(self, sizes: int) -> float:
        """Longest that any process lives: the slow sizes of a healthy group fit in."""
        return self.meet_s + 2 * self.step_s + sizes * 8 * self.size_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One group to try."""

    test: str
    backend: Backend
    device: str
    """torch's word: `cpu`, `cuda`."""
    name: str
    """What the devices call themselves."""
    members: tuple[Ranks, ...]
    port: int
    sizes_bytes: tuple[int, ...]
    limits: Limits = Limits()

    @property
    def ranks(self) -> int:
        return sum(member.local for member in self.members)


def plans(
    seats: Sequence[Seat], facts: Mapping[str, HostFacts], *, ports: Mapping[str, int]
) -> tuple[tuple[Plan, ...], tuple[Untested, ...]]:
    """Groups that can be tried, and why a host is in none. `ports` are by host one that all of its
    peers reach, for the host that the group meets at."""
    untested: list[Untested] = []
    able = []
    for seat in seats:
        reason = _unable(facts[seat.host], seat)
        if reason is None:
            able.append(seat)
        elif len(seats) > 1:
            untested.append(Untested(test=CROSS, host=seat.host, reason=reason))
    made = [plan for seat in able if (plan := _within(seat, facts[seat.host], ports))]
    for seat in seats:
        untested += _without_cards(facts[seat.host])
    if len(able) < 2:
        reason = "no other host can take part"
        lonely = able if len(seats) > 1 else []
        untested += [Untested(test=CROSS, host=seat.host, reason=reason) for seat in lonely]
        return tuple(made), tuple(untested)
    meeting = next((seat for seat in able if seat.host in ports), None)
    if meeting is None:
        reason = "no port of the plan is open from all hosts to any of them"
        untested += [Untested(test=CROSS, host=seat.host, reason=reason) for seat in able]
        return tuple(made), tuple(untested)
    first = [meeting, *(seat for seat in able if seat is not meeting)]
    return (*made, _cross(first, facts, ports[meeting.host])), tuple(untested)


def _unable(facts: HostFacts, seat: Seat) -> str | None:
    """Why the host cannot be in a group; None where it can."""
    if facts.python_version is None:
        return f"no Python answers: {facts.python_error or facts.problem('python_version')}"
    there = next((p.version for p in facts.packages or () if p.name == "torch"), None)
    if there is None:
        return f"torch is not installed for {seat.python}"
    if seat.address is None:
        return "no address of it is known that its peers share"
    return None


def _cards(facts: HostFacts) -> int:
    """Accelerators that torch has on the host, by the probe's word; none where one is in use."""
    return 0 if _in_use(facts) else facts.torch_cuda_devices or 0


def _in_use(facts: HostFacts) -> bool:
    return any(
        card.memory_free_bytes is not None
        and card.memory_total_bytes is not None
        and card.memory_free_bytes < FREE_RATIO * card.memory_total_bytes
        for card in facts.accelerators or ()
    )


def _without_cards(facts: HostFacts) -> list[Untested]:
    there = len(facts.accelerators or ())
    if there < 2 or _cards(facts) >= there:
        return []
    reason = f"torch sees {_cards(facts)} of the {there} cards that the driver shows"
    if _in_use(facts):
        reason = "memory of its cards is taken: what runs there must not be disturbed"
    return [Untested(test=WITHIN, host=facts.host, reason=reason)]


def _within(seat: Seat, facts: HostFacts, ports: Mapping[str, int]) -> Plan | None:
    cards = _cards(facts)
    if cards < 2 or seat.host not in ports:
        return None
    name = facts.accelerators[0].name if facts.accelerators else "cuda"
    return Plan(test=WITHIN, backend="nccl", device="cuda", name=name, port=ports[seat.host],
                members=(Ranks(seat=seat, local=cards),), sizes_bytes=CARD_SIZES_BYTES)  # fmt: skip


def _cross(seats: Sequence[Seat], facts: Mapping[str, HostFacts], port: int) -> Plan:
    """On the cards where torch has as many on every host, on the processors otherwise."""
    counts = {_cards(facts[seat.host]) for seat in seats}
    on_cards = counts != {0} and len(counts) == 1
    local = counts.pop() if on_cards else 1
    first = facts[seats[0].host].accelerators
    return Plan(
        test=CROSS,
        backend="nccl" if on_cards else "gloo",
        device="cuda" if on_cards else "cpu",
        name=first[0].name if on_cards and first else "cpu",
        members=tuple(Ranks(seat=seat, local=local) for seat in seats),
        port=port,
        sizes_bytes=CARD_SIZES_BYTES if on_cards else CPU_SIZES_BYTES,
    )


def all_reduce(plan: Plan, *, source: str | None = None, report: Report, clock: Clock) -> AllReduce:
    """How far every host of the group came, and the curve where all came to the end.

    `source` is the program's text where it is another than the product's own.
    """
    program = source or text("collective")
    hosts = [member.seat.host for member in plan.members]
    report(f"{counted(hosts)}: all-reduce of {plan.ranks} ranks over {plan.backend}")
    firsts = [sum(m.local for m in plan.members[:at]) for at in range(len(plan.members))]
    limit_s = plan.limits.whole_s(len(plan.sizes_bytes))
    begun = list(zip(plan.members, firsts, strict=True))

    failed, done, ended = threading.Lock(), set[int](), set[int]()

    def one(start: tuple[Ranks, int]) -> Answer:
        request = _request(plan, *start)
        said = ask(start[0].seat, "collective", request, limit_s=limit_s, source=program)
        done.add(start[1])
        if said.problem is not None and start[1] in ended and said.problem.endswith(KILLED):
            return replace(said, problem=TOLD_TO_END)
        if said.problem is not None and failed.acquire(blocking=False):
            clock.sleep(OWN_WORDS_S)
            waiting = [other for other in begun if other[1] not in done]
            ended.update(first for _, first in waiting)
            side_by_side(lambda o: end(o[0].seat, _request(plan, *o), limit_s=limit_s), waiting)
        return said

    answers = side_by_side(one, begun, at_once=None)
    states = tuple(
        _state(member.seat, said) for member, said in zip(plan.members, answers, strict=True)
    )
    whole = all(state.error is None for state in states)
    sizes = answers[0].of("size") if whole else []
    return AllReduce(
        hosts=tuple(hosts),
        backend=plan.backend,
        device=plan.name,
        ranks=plan.ranks,
        samples=tuple(
            Sample(size_bytes=line["size_bytes"], duration_s=line["duration_s"]) for line in sizes
        ),
        states=states,
        at_s=clock.now_s(),
    )


def commands(plan: Plan) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """By host, in the group's order, the command whose stdin is the program."""
    limit_s, first, found = plan.limits.whole_s(len(plan.sizes_bytes)), 0, []
    for member in plan.members:
        request = {**_request(plan, member, first), "limit_s": limit_s}
        found.append((member.seat.host, command(member.seat.python, request, any_python=False)))
        first += member.local
    return tuple(found)


def _request(plan: Plan, member: Ranks, rank_first: int) -> dict[str, Any]:
    single = len(plan.members) == 1
    return {
        "rank_first": rank_first,
        "ranks": plan.ranks,
        "local": member.local,
        "device": plan.device,
        "backend": plan.backend,
        "master": plan.members[0].seat.address or "127.0.0.1",
        "port": plan.port,
        "interface": None if single else member.seat.interface,
        "env": dict(member.env),
        "sizes_bytes": plan.sizes_bytes,
        "meet_s": plan.limits.meet_s,
        "step_s": plan.limits.step_s,
        "size_s": plan.limits.size_s,
    }


def _state(seat: Seat, said: Answer) -> RankState:
    """The last thing that was begun and not ended is where it was."""
    entered, left = said.of("enter"), said.of("leave")
    done = bool(said.of("done")) and said.problem is None
    stage = "done" if done else _last(entered, left)
    return RankState(
        host=seat.host,
        steps=len(entered) + len(left) + done,
        stage=stage,
        error=None if done else said.why or "it ended without an answer",
        wrong=sum(line["wrong"] for line in said.of("size")),
        address=seat.address,
    )


def _last(entered: Sequence[Mapping[str, Any]], left: Sequence[Mapping[str, Any]]) -> str:
    if not entered:
        return "starting"
    word = "" if len(entered) > len(left) else "after "
    return f"{word}{entered[-1]['stage']}"

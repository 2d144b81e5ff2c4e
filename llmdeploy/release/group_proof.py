"""Before any engine starts: each group's hosts sum over the interfaces and cards they will use.

The program is preflight's active test, run by the engine's own Python and torch, on the port where
the engine's ranks will meet. It ends by its watchdog, or when nobody reads its answer any more.
"""

import shlex
from collections.abc import Callable, Mapping

from llmdeploy.backends.group import VISIBLE
from llmdeploy.edge import Clock
from llmdeploy.errors import Refused
from llmdeploy.facts.active import group
from llmdeploy.facts.active.judge import all_reduce_findings
from llmdeploy.facts.active.measured import AllReduce
from llmdeploy.facts.active.say import ALL
from llmdeploy.facts.active.send import Seat
from llmdeploy.facts.finding import Finding, Status
from llmdeploy.release.groups import Rank, by_replica
from llmdeploy.release.host_environment import Environment
from llmdeploy.release.together import together
from llmdeploy.units import show_bytes, show_seconds

SIZES_BYTES = (2**10, 2**20)
"""A message of a decode step and one of a prefill; preflight has the whole curve.

Source: own choice."""
LIMITS = group.Limits(size_s=0.05)
"""As in preflight, with fewer repetitions: here it must work, not be measured."""
ON_CARDS = ("cuda", "rocm")
"""Devices whose torch sums over NCCL (RCCL). The hosts of others sum on their processors: that
proves hosts, interfaces and ports, not the cards."""


def prove(
    ranks: tuple[Rank, ...],
    there: Mapping[str, Environment],
    *,
    report: Callable[[str], None],
    clock: Clock,
) -> dict[str, str]:
    """By replica in words what summed, or why nothing was asked to.

    Refused naming host and interface where a group did not come to the known sum in time.
    """
    parts = _parts(ranks)

    def one(part: tuple[Rank, ...]) -> str:
        reason = skipped(part, there)
        if reason is not None:
            report(f"{part[0].replica.name}: no all-reduce between its hosts: {reason}")
            return f"no all-reduce: {reason}"
        found = group.all_reduce(_plan(part, there), report=report, clock=clock)
        for finding in all_reduce_findings(found):
            if finding.status == Status.FAIL:
                raise _refused(part, there, finding, found=found)
        return _words(found)

    words = together(one, parts)
    return {part[0].replica.name: told for part, told in zip(parts, words, strict=True)}


def preview(ranks: tuple[Rank, ...], there: Mapping[str, Environment]) -> list[str]:
    """The same as lines for people; changes nothing."""
    lines = []
    for part in _parts(ranks):
        name, reason = part[0].replica.name, skipped(part, there)
        if reason is not None:
            lines.append(f"# {name}: no all-reduce between its hosts: {reason}")
            continue
        plan = _plan(part, there)
        limit = show_seconds(plan.limits.whole_s(len(plan.sizes_bytes)))
        lines.append(
            f"# {name}: all-reduce of {plan.ranks} ranks over {plan.backend}, at most {limit}, "
            "with preflight's program on stdin:"
        )
        lines += [f"{host}: {shlex.join(argv)}" for host, argv in group.commands(plan)]
    return lines


def skipped(part: tuple[Rank, ...], there: Mapping[str, Environment]) -> str | None:
    """Why a group's ranks are not asked to sum; None where they are."""
    without = [rank for rank in part if there[rank.station.name].torch is None]
    if without:
        named = ", ".join(f"{one.station.python} of {one.station.name}" for one in without)
        return f"no torch in {named}"
    return None


def _parts(ranks: tuple[Rank, ...]) -> tuple[tuple[Rank, ...], ...]:
    """The ranks of each replica that has more than one to sum."""
    return tuple(part for part in by_replica(ranks) if len(part) > 1 or _local(part[0]) > 1)


def _plan(part: tuple[Rank, ...], there: Mapping[str, Environment]) -> group.Plan:
    on_cards = part[0].replica.serve.device in ON_CARDS
    return group.Plan(
        test=group.CROSS if len(part) > 1 else group.WITHIN,
        backend="nccl" if on_cards else "gloo",
        device="cuda" if on_cards else "cpu",
        name="cards" if on_cards else "cpu",
        members=tuple(_member(rank, there[rank.station.name]) for rank in part),
        port=part[0].ports.rendezvous,
        sizes_bytes=SIZES_BYTES,
        limits=LIMITS,
    )


def _member(rank: Rank, there: Environment) -> group.Ranks:
    serve = rank.replica.serve
    env: tuple[tuple[str, str], ...] = ()
    if serve.device in ON_CARDS and serve.group is not None:
        cards = ",".join(str(number) for number in rank.member.device_ids)
        env = ((VISIBLE[serve.group.vendor], cards),)
    seat = Seat(
        host=rank.station.name,
        python=rank.station.python,
        shell=rank.station.shell,
        address=rank.member.address,
        interface=there.interface,
    )
    return group.Ranks(seat=seat, local=_local(rank), env=env)


def _local(rank: Rank) -> int:
    return len(rank.member.device_ids) if rank.replica.serve.device in ON_CARDS else 1


def _refused(
    part: tuple[Rank, ...],
    there: Mapping[str, Environment],
    finding: Finding,
    *,
    found: AllReduce,
) -> Refused:
    """Where no host is behind the others, each one's own words: one of them has the cause."""
    guilty = [rank for rank in part if finding.subject in (rank.station.name, ALL)]
    places = ", ".join(
        f"{rank.station.name} ({there[rank.station.name].interface or 'any interface'} "
        f"{rank.member.address})"
        for rank in guilty
    )
    words = finding.found
    if finding.subject == ALL:
        told = [f"{one.host} {one.stage}: {one.error}" for one in found.states if one.error]
        words = "; ".join(told) or words
    return Refused(
        f"{part[0].replica.name}: all-reduce between its hosts: {places}: {words}; needed "
        f"{finding.needed}",
        fix=finding.fix,
    )


def _words(found: AllReduce) -> str:
    last = found.samples[-1]
    return (
        f"{found.ranks} ranks summed {show_bytes(last.size_bytes)} over {found.backend} in "
        f"{show_seconds(last.duration_s)}"
    )

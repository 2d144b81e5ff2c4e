"""Which host bad pairs have in common: the one that others cannot reach, or that reaches none."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

Pair = tuple[str, str]
"""Source and target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """A host, or both of a pair where nothing tells which, with the bad pairs that it explains."""

    hosts: tuple[str, ...]
    way: Literal["into", "out of", "both ways"]
    pairs: tuple[Pair, ...]

    @property
    def subject(self) -> str:
        return ", ".join(self.hosts)

    @property
    def peers(self) -> tuple[str, ...]:
        """The other ends of its pairs, each once."""
        ends = [host for pair in self.pairs for host in pair if host not in self.hosts]
        return tuple(dict.fromkeys(ends)) or self.hosts


def blame(bad: Collection[Pair], tried: Collection[Pair]) -> tuple[Blame, ...]:
    """Hosts all of whose tried pairs of one way, or of both, are bad, the most telling first; bad
    pairs that no such host explains are the target's."""
    left = dict.fromkeys(pair for pair in tried if pair in set(bad))
    found = []
    while left:
        wholes = list(_wholes(set(left), set(bad), tried))
        if not wholes:
            source, target = next(iter(left))
            wholes = [Blame(hosts=(target,), way="into", pairs=((source, target),))]
        most = max(len(whole.pairs) for whole in wholes)
        best = [whole for whole in wholes if len(whole.pairs) == most]
        first = best[0]
        also = [w.hosts[0] for w in best if w.hosts != first.hosts and w.pairs == first.pairs]
        if also and first.way == "both ways":
            first = Blame(hosts=(*first.hosts, *also), way=first.way, pairs=first.pairs)
        found.append(first)
        for pair in first.pairs:
            del left[pair]
    return tuple(found)


def _wholes(left: set[Pair], bad: set[Pair], tried: Collection[Pair]) -> Iterator[Blame]:
    hosts = dict.fromkeys(host for pair in tried for host in pair)
    into = {host: [pair for pair in tried if pair[1] == host] for host in hosts}
    out = {host: [pair for pair in tried if pair[0] == host] for host in hosts}
    for host in hosts:
        if into[host] and out[host] and bad.issuperset([*into[host], *out[host]]):
            yield from _one(host, "both ways", [*into[host], *out[host]], left=left)
    for host in hosts:
        if into[host] and bad.issuperset(into[host]):
            yield from _one(host, "into", into[host], left=left)
    for host in hosts:
        if out[host] and bad.issuperset(out[host]):
            yield from _one(host, "out of", out[host], left=left)


def _one(
    host: str, way: Literal["into", "out of", "both ways"], pairs: list[Pair], *, left: set[Pair]
) -> Iterator[Blame]:
    mine = tuple(sorted(pair for pair in pairs if pair in left))
    if mine:
        yield Blame(hosts=(host,), way=way, pairs=mine)

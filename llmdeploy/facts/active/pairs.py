"""Which pairs of hosts are measured, in rounds in which every host has one partner at most."""

import random
from collections.abc import Sequence

ALL_PAIRS = 8
"""Hosts up to which every pair is measured. Source: check catalogue `net.allreduce.cross`."""


Pair = tuple[str, str]


def rounds(hosts: Sequence[str]) -> tuple[tuple[Pair, ...], ...]:
    """Rounds of disjoint pairs: all pairs of few hosts; a ring and seeded others of many."""
    if len(hosts) <= ALL_PAIRS:
        return _tournament(hosts)
    shuffled = list(hosts)
    random.Random(len(hosts)).shuffle(shuffled)
    wanted = _ring(hosts) + _ring(shuffled)
    return _packed(list(dict.fromkeys(frozenset(pair) for pair in wanted)), hosts)


def _tournament(hosts: Sequence[str]) -> tuple[tuple[Pair, ...], ...]:
    """The circle method: one stays, the others turn."""
    seats: list[str | None] = [*hosts, *([None] if len(hosts) % 2 else [])]
    made = []
    for _ in range(len(seats) - 1):
        half = len(seats) // 2
        facing = zip(seats[:half], reversed(seats[half:]), strict=True)
        made.append(tuple((a, b) for a, b in facing if a is not None and b is not None))
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return tuple(made)


def _ring(hosts: Sequence[str]) -> list[Pair]:
    return [(host, hosts[(at + 1) % len(hosts)]) for at, host in enumerate(hosts)]


def _packed(pairs: list[frozenset[str]], hosts: Sequence[str]) -> tuple[tuple[Pair, ...], ...]:
    """Each pair in the first round in which both hosts are free."""
    order = {host: at for at, host in enumerate(hosts)}
    made: list[list[Pair]] = []
    busy: list[set[str]] = []
    for pair in pairs:
        first, second = sorted(pair, key=order.__getitem__)
        free = next((at for at, hosts_in in enumerate(busy) if not hosts_in & pair), None)
        if free is None:
            made.append([])
            busy.append(set())
            free = len(made) - 1
        made[free].append((first, second))
        busy[free] |= pair
    return tuple(map(tuple, made))

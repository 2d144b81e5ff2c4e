"""The least hardware more that would let a cluster carry a service, tried out."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from llmdeploy.catalog import links
from llmdeploy.plan.pool import Pool
from llmdeploy.plan.proposal import MOST_STAGES
from llmdeploy.plan.rank import Option, best
from llmdeploy.plan.refusal import changed
from llmdeploy.plan.search import Found
from llmdeploy.service import Service
from llmdeploy.units import show_seconds

MOST_HOSTS = 4096
"""Added at most. Source: own choice."""
FINE = 8
"""Answers are exact to one part in so many. Source: own choice."""
LARGER_HOSTS = (2, 4, 8)
"""Devices of hosts that are sold. Source: HGX, OAM, Atlas and 4U server boards."""
TRIED_NETWORK = "ethernet-25g"
"""Between hosts where the inventory names none. Source: own choice: the slowest that new servers
come with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """Tries a service on pools: the best way to carry it, None where there is none."""

    look: Callable[[Service, Sequence[Pool]], Found]

    def __call__(self, service: Service, pools: Sequence[Pool]) -> Option | None:
        found = self.look(service, pools)
        return best(found.options) if found.options else None


def more_hardware(service: Service, pools: Sequence[Pool], tried: Try) -> Iterator[str]:
    """A host with more of the largest devices, and the fewest more hosts like the largest."""
    pool = max(pools, key=lambda pool: pool.most_per_host * pool.usable_bytes)
    fixes = [
        *_larger_host(service, pools, pool, tried),
        *_more_hosts(service, pools, pool, tried),
    ]
    yield from fixes or _larger_hosts(service, pools, pool, tried)


def _larger_host(service: Service, pools: Sequence[Pool], pool: Pool, tried: Try) -> Iterator[str]:
    """The fewest devices a host that would do, on as many hosts."""
    if pool.between is not None or pool.rack_host_devices is not None:
        return
    largest = max(pool.hosts, key=lambda host: host.devices)
    for count in LARGER_HOSTS:
        if count <= largest.devices:
            continue
        grown = replace(
            pool, hosts=tuple(replace(host, devices=count, domains=()) for host in pool.hosts)
        )
        option = tried(service, [grown if other is pool else other for other in pools])
        if option is not None:
            where = "one host" if len(pool.hosts) == 1 else f"each of {len(pool.hosts)} hosts"
            yield from said(f"put {count} x {pool.name} into {where}", option)
            return


def _larger_hosts(service: Service, pools: Sequence[Pool], pool: Pool, tried: Try) -> Iterator[str]:
    """The fewest hosts with as many devices as are sold in one."""
    most = max(LARGER_HOSTS[-1], pool.most_per_host)
    network = pool.network or links.find(TRIED_NETWORK)
    for count in (2, 3, 4, 6, 8):
        hosts = tuple(
            replace(pool.hosts[0], name=f"new-{n + 1}", devices=most, domains=(), members=())
            for n in range(count)
        )
        grown = replace(pool, hosts=hosts, between=None, network=network)
        option = tried(service, [grown if other is pool else other for other in pools])
        if option is not None:
            yield from said(f"use {count} hosts with {most} x {pool.name} on {network.id}", option)
            return


def _more_hosts(service: Service, pools: Sequence[Pool], pool: Pool, tried: Try) -> Iterator[str]:
    largest = max(pool.hosts, key=lambda host: host.devices)
    network = pool.network or links.find(TRIED_NETWORK)

    def grown_by(count: int) -> list[Pool]:
        added = tuple(replace(largest, name=f"new-{n + 1}") for n in range(count))
        grown = replace(pool, hosts=(*pool.hosts, *added), network=network)
        return [grown if other is pool else other for other in pools]

    def with_more(count: int) -> Option | None:
        return tried(service, grown_by(count))

    single = changed(service, "workload", requests_per_day=1)
    if tried(single, grown_by(MOST_STAGES)) is None:
        return  # further hosts carry more requests, but none faster, and hold no larger replica
    low, count = 0, MOST_HOSTS
    option = with_more(count)
    if option is None:
        return
    while count - low > max(1, low // FINE):
        middle = (low + count) // 2 if low else max(1, math.isqrt(count))
        fewer = with_more(middle)
        low, count, option = (middle, count, option) if fewer is None else (low, middle, fewer)
    if option is not None:
        hosts = "1 host" if count == 1 else f"{count} hosts"
        joined = option.hosts_per_replica > 1 and pool.network is None
        over = f", joined by a network that cluster.yaml names ({network.id} tried)"
        words = f"add {hosts} with {largest.devices} x {pool.name}{over if joined else ''}"
        yield from said(words, option)


def said(words: str, option: Option | None) -> Iterator[str]:
    """The change with what it gives; nothing where it does not do."""
    if option is not None:
        ttft, tpot = show_seconds(option.ttft_p95_s), show_seconds(option.tpot_p95_s)
        yield f"{words}: {option.name}, p95 TTFT {ttft}, p95 TPOT {tpot}"

"""What a plan puts on each host, as preflight's checks ask it."""

from collections.abc import Mapping
from dataclasses import replace

from llmdeploy.facts.bundle import Bundle
from llmdeploy.facts.check import Planned
from llmdeploy.plan.cluster import PlannedPart
from llmdeploy.plan.document import Plan, Replica
from llmdeploy.release.groups import replica_ports
from llmdeploy.release.ports import block, engine_port


def planned_on(plan: Plan, bundle: Bundle | None = None) -> Mapping[str, Planned]:
    """By the host's name: engine, layout, what each of its cards, its memory and its disk must
    have free, and its ports.

    Launch takes the lowest block of ports that is free on its hosts: so the ports are known as far
    as the hosts' facts are given.
    """
    found: dict[str, Planned] = {}
    for replica in plan.replicas:
        for host, cards in _places(replica):
            before = found.get(host, Planned(host_memory_bytes=0))
            held = _host_bytes(plan, replica)
            together = before.host_memory_bytes
            found[host] = Planned(
                engine=replica.serve.engine,
                tensor_parallel=replica.serve.tensor_parallel,
                cards=cards + before.cards,
                card_memory_bytes=_card_bytes(plan, replica),
                host_memory_bytes=None if held is None or together is None else together + held,
                weights=_weights(plan, replica),
                attention_heads=plan.model.shape.attention_heads,
                kv_heads=plan.model.shape.kv_heads,
                disk_bytes=plan.model.weights_bytes if replica.members is not None else None,
            )
    if bundle is None:
        return found
    taken = _ports(plan, bundle)
    return {host: replace(one, ports=taken.get(host, ())) for host, one in found.items()}


def _places(replica: Replica) -> list[tuple[str, int]]:
    if replica.members is None:
        on_cards = replica.serve.device != "cpu"
        return [(replica.host, replica.serve.tensor_parallel if on_cards else 0)]
    return [(member.host, len(member.device_ids)) for member in replica.members]


def _card_bytes(plan: Plan, replica: Replica) -> int | None:
    if plan.cluster is None or replica.part is None:
        return None
    part: PlannedPart = plan.cluster.parts[replica.part]
    held = (part.weights_bytes, part.activation_bytes, part.graph_bytes, part.other_bytes)
    return sum(held) + part.kv_cache_bytes


def _weights(plan: Plan, replica: Replica) -> str:
    """The format that the cards compute with: the part's, else what the engine converts to."""
    if plan.cluster is None or replica.part is None:
        return replica.serve.quantization
    return plan.cluster.parts[replica.part].weights


def _host_bytes(plan: Plan, replica: Replica) -> int | None:
    """Of the host's own memory that the replica takes there; None where the plan does not say."""
    if plan.cluster is not None and replica.part is not None:
        return plan.cluster.parts[replica.part].host_memory_bytes
    if replica.serve.device != "cpu":
        return None
    needed = next((f.value for f in plan.figures if f.name == "memory_needed"), None)
    return None if needed is None else round(needed)


def _ports(plan: Plan, bundle: Bundle) -> dict[str, tuple[int, ...]]:
    """By host, of the lowest block on which nothing but this service's releases listens there."""
    heads = {replica.host for replica in plan.replicas}
    listening = {
        listener.port
        for facts in bundle.hosts if facts.host in heads
        for listener in facts.listeners or () if not listener.ours
    }  # fmt: skip
    blocks = range(plan.ports.blocks)
    free = (n for n in blocks if listening.isdisjoint(block(n, plan.ports)))
    number = next(free, 0)
    found: dict[str, list[int]] = {}
    grouped = replica_ports(plan, number) if plan.cluster is not None else {}
    for position, replica in enumerate(plan.replicas):
        group = grouped.get(replica.name)
        own = (
            [group.http, group.rendezvous, group.group]
            if group is not None
            else [engine_port(number, position, plan.ports)]
        )
        found.setdefault(replica.host, []).extend(own)
    return {host: tuple(numbers) for host, numbers in found.items()}

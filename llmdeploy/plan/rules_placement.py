"""Where a layout may lie: link domains, hosts, and no more of them than its weights need."""

from llmdeploy.model import ModelShape, weights_bytes
from llmdeploy.plan.proposal import Proposal
from llmdeploy.units import show_bytes

ROOMY_RATIO = 0.5
"""Share of a device that weights may take for a host to be enough by itself. Source: own choice:
as much again is left for the cache, activations and what stays free."""


def link_domain(proposal: Proposal, shape: ModelShape) -> str | None:
    """Why the tensor group is too wide for its links, in words; None where it is not."""
    tp, most = proposal.tensor_parallel, proposal.pool.most_per_host
    if tp <= most:
        return _leaves_domain(proposal, shape)
    network = proposal.pool.network
    return (
        f"tp {tp} crosses hosts: two all-reduces a layer over"
        f" {network.id if network else 'no known network'}; a host has {most} devices on"
        f" {proposal.pool.link.id}"
    )


def _leaves_domain(proposal: Proposal, shape: ModelShape) -> str | None:
    """A tensor group over several link domains of a host sums over the slower link between them:
    only for what no domain holds."""
    pool, within = proposal.pool, proposal.pool.domain_devices
    if pool.between is None or proposal.tensor_parallel <= within or shape.parameters is None:
        return None
    weights = _weights_bytes(proposal, shape, ranks=within, stages=proposal.pipeline_parallel)
    if weights > ROOMY_RATIO * pool.usable_bytes:
        return None
    return (
        f"tp {proposal.tensor_parallel} leaves its link domain of {within} devices on"
        f" {pool.link.id} and sums over {pool.between.id}; within one, weights take"
        f" {show_bytes(weights)} of each {show_bytes(pool.usable_bytes)}"
    )


def _weights_bytes(proposal: Proposal, shape: ModelShape, *, ranks: int, stages: int) -> int:
    return weights_bytes(
        shape,
        proposal.weights.format,
        dtype=proposal.dtype,
        tp=ranks,
        pp=stages,
        ep=proposal.expert_parallel,
    )


def host_room(proposal: Proposal, shape: ModelShape) -> str | None:
    """Why no replica finds its devices on these hosts, in words; None where one does."""
    if proposal.replicas_that_fit > 0:
        return None
    each, hosts, pool = proposal.devices_per_host, proposal.hosts, proposal.pool
    there = ", ".join(
        f"{number} x {count}" for count, number in sorted(pool.per_host.items(), reverse=True)
    )
    if hosts > 1 and pool.network is None:
        return f"needs {hosts} hosts, and the inventory names no network between hosts"
    return (
        f"needs {hosts} host(s) with {each} {pool.name} each, there are (hosts x devices): {there}"
    )


def one_host(proposal: Proposal, shape: ModelShape) -> str | None:
    """Stages over hosts make every token wait for the network: only for what no host holds."""
    if proposal.hosts == 1 or shape.parameters is None:
        return None
    each = proposal.devices_per_host
    weights = _weights_bytes(
        proposal, shape, ranks=proposal.tensor_parallel, stages=proposal.stages_per_host
    )
    usable = proposal.pool.usable_bytes
    if weights > ROOMY_RATIO * usable:
        return None
    return (
        f"one host is enough: weights take {show_bytes(weights)} of each {show_bytes(usable)} on"
        f" {each} devices"
    )

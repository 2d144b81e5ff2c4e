"""Over how many devices each part of a model is spread in one launch."""

from dataclasses import dataclass

from llmdeploy.estimate.case import Case

HOST_DEVICES = 8
"""Devices that one host holds where the case does not say. Source: HGX, OAM and Atlas boards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Devices that share one copy of each part. Counts are of devices."""

    replicas: int
    """Independent copies of the whole."""
    attention: int
    """That split the heads of one attention worker."""
    attention_workers: int
    """Data-parallel attention workers of one replica; each has its own requests."""
    experts: int
    """That share the routed experts."""
    dense: int
    """That share dense feed-forward and shared experts."""
    expert_parallel: bool
    stages: int
    """Pipeline stages."""
    hosts: int
    """That one replica's tensor or expert group spans."""


def groups(case: Case) -> Groups:
    """Who holds what, from the launch's parallel sizes.

    Data parallel with expert parallel over a mixture of experts is attention data parallel: the
    workers keep their own requests and share the experts of all devices.
    Source: vLLM 0.11 docs/serving/expert_parallel_deployment.md, SGLang 0.5 --enable-dp-attention.
    """
    pp, dp = case.pipeline_parallel, case.data_parallel
    expert_parallel = case.expert_parallel and case.shape.experts is not None
    tp, hosts = _tensor_group(case, expert_parallel)
    if case.attention_data_parallel and dp > 1:
        workers, attention, group, replicas = dp, max(1, tp // dp), tp, 1
    elif expert_parallel and dp > 1:
        workers, attention, group, replicas = dp, tp, tp * dp, 1
    else:
        workers, attention, group, replicas = 1, tp, tp, dp
    per_host = max(1, -(-tp * pp * (1 if case.attention_data_parallel else dp) // hosts))
    return Groups(
        replicas=replicas,
        attention=attention,
        attention_workers=workers,
        experts=group,
        dense=attention if workers > 1 else group,
        expert_parallel=expert_parallel,
        stages=pp,
        hosts=max(1, -(-group // per_host)),
    )


def _tensor_group(case: Case, expert_parallel: bool) -> tuple[int, int]:
    """Devices of a tensor group, and hosts.

    Groups over more than two hosts are run by no recipe that we know: with experts spread, such
    sizes are TP multiplied by EP over the same devices of one host.
    Source: our reading of 110 published points with TP 64 and EP 8 that repeat those of TP 8.
    """
    tp, hosts = case.tensor_parallel, case.hosts
    rack = case.device is not None and case.device.link.endswith("nvl72")
    if expert_parallel and hosts > 2 and tp > 2 * HOST_DEVICES and not rack:
        return HOST_DEVICES, 1
    return tp, hosts

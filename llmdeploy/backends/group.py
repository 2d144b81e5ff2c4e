"""What vLLM and SGLang have in common: versions as numbers, and the environment of a rank."""

import re

from llmdeploy.backends.spec import GroupSpec, Place, Seat, ServeSpec

VISIBLE = {
    "nvidia": "CUDA_VISIBLE_DEVICES",
    "amd": "HIP_VISIBLE_DEVICES",
    "ascend": "ASCEND_RT_VISIBLE_DEVICES",
    "other": "ZE_AFFINITY_MASK",
}
"""Which devices a process may see. Source: CUDA, ROCm, CANN and Level Zero manuals."""


def parts(serve: ServeSpec, place: Place) -> tuple[GroupSpec, Seat]:
    """The group and the host's seat in it; both must be there for these engines."""
    assert serve.group is not None, "a plan for vLLM or SGLang has its group"
    assert place.seat is not None, "a place for vLLM or SGLang has its seat"
    return serve.group, place.seat


def at_least(version: str, *needed: int) -> bool:
    """Whether the version is that one or later; what is no number counts as the newest."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
    return not numbers or numbers >= needed


def environment(
    group: GroupSpec, place: Place, seat: Seat, *, on_processors: bool = False
) -> dict[str, str]:
    """Offline, this host's own address and interface, and only the replica's devices.

    The address is this host's: one value for all hosts makes ranks call themselves. NCCL takes
    `=name` for exactly that interface, Gloo the plain name.

    Source: NCCL 2.27 environment manual; GPUStack 2.2 launch rules; vllm-ascend 0.23 manual.
    """
    values = {
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
        "TRANSFORMERS_OFFLINE": "1",
    }
    if not on_processors:
        values[VISIBLE[group.vendor]] = ",".join(str(number) for number in seat.device_ids)
    if group.hosts > 1 and seat.interface is not None:
        values["GLOO_SOCKET_IFNAME"] = seat.interface
        if group.vendor == "ascend":
            values["HCCL_SOCKET_IFNAME"] = seat.interface
            values["TP_SOCKET_IFNAME"] = seat.interface
        elif not on_processors:
            values["NCCL_SOCKET_IFNAME"] = f"={seat.interface}"
    if group.vendor == "ascend":
        values["HCCL_CONNECT_TIMEOUT"] = f"{group.start_timeout_s:.0f}"
        values["HCCL_IF_IP"] = place.address
        values["HCCL_OP_EXPANSION_MODE"] = "AIV"
        values["PYTORCH_NPU_ALLOC_CONF"] = "expandable_segments:True"
    return values

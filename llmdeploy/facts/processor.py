"""Processor and memory, with what cgroups leave of them, parsed from the probe's sections."""

import re
from dataclasses import dataclass

from llmdeploy.facts.section import Section, Unknown

FAST_FLAGS = (
    "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8", "asimd", "bf16", "sve",
)  # fmt: skip
"""Instruction sets that oneDNN and ATen pick their kernels by. Source: oneDNN 3.11 cpu_isa."""
BFLOAT16_FLAGS = frozenset({"avx512f", "avx512_bf16", "amx_bf16", "bf16"})
"""Any of these, and oneDNN multiplies bf16 at least as fast as fp32. Source: oneDNN 3.11
`mayiuse(avx512_core)`; without them ATen's own product of 128 rows took 9 times as long as fp32's
(two Zen 3 cores, torch 2.13, all matrices of SmolLM2-135M)."""
UNLIMITED_BYTES = 2**60
"""cgroup v1 writes `no limit` as the largest multiple of a page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Processor:
    """The processors of the host."""

    cpu_model: str | None
    cpu_physical_cores: int | Unknown
    cpu_flags: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Affinity:
    """Cores that this user's processes may run on."""

    cpu_cores: int
    cpu_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What /proc/meminfo says, in bytes."""

    memory_total_bytes: int
    memory_available_bytes: int
    swap_total_bytes: int
    swap_used_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlGroup:
    """The tightest limits over all levels, from this process's group to the root."""

    memory_limit_bytes: int | None
    memory_limit_used_bytes: int | None
    cpu_quota_cores: float | None


def parse_processor(section: Section) -> Processor:
    """Model, physical cores and the flags that decide speed; ARM names no model there."""
    lines = [line.partition(":") for line in section.text.splitlines()]
    pairs = [(key.strip(), value.strip()) for key, colon, value in lines if colon]
    models = [value for key, value in pairs if key == "model name"]
    flags = {flag for key, value in pairs if key in ("flags", "Features") for flag in value.split()}
    packages = [value for key, value in pairs if key == "physical id"]
    cores = [value for key, value in pairs if key == "core id"]
    unknown = Unknown(reason="/proc/cpuinfo names no core ids")
    return Processor(
        cpu_model=models[0] if models else None,
        cpu_physical_cores=len(set(zip(packages, cores, strict=False))) or unknown,
        cpu_flags=tuple(flag for flag in FAST_FLAGS if flag in flags),
    )


def parse_affinity(section: Section) -> Affinity:
    """Core numbers of a line such as `Cpus_allowed_list: 0-3,8`."""
    ids: list[int] = []
    for part in section.text.partition(":")[2].strip().split(","):
        first, _, last = part.partition("-")
        ids.extend(range(int(first), int(last or first) + 1))
    return Affinity(cpu_cores=len(ids), cpu_ids=tuple(ids))


def parse_load(section: Section) -> float:
    """Mean of runnable processes over the last minute."""
    return float(section.text.split()[0])


def parse_memory(section: Section) -> Memory:
    """Total and available memory and swap; kernels before 3.14 have no MemAvailable."""
    kib = {
        match[1]: int(match[2])
        for match in re.finditer(r"^(\w+):\s+(\d+) kB$", section.text, re.MULTILINE)
    }
    return Memory(
        memory_total_bytes=kib["MemTotal"] * 1024,
        memory_available_bytes=kib["MemAvailable"] * 1024,
        swap_total_bytes=kib["SwapTotal"] * 1024,
        swap_used_bytes=(kib["SwapTotal"] - kib["SwapFree"]) * 1024,
    )


def parse_oom_kills(section: Section) -> int:
    """Kills since the kernel started; older kernels do not count them."""
    return int(section.text.split()[1])


def parse_control_group(section: Section) -> ControlGroup:
    """Limits of both versions from lines `folder file value`: the smallest one binds.

    CPU quota: v2 `cpu.max` has `quota period` or `max period`; v1 has two files and -1 for none.
    Used memory counts without the inactive page cache, which the kernel gives back.
    """
    levels: dict[str, dict[str, str]] = {}
    for line in section.text.splitlines():
        folder, file, value = line.split(None, 2)
        levels.setdefault(folder, {})[file] = value
    if not levels:
        raise ValueError("no control group file can be read")
    limits, quotas = [], []
    for files in levels.values():
        limit = files.get("memory.max", files.get("memory.limit_in_bytes", "max"))
        if limit != "max" and int(limit) < UNLIMITED_BYTES:
            used = int(files.get("memory.current", files.get("memory.usage_in_bytes", "0")))
            limits.append((int(limit), max(0, used - int(files.get("inactive_file", "0")))))
        quota, _, period = files.get("cpu.max", "max").partition(" ")
        if "cpu.cfs_quota_us" in files:
            quota, period = files["cpu.cfs_quota_us"], files["cpu.cfs_period_us"]
        if quota not in ("max", "-1"):
            quotas.append(int(quota) / int(period))
    limit_bytes, used_bytes = min(limits, default=(None, None))
    return ControlGroup(
        memory_limit_bytes=limit_bytes,
        memory_limit_used_bytes=used_bytes,
        cpu_quota_cores=min(quotas, default=None),
    )

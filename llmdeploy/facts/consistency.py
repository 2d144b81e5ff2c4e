"""What must be equal on all hosts: the odd host out, against the declared value or the majority."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llmdeploy.facts.bundle import HostFacts
from llmdeploy.facts.finding import Finding, Remedy, Status
from llmdeploy.facts.storage import Disk
from llmdeploy.units import show_bytes, show_seconds

BETWEEN_S = 1.0
"""Clocks further apart than this break certificates and the order of logs. Source: check catalogue
`time.offset`: over 1 s blocks; the probe's clock has a resolution of a second."""
NETWORK_DISKS = ("nfs", "nfs4", "lustre", "ceph", "beegfs", "gpfs", "cifs", "glusterfs", "fuse")
_NO_LIMIT = "no limit"


@dataclass(frozen=True, slots=True)
class Sameness:
    """One thing that must be equal on all hosts."""

    id: str
    what: str
    value: Callable[[HostFacts], str | None]
    """In words; None: the host has no such thing."""
    reads: tuple[str, ...]
    fix: str
    severity: Status = Status.WARN
    remedy: Remedy = Remedy.CONFIG


def compare(hosts: Sequence[HostFacts]) -> tuple[Finding, ...]:
    """A finding for every thing that must be equal: one for the cluster where it is, else one for
    each odd host. Fewer than two hosts have nothing to differ in."""
    if len(hosts) < 2:
        return ()
    found = [finding for sameness in SAME for finding in _compared(sameness, hosts)]
    return (*found, *_clocks(hosts), *_shared_blocks(hosts))


def _compared(sameness: Sameness, hosts: Sequence[HostFacts]) -> list[Finding]:
    values: dict[str, str] = {}
    findings = []
    for facts in hosts:
        unknown = next((fact for fact in sameness.reads if facts.problem(fact)), None)
        value = sameness.value(facts)
        if unknown is not None:
            findings.append(_unknown(sameness, facts, unknown))
        elif value is not None:
            values[facts.host] = value
    if not values:
        return findings
    needed, majority = _majority(values)
    odd = [host for host, value in values.items() if value != majority]
    if not odd:
        found = f"{len(values)} hosts: {majority}"
        return [_all(sameness, Status.PASS, found=found, hosts=hosts), *findings]
    for host in odd:
        findings.append(
            Finding(
                check=sameness.id,
                status=sameness.severity,
                subject=host,
                found=values[host],
                needed=f"{sameness.what} as {needed}: {majority}",
                fix=sameness.fix,
                remedy=sameness.remedy,
                origin=_origin(sameness, hosts),
            )
        )
    return findings


def _majority(values: dict[str, str]) -> tuple[str, str]:
    """Who has the majority's value, in words, and that value; the first host's where it is even."""
    counts = Counter(values.values())
    most = max(counts.values())
    value = next(v for v in values.values() if counts[v] == most)
    holders = [host for host, v in values.items() if v == value]
    if list(counts.values()).count(most) > 1:
        return f"on {holders[0]} (no majority)", value
    return f"on {len(holders)} of {len(values)} hosts", value


def _unknown(sameness: Sameness, facts: HostFacts, fact: str) -> Finding:
    tool = next((s.tool for s in facts.sources if s.fact == fact), "the probe")
    return Finding(
        check=sameness.id,
        status=Status.UNKNOWN,
        subject=facts.host,
        found=facts.problem(fact) or "the host does not say",
        needed=f"{sameness.what} as on the other hosts",
        fix=f"make `{tool}` answer on {facts.host}, then run preflight again",
        remedy=sameness.remedy,
        origin=tool,
    )


def _all(sameness: Sameness, status: Status, *, found: str, hosts: Sequence[HostFacts]) -> Finding:
    return Finding(
        check=sameness.id,
        status=status,
        subject="all hosts",
        found=found,
        needed=f"{sameness.what} equal on all hosts",
        origin=_origin(sameness, hosts),
    )


def _origin(sameness: Sameness, hosts: Sequence[HostFacts]) -> str:
    tools = {s.fact: s.tool for s in hosts[0].sources}
    return ", ".join(dict.fromkeys(tools[fact] for fact in sameness.reads if fact in tools))


def _clocks(hosts: Sequence[HostFacts]) -> list[Finding]:
    """The host whose clock is furthest from the middle one's."""
    offsets = {f.host: f.clock_offset_s for f in hosts if f.clock_offset_s is not None}
    if len(offsets) < 2:
        return []
    middle_s = sorted(offsets.values())[(len(offsets) - 1) // 2]
    odd = {h: o - middle_s for h, o in offsets.items() if abs(o - middle_s) > BETWEEN_S}
    needed = f"clocks within {show_seconds(BETWEEN_S)} of each other"
    if not odd:
        return [
            Finding(check="con.clock", status=Status.PASS, subject="all hosts", needed=needed,
                    found=f"{len(offsets)} hosts", origin="date +%s")
        ]  # fmt: skip
    return [
        Finding(check="con.clock", status=Status.WARN, subject=host, found=f"{away_s:+.0f} s",
                needed=needed, fix="chronyc makestep, and let chrony run", remedy=Remedy.CONFIG,
                origin="date +%s")
        for host, away_s in odd.items()
    ]  # fmt: skip


def _shared_blocks(hosts: Sequence[HostFacts]) -> list[Finding]:
    """A block device with an ordinary file system must not be mounted on two hosts."""
    seen: dict[str, list[str]] = {}
    for facts in hosts:
        disk = _store(facts)
        if disk and disk.source and disk.read_only is False and _is_remote_block(disk):
            seen.setdefault(disk.source, []).append(facts.host)
    return [
        Finding(
            check="sto.shared.multiwriter", status=Status.FAIL, subject=", ".join(names),
            found=f"{source} is mounted on {len(names)} hosts", remedy=Remedy.CONFIG,
            needed="a shared store on a network file system, or mounted read-only",
            fix="export it by NFS from one host, or mount it ro on all", origin="/proc/mounts",
        )
        for source, names in seen.items()
        if len(names) > 1
    ]  # fmt: skip


def _is_remote_block(disk: Disk) -> bool:
    """Names that are the same device wherever they are seen, and no network's own file system."""
    source = disk.source or ""
    return disk.filesystem not in NETWORK_DISKS and source.startswith(
        ("/dev/rbd", "/dev/disk/by-id/", "/dev/mapper/mpath", "/dev/nbd")
    )


def _store(facts: HostFacts) -> Disk | None:
    return next((d for d in facts.disks or () if d.purpose == "model_store"), None)


def _drivers(facts: HostFacts) -> str | None:
    found = sorted({f"{c.vendor} {c.driver_version}" for c in facts.accelerators or ()})
    return ", ".join(found) or None


def _cards(facts: HostFacts) -> str | None:
    if not facts.accelerators:
        return None
    kinds = Counter(
        f"{card.name} {show_bytes(card.memory_total_bytes or 0)}" for card in facts.accelerators
    )
    return ", ".join(f"{count} x {kind}" for kind, count in sorted(kinds.items()))


def _modes(facts: HostFacts) -> str | None:
    """Settings of the cards in words: each once."""
    words = {
        f"ECC {s.ecc or '-'}, partition {s.partition or '-'}, {s.power_limit_w or 0:g} W"
        for s in facts.card_states or ()
    }
    return "; ".join(sorted(words)) or None


def _firmware(facts: HostFacts) -> str | None:
    names = {card.index: card.name for card in facts.accelerators or ()}
    told = [state for state in facts.card_states or () if state.firmware]
    found = {f"{names.get(state.index, '?')} {state.firmware}" for state in told}
    return ", ".join(sorted(found)) or None


def _kernel(facts: HostFacts) -> str | None:
    return f"{facts.os_name}, {facts.kernel}" if facts.kernel else None


def _packages(facts: HostFacts) -> str | None:
    found = [f"{p.name} {p.version}" for p in facts.packages or () if p.version]
    return ", ".join(found) or None


def _model(facts: HostFacts) -> str | None:
    model = facts.model
    if model is None or model.problem:
        return None
    sizes = sum(file.manifest_bytes for file in model.files)
    return f"{model.folder}, {len(model.files)} files, {sizes} bytes"


def _environment(facts: HostFacts) -> str | None:
    names = facts.environment_names
    return None if names is None else ", ".join(sorted(names)) or "none set"


def _adapters(facts: HostFacts) -> str | None:
    found = sorted(f"{p.model} {p.firmware} {p.link_layer}" for p in facts.fabric_ports or ())
    return ", ".join(found) or None


def _active_ports(facts: HostFacts) -> str | None:
    if not facts.fabric_ports:
        return None
    return f"{sum(p.state == 'ACTIVE' for p in facts.fabric_ports)} active fabric ports"


def _gids(facts: HostFacts) -> str | None:
    """Indexes of RoCE v2 GIDs with an address: NCCL_IB_GID_INDEX is one number for all hosts."""
    found = {g.split()[0] for p in facts.fabric_ports or () for g in p.gids if "RoCE v2" in g}
    return "index " + ", ".join(sorted(found)) if found else None


def _mtu(facts: HostFacts) -> str | None:
    found = {i.mtu for i in facts.interfaces or () if i.up and i.networks and i.kind != "loopback"}
    return ", ".join(f"MTU {mtu}" for mtu in sorted(m for m in found if m)) or None


def _limits(facts: HostFacts) -> str | None:
    if not facts.known("open_files", "locked_memory_bytes"):
        return None
    locked = facts.locked_memory_bytes
    return (
        f"{facts.open_files or _NO_LIMIT} files, {facts.processes or _NO_LIMIT} processes, "
        f"{show_bytes(locked) if locked is not None else _NO_LIMIT} locked"
    )


def _user(facts: HostFacts) -> str | None:
    return f"{facts.user} ({facts.uid})" if facts.user else None


_ALIGN = "bring this host to the others' version"
SAME = (
    Sameness("con.driver", "driver", _drivers, ("accelerators",),
             f"{_ALIGN} of the driver", Status.FAIL, Remedy.REBOOT),
    Sameness("con.kernel", "distribution and kernel", _kernel, ("os_name", "kernel"),
             f"{_ALIGN} and reboot", remedy=Remedy.REBOOT),
    Sameness("con.cuda", "CUDA of torch", lambda f: f.torch_cuda_version, ("torch_cuda_version",),
             "install torch of the same build on all hosts", Status.FAIL),
    Sameness("con.nccl", "NCCL", lambda f: f.nccl_version, ("nccl_version",),
             f"{_ALIGN} of NCCL", Status.FAIL),
    Sameness("con.packages", "Python packages", _packages, ("packages",),
             "install the same lock file on all hosts", Status.FAIL),
    Sameness("con.python", "Python", lambda f: f.python_version, ("python_version",), _ALIGN),
    Sameness("con.model", "the model's folder and files", _model, ("model",),
             "copy the model from a host that has the right one", Status.FAIL),
    Sameness("con.env", "variables of the environment", _environment, ("environment_names",),
             "set the same variables on all hosts, or none"),
    Sameness("con.gpu", "cards", _cards, ("accelerators",),
             "plan for unequal hosts, or give the service equal ones", Status.FAIL,
             Remedy.HARDWARE),
    Sameness("con.gpu.modes", "ECC, partition and power limit of the cards", _modes,
             ("card_states",), "set the same on all hosts: nvidia-smi -e, -mig, -pl"),
    Sameness("drv.vbios.hosts", "firmware of the cards", _firmware, ("card_states",),
             "update the older firmware", remedy=Remedy.HARDWARE),
    Sameness("con.nic", "adapters and their firmware", _adapters, ("fabric_ports",),
             "update the older firmware: mlxfwmanager"),
    Sameness("fab.uncabled", "active fabric ports", _active_ports, ("fabric_ports",),
             "cable the missing ports, or name those that all hosts have in NCCL_IB_HCA",
             remedy=Remedy.HARDWARE),
    Sameness("fab.roce.gid", "index of the RoCE v2 address", _gids, ("fabric_ports",),
             "set NCCL_IB_GID_INDEX for each host, or give the port its address"),
    Sameness("net.mtu", "MTU of the networks", _mtu, ("interfaces",),
             "ip link set DEVICE mtu N on this host, or on the others"),
    Sameness("con.limits", "limits of a process", _limits,
             ("open_files", "processes", "locked_memory_bytes"),
             "set the same in /etc/security/limits.conf"),
    Sameness("con.user", "user and its id", _user, ("user", "uid"),
             "give the user the same id on all hosts"),
    Sameness("time.zone", "time zone", lambda f: f.utc_offset, ("utc_offset",),
             "timedatectl set-timezone UTC"),
)  # fmt: skip

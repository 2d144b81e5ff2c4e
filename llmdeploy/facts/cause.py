"""One fault is told once: a difference that a host's own finding explains is no second finding."""

from collections.abc import Mapping, Sequence

from llmdeploy.facts.finding import Finding, Status

EXPLAINS: Mapping[str, tuple[str, ...]] = {
    "con.gpu": ("gpu.visible.count", "gpu.smi.responsive", "gpu.declared", "drv.bound",
                "drv.nouveau", "gpu.model.homogeneous"),
    "con.gpu.modes": ("gpu.mig.mode", "gpu.ecc.pending", "gpu.power.limit", "gpu.amd.partition"),
    "con.driver": ("drv.nvml.match", "drv.pending.reboot", "gpu.smi.responsive"),
    "con.kernel": ("os.kernel", "drv.pending.reboot"),
    "con.packages": ("rt.lock", "rt.llmdeploy", "rt.ascend.set"),
    "con.python": ("rt.python", "rt.engine.wheel"),
    "con.nccl": ("rt.nccl.version",),
    "con.model": ("sto.model.present", "sto.model.index", "sto.model.lfs"),
    "con.env": ("rt.env.bad", "rt.env.libraries", "sec.danger.flags", "net.proxy.env"),
    "con.limits": ("os.nofile", "os.nproc", "os.memlock"),
    "con.user": ("sec.nonroot",),
    "con.clock": ("time.offset",),
    "time.skew": ("time.offset",),
    "net.bandwidth": ("net.ports.peer",),
    "net.allreduce.cross": ("net.ports.peer",),
    "drv.vbios.hosts": ("drv.vbios.consistent",),
    "fab.uncabled": ("fab.ib.port",),
}  # fmt: skip
"""Differences between hosts, and the checks of one host that tell why."""


def told_once(across: Sequence[Finding], own: Sequence[Finding]) -> tuple[Finding, ...]:
    """The differences, those that a finding of the same host explains as SKIP with its name."""
    open_ones = {(f.subject, f.check) for f in own if f.status in (Status.FAIL, Status.WARN)}
    return tuple(_told(finding, open_ones) for finding in across)


def _told(finding: Finding, open_ones: set[tuple[str, str]]) -> Finding:
    if finding.status not in (Status.FAIL, Status.WARN):
        return finding
    causes = EXPLAINS.get(finding.check, ())
    cause = next((c for c in causes if (finding.subject, c) in open_ones), None)
    if cause is None:
        return finding
    changed = {"status": Status.SKIP, "found": f"{finding.subject}: see {cause}", "fix": ""}
    return finding.model_copy(update={**changed, "remedy": None})

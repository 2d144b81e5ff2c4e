"""Checks of the host's upkeep: its log, stuck processes, left-over memory, drives, caches."""

from llmdeploy.facts.check import Check, Outcome, Question, failed, passed, skipped, warned
from llmdeploy.facts.checks.words import listed, unlogged
from llmdeploy.facts.finding import Remedy
from llmdeploy.units import show_bytes

CACHE_BYTES = 10 * 2**30
"""Compiled kernels of one engine. Source: check catalogue `rt.jit.cache`."""
FILE_MAX = 1_000_000
"""Source: a thousand processes with the catalogue's `os.nofile`, rounded up."""


def virtual(question: Question) -> Outcome:
    needed = "known: bare metal, virtual machine or container"
    if not question.facts.known("virtualization"):
        return question.unknown("virtualization", needed)
    return passed(question.facts.virtualization or "bare metal", needed)


def log_readable(question: Question) -> Outcome:
    needed = "a kernel log that this user may read"
    if question.facts.kernel_events is not None:
        return passed("readable", needed)
    reason = question.facts.problem("kernel_events") or "not readable"
    if "not readable" not in reason:
        return question.unknown("kernel_events", needed)
    fix = f"usermod -aG systemd-journal {question.facts.user}, then log in again"
    return warned(reason, needed, fix=fix)


def hung_tasks(question: Question) -> Outcome:
    needed = "no hung task, panic or file limit in the log of the last day"
    fix = "see journalctl -k around it; a task that hangs in a driver needs a reboot"
    return unlogged(question, needed, "hung_task", "panic", "files", fix=fix)


def machine_checks(question: Question) -> Outcome:
    needed = "no fault of memory, processor or PCI in the log of the last day"
    fix = "have the host serviced: see rasdaemon or the board's own log for the part"
    return unlogged(question, needed, "machine_check", "pcie", fix=fix)


def killed(question: Question) -> Outcome:
    needed = "no process killed for memory in the last day"
    fix = "find what grew, give it a limit, or give the host more memory"
    return unlogged(question, needed, "oom", fix=fix)


def stuck(question: Question) -> Outcome:
    needed = "no process in uninterruptible sleep"
    found = question.facts.stuck_processes
    if found is None:
        return question.unknown("stuck_processes", needed)
    asleep = [f"{p.name} (pid {p.pid})" for p in found if p.state == "D"]
    if not asleep:
        return passed(f"none; {len(found)} zombies", needed)
    fix = "see what it waits for: cat /proc/PID/wchan; mend the mount or driver, or reboot"
    return warned(listed(asleep), needed, fix=fix)


def file_max(question: Question) -> Outcome:
    needed = f"at least {FILE_MAX} open files of the host"
    limit = question.facts.file_max
    if limit is None:
        return question.unknown("file_max", needed)
    if limit >= FILE_MAX:
        return passed(f"{limit}", needed)
    return warned(f"{limit}", needed, fix=f"sysctl -w fs.file-max={FILE_MAX}")


def segments(question: Question) -> Outcome:
    needed = "no shared memory left over by dead processes"
    found = question.facts.shm_segments
    if found is None:
        return question.unknown("shm_segments", needed)
    dead = [s for s in found if s.held is False]
    if not dead:
        return passed(f"{len(found)} segments, all in use", needed)
    size = show_bytes(sum(s.size_bytes for s in dead))
    fix = f"rm /dev/shm/{dead[0].name} (and the others): nothing maps them"
    return warned(f"{listed([s.name for s in dead])}, {size}", needed, fix=fix)


def pointers(question: Question) -> Outcome:
    needed = "weights, not Git-LFS pointers or web pages"
    found = question.facts.model_pointers
    if question.model is None:
        return question.without_model(needed)
    if found is None:
        return question.unknown("model_pointers", needed)
    if not found:
        return passed("none", needed)
    fix = f"git lfs pull there, or download {found[0]} again, then: llmdeploy models add"
    return failed(f"{listed(found)} hold no weights", needed, fix=fix)


def caches(question: Question) -> Outcome:
    needed = f"caches that can be written and run, with {show_bytes(CACHE_BYTES)} free"
    disks = question.facts.cache_disks
    if disks is None:
        return question.unknown("cache_disks", needed)
    bad = []
    for disk in disks:
        room = disk.free_bytes is None or disk.free_bytes >= CACHE_BYTES
        if not disk.writable or disk.read_only:
            bad.append(f"{disk.path} cannot be written")
        elif disk.no_exec:
            bad.append(f"nothing may run from {disk.path}")
        elif not room and disk.purpose == "cache" and question.facts.accelerators:
            bad.append(f"{disk.path} has {show_bytes(disk.free_bytes or 0)} free")
    if not bad:
        return passed(", ".join(disk.path for disk in disks), needed)
    fix = "set XDG_CACHE_HOME and TMPDIR to folders of a local disk, or remount it"
    return warned(listed(bad), needed, fix=fix)


def drives(question: Question) -> Outcome:
    needed = "NVMe drives that are live"
    found = question.facts.drives
    if found is None:
        return question.unknown("drives", needed)
    if not found:
        return skipped("no NVMe drive", needed)
    bad = [f"{d.name} ({d.model}) is {d.state}" for d in found if d.state not in (None, "live")]
    if bad:
        return warned(listed(bad), needed, fix="replace the drive, or reset it: nvme reset /dev/X")
    return passed(f"{len(found)} drives", needed)


def wear(question: Question) -> Outcome:
    needed = "drives without a warning and worn less than 100 %"
    if question.facts.drives is None:
        return question.unknown("drives", needed)
    if not question.facts.drives:
        return skipped("no NVMe drive", needed)
    if question.facts.drive_wear is None:
        return question.unknown("drive_wear", needed)
    bad = [line for line in question.facts.drive_wear if _worn(line)]
    if bad:
        return warned(listed(bad), needed, fix="replace the drive before it holds weights")
    return passed("no warning", needed)


def _worn(line: str) -> bool:
    key, _, value = line.partition(": ")
    if key.endswith("Critical Warning"):
        return value.strip() not in ("0x00", "0")
    return value.rstrip("%").isdigit() and int(value.rstrip("%")) >= 100


def planned_disk(question: Question) -> Outcome:
    plan, disk = question.planned, question.disk("model_store")
    needed = "room for the plan's weights"
    if plan is None or plan.disk_bytes is None:
        return skipped("no plan stages weights here", needed)
    if question.model is not None:
        return passed("the model is there already", needed)
    if disk is None or disk.free_bytes is None:
        return question.unknown("disks", needed)
    needed = f"{show_bytes(plan.disk_bytes)} free in {disk.path}"
    found = f"{show_bytes(disk.free_bytes)} free on {disk.mount}"
    if disk.free_bytes >= plan.disk_bytes:
        return passed(found, needed)
    return failed(found, needed, fix="free space, or set model_store to another disk")


def planned_memory(question: Question) -> Outcome:
    plan, usable_bytes = question.planned, question.facts.usable_memory_bytes
    needed = "host memory for the plan"
    if plan is None or plan.host_memory_bytes is None:
        return skipped("no plan takes host memory here", needed)
    if usable_bytes is None:
        return question.unknown("memory_available_bytes", needed)
    needed = f"{show_bytes(plan.host_memory_bytes)} usable"
    found = f"{show_bytes(usable_bytes)} usable"
    if usable_bytes >= plan.host_memory_bytes:
        return passed(found, needed)
    return failed(found, needed, fix="free memory, or plan again with the facts of now")


_LOG = ("kernel_events",)
CHECKS = (
    Check("os.virt", "os", "what the host is", virtual, ("virtualization",)),
    Check("os.kernel.log.readable", "os", "a readable log", log_readable,
          ("kernel_events", "user")),
    Check("os.hung.tasks", "os", "no hung task", hung_tasks, _LOG, remedy=Remedy.REBOOT),
    Check("os.machine.check", "os", "no hardware fault", machine_checks, _LOG,
          remedy=Remedy.HARDWARE),
    Check("os.oom.recent", "os", "no recent kill", killed, _LOG),
    Check("os.dstate", "os", "no stuck process", stuck, ("stuck_processes",),
          remedy=Remedy.REBOOT),
    Check("os.file.max", "os", "files for all", file_max, ("file_max",)),
    Check("os.shm.stale", "os", "no left-over memory", segments, ("shm_segments",)),
    Check("os.ram.plan", "memory", "memory for the plan", planned_memory,
          ("memory_available_bytes", "memory_limit_bytes", "memory_limit_used_bytes")),
    Check("sto.model.lfs", "model", "real weights", pointers, ("model", "model_pointers")),
    Check("sto.cache.dirs", "storage", "usable caches", caches, ("cache_disks", "accelerators")),
    Check("sto.nvme", "storage", "live drives", drives, ("drives",), remedy=Remedy.HARDWARE),
    Check("sto.nvme.wear", "storage", "unworn drives", wear, ("drives", "drive_wear"),
          remedy=Remedy.HARDWARE),
    Check("sto.space.plan", "storage", "room for the plan", planned_disk,
          ("disks", "model")),
)  # fmt: skip

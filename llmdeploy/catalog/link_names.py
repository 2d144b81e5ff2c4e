"""Which link of the catalog a printed description means."""

import re

from llmdeploy.catalog.types import DeviceSpec

_SPEED = re.compile(r"(\d+)\s*(?:g(?:b(?:e|it|ps)?|bit|bps|b/s)?)\b")
_NDR = {"ndr": 400, "hdr": 200, "edr": 100, "xdr": 800}
_SPEEDS = (1, 10, 25, 40, 50, 100, 200, 400, 800)
_NVLINK_BY_DEVICE = {"volta": "nvlink2", "ampere": "nvlink3", "hopper": "nvlink4"}
_GENERATION = re.compile(
    r"nvlink[- ]?(?:gen(?:eration)? ?)?(\d)\b|(\d)(?:th|rd|nd)[- ]gen(?:eration)? nvlink"
)
_PCIE = re.compile(r"pci-?e(?:xpress)?[- ]?(?:gen(?:eration)? ?)?v?(\d)?")
_WITHOUT_NVLINK = re.compile(r"\b(?:no|not|without) nvlink")
_UNSAID = ("", "n/a", "na", "not stated", "unknown", "default", "auto")
_HOST_NVLINK = (("a100", "nvlink3"), ("a800", "nvlink3"), ("h100", "nvlink4"), ("h200", "nvlink4"),
                ("h20", "nvlink4"), ("h800", "nvlink4-h800"), ("b200", "nvlink5"),
                ("b300", "nvlink5"), ("v100", "nvlink2"))  # fmt: skip


def link_id(name: str, *, device: DeviceSpec | None, known: tuple[str, ...]) -> str | None:
    """The id in `known` that `name` describes; None where it describes none."""
    text = name.strip().lower()
    if text in known:
        return text
    text = re.split(r"[;]", text)[0]
    if text in _UNSAID:
        return device.link if device else None
    has_nvlink = "nvlink" in text.split("pci")[0] and not _WITHOUT_NVLINK.search(text)
    if has_nvlink or "nvl72" in text or "nvswitch" in text:
        return _nvlink(text, device)
    for words, found in (
        (("xgmi", "infinity fabric"), "xgmi"),
        (("hccs",), "hccs"),
        (("xe link", "xelink"), "xelink"),
        (("mtlink",), "mtlink"),
    ):
        if any(word in text for word in words):
            return found
    if "pci" in text:
        return _pcie(text, device, known)
    return _network(text)


def _nvlink(text: str, device: DeviceSpec | None) -> str | None:
    if "nvl72" in text:
        return "nvlink5-nvl72"
    generation = _GENERATION.search(text)
    if generation:
        number = int(generation[1] or generation[2])
        found = f"nvlink{number}" if 2 <= number <= 5 else None
    else:
        host = next((link for word, link in _HOST_NVLINK if word in text), None)
        found = host or (_of_device(device) if device else None)
    if found in ("nvlink3", "nvlink4") and ("bridge" in text or "pair" in text):
        return found + "-pair"
    return found


def _of_device(device: DeviceSpec) -> str | None:
    if device.link.startswith("nvlink"):
        return device.link
    if device.architecture in ("ampere", "ampere-ga102"):
        return "nvlink3-pair"  # cards over PCIe with bridges
    if device.architecture == "hopper":
        return "nvlink4-pair"
    return _NVLINK_BY_DEVICE.get(device.architecture)


def _pcie(text: str, device: DeviceSpec | None, known: tuple[str, ...]) -> str:
    generation = _PCIE.search(text)
    if generation and generation[1] and f"pcie{generation[1]}" in known:
        host = device is not None and device.link == f"pcie{generation[1]}-host"
        return f"pcie{generation[1]}" + ("-host" if host else "")
    if device is not None and device.link.startswith("pcie"):
        return device.link
    return (
        "pcie5" if device is not None and device.architecture.startswith("blackwell") else "pcie4"
    )


def _network(text: str) -> str | None:
    infiniband = re.search(r"\b(infiniband|ib|ndr|hdr|edr|xdr)\b", text)
    if not infiniband and not re.search(r"ethernet|roce|gbe|\beth|\d+ ?g\b|gbit|gbps|gb/s", text):
        return None
    named = next((speed for word, speed in _NDR.items() if word in text), None)
    written = _SPEED.search(text)
    speed = named or (int(written[1]) if written else 200 if infiniband else None)
    if speed is None:
        return "ethernet-10g" if "ethernet" in text else None
    slowest = 100 if infiniband else 1
    fitting = max((s for s in _SPEEDS if slowest <= s <= max(speed, slowest)), default=slowest)
    return f"{'infiniband' if infiniband else 'ethernet'}-{fitting}g"

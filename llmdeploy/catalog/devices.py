"""Devices by the names that drivers and people print, made of devices.yaml."""

import difflib
import functools
import importlib.resources
import re

import yaml

from llmdeploy.catalog.types import DeviceSpec
from llmdeploy.errors import InputError

_GIB = 2**30
_COUNT = re.compile(r"^\s*\d+\s*[x*\u00d7]\s*(?=[a-z])")  # 8x H100
_MEMORY = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?)\s*(?:gi?b?|hbm)(?![a-z0-9])")
_MIB = re.compile(r"(?<!\d)(\d{4,6})\s*mi?b\b")
_PARENTHESES = re.compile(r"\([^)]*\)")
_FORM = re.compile(r"(?<![a-z])(sxm|pcie|pci-e|nvl(?!\d)|oam)\s*\d?(?![a-z])")
_NOISE = re.compile(
    r"\b(nvidia|geforce|amd|instinct|tesla|huawei|intel|corporation|inc|graphics|gpu|gpus|card"
    r"|moore threads|radeon|xeon platinum(?=\D*$)|hgx|dgx(?! ?spark)|edition|generation"
    r"|accelerator|processor|habana|labs|stated as|vgpu|hbm\d?e?|gddr\d?x?|ecc|npu(?= *\d))\b"
)
_PARTITION = re.compile(r"(-nps\d.*|-\d+[qc]\b.*)$")
_OTHER_CHIP = re.compile(r"\b(laptop|mobile|notebook|mig)\b")
"""Words behind which a known name means another, smaller device."""


@functools.cache
def _by_alias() -> dict[str, tuple[DeviceSpec, ...]]:
    """Every compact name with the devices it may mean, the usual one first."""
    text = (importlib.resources.files("llmdeploy.catalog") / "devices.yaml").read_text("utf-8")
    table = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["table"]
    columns, *rows = (
        [cell.strip() for cell in line.split("|")] for line in table.strip().split("\n")
    )
    named: dict[str, list[DeviceSpec]] = {}
    for row in rows:
        cells = dict(zip(columns, row, strict=True))
        device = _device(cells)
        own = (_compact(device.id), _compact(device.name))
        for alias in dict.fromkeys((*own, *cells["aliases"].split())):
            found = named.setdefault(alias, [])
            found.insert(0, device) if alias == own[0] else found.append(device)
    return {alias: tuple(found) for alias, found in named.items()}


def _device(cells: dict[str, str]) -> DeviceSpec:
    def tera(column: str) -> float | None:
        return None if cells[column] == "-" else float(cells[column]) * 1e12

    def written(column: str) -> str | None:
        return None if cells[column] == "-" else cells[column]

    power = written("power")
    return DeviceSpec(
        id=cells["id"],
        name=cells["name"],
        vendor=cells["vendor"],  # type: ignore[arg-type]  # a test holds the table to the words
        architecture=cells["architecture"],
        memory_bytes=round(float(cells["memory"]) * _GIB),
        usable_memory_bytes=round(float(cells["usable"]) * _GIB),
        memory_bytes_per_s=float(cells["reads"]) * 1e9,
        bf16_flops_per_s=float(cells["bf16"]) * 1e12,
        fp8_flops_per_s=tera("fp8"),
        int8_flops_per_s=tera("int8"),
        fp4_flops_per_s=tera("fp4"),
        compute_capability=written("compute_capability"),
        power_w=None if power is None else float(power),
        link=cells["link"],
        source=cells["source"],
    )


def all_devices() -> tuple[DeviceSpec, ...]:
    """Every device of the catalog, in the table's order."""
    return tuple({d.id: d for found in _by_alias().values() for d in found}.values())


@functools.lru_cache(maxsize=4096)
def find(name: str) -> DeviceSpec:
    """The device that a driver, log or person calls `name`; InputError with near matches."""
    named = _by_alias()
    if exact := named.get(_compact(name)):
        return exact[0]
    text = _COUNT.sub("", name.lower().replace("(r)", " ").replace("(tm)", " "))
    text = re.split(r"[;+]", text)[0].replace("_", " ")
    stated_gib, form = _hints(text)
    for words in () if _OTHER_CHIP.search(text) else (text, _PARENTHESES.sub(" ", text)):
        if found := _lookup(words, named):
            return _nearest(found, stated_gib, form)
    near = difflib.get_close_matches(_family(_PARENTHESES.sub(" ", text)), named, n=4, cutoff=0.5)
    known = tuple(dict.fromkeys(named[alias][0].id for alias in near))
    raise InputError(
        f"device {name!r} is not in the catalog",
        fix=f"did you mean {' or '.join(known)}?"
        if known
        else "name a device of the catalog, such as h100-sxm, rtx4090, mi300x or ascend910b2",
    )


def _compact(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _hints(text: str) -> tuple[float | None, str | None]:
    """Memory in GiB and form (sxm, pcie, nvl) where the name says them."""
    form = _FORM.search(text)
    mib, gib = _MIB.search(text), _MEMORY.search(text)
    stated_gib = float(mib[1]) / 1024 if mib else float(gib[1]) if gib else None
    return stated_gib, form[1].replace("-", "") if form else None


def _family(text: str) -> str:
    return _compact(_NOISE.sub(" ", _FORM.sub(" ", _MIB.sub(" ", _MEMORY.sub(" ", text)))))


def _lookup(text: str, named: dict[str, tuple[DeviceSpec, ...]]) -> tuple[DeviceSpec, ...] | None:
    text = text.strip()
    plain = _PARTITION.sub("", text)
    without_maker = _NOISE.sub(" ", plain)
    for candidate in (plain, without_maker, _FORM.sub(" ", without_maker)):
        compact = _compact(_MIB.sub(" ", _MEMORY.sub(" ", candidate)))
        if found := named.get(compact):
            return found
    words = re.findall(r"[a-z0-9]+", _NOISE.sub(" ", plain))
    for length in (4, 3, 2, 1):
        for start in range(len(words) - length + 1):
            alias = "".join(words[start : start + length])
            if len(alias) >= 4 and not alias.isdigit() and (found := named.get(alias)):
                return found
    return None


def _nearest(
    devices: tuple[DeviceSpec, ...], stated_gib: float | None, form: str | None
) -> DeviceSpec:
    """The one whose memory and form the name says; the usual one where it says neither."""

    def distance(device: DeviceSpec) -> float:
        far = 0.0
        if stated_gib is not None:
            sizes = (device.memory_bytes / _GIB, device.usable_memory_bytes / _GIB)
            far += min(abs(size - stated_gib) / size for size in sizes) * 10
        if form is not None and form not in ("oam",):
            far += form not in device.id
        return far

    return min(devices, key=distance)

"""Links between devices and hosts: what collectives over them take, made of links.yaml."""

import functools
import importlib.resources
import itertools
import math
from dataclasses import dataclass
from typing import Any, Literal

import yaml

from llmdeploy.catalog.link_names import link_id
from llmdeploy.catalog.types import DeviceSpec, LinkSpec
from llmdeploy.errors import InputError

Collective = Literal[
    "all_reduce", "custom_all_reduce", "all_gather", "reduce_scatter", "all_to_all"
]
_BOTH_WAYS: dict[Collective, float] = {"all_reduce": 2, "custom_all_reduce": 2}
_NETWORK_SHARE = 0.7
"""Of the line rate that a collective over a network reaches. Source: assumed; two A100 hosts with
one device each reach 5.9 GB/s, with 8 each 17.5 GB/s (vidur data)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One protocol: latency and seconds a byte of the message."""

    latency_s: float
    per_byte_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measured collective of a host's own curve."""

    size_bytes: float
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    spec: LinkSpec
    lines: dict[str, dict[int, tuple[float, float, float, float]]]
    spread_ratio: float


@functools.cache
def _table() -> dict[str, _Entry]:
    text = (importlib.resources.files("llmdeploy.catalog") / "links.yaml").read_text("utf-8")
    rows = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["links"]
    return {name: _entry(name, rows) for name in rows}


def _entry(name: str, rows: dict[str, Any]) -> _Entry:
    row = rows[name]
    spec = LinkSpec(id=name, bytes_per_s=row["rate"] * 1e9, source=row["source"])
    return _Entry(spec=spec, lines=_lines_of(row, rows), spread_ratio=row["spread"])


def _lines_of(
    row: dict[str, Any], rows: dict[str, Any]
) -> dict[str, dict[int, tuple[float, float, float, float]]]:
    if "like" in row:
        base = _lines_of(rows[row["like"]], rows)
        slower, wider = row["latency"], row["bandwidth"]
        return {
            collective: {
                devices: (a * slower, b * wider, c * slower, d * wider)
                for devices, (a, b, c, d) in by_devices.items()
            }
            for collective, by_devices in base.items()
        }
    if row.get("network"):
        wide = row["rate"] * _NETWORK_SHARE
        once = {n: (row["latency"] * hops, wide, row["latency"] * hops, wide)
                for n, hops in ((2, 1.0), (4, 2.0), (8, 3.5))}  # fmt: skip
        return dict.fromkeys(("all_reduce", "all_gather", "reduce_scatter", "all_to_all"), once)
    names = ("all_reduce", "custom_all_reduce", "all_gather", "reduce_scatter", "all_to_all")
    lines = {k: {n: tuple(v) for n, v in row[k].items()} for k in names if k in row}
    for collective in ("all_gather", "reduce_scatter", "all_to_all"):
        lines.setdefault(collective, lines["all_reduce"])
    return lines


def all_links() -> tuple[LinkSpec, ...]:
    """Every link of the catalog."""
    return tuple(entry.spec for entry in _table().values())


@functools.lru_cache(maxsize=1024)
def find(name: str, device: DeviceSpec | None = None) -> LinkSpec:
    """The link that `name` prints, such as `NVLink (DGX H100)` or `PCIe Gen4, no NVLink`.

    A bare `NVLink` or `PCIe` takes its generation from the device. InputError else.
    """
    table = _table()
    found = link_id(name, device=device, known=tuple(table))
    if found is None:
        raise InputError(
            f"link {name!r} is not in the catalog",
            fix="name one of " + ", ".join(table),
        )
    return table[found].spec


def between(device: DeviceSpec) -> LinkSpec:
    """The link of this device to its neighbours in the host."""
    return _table()[device.link].spec


def spread_ratio(link: LinkSpec) -> float:
    """Within which 90 % of measured collectives lie, as a ratio of the answer."""
    return _table()[link.id].spread_ratio


@functools.lru_cache(maxsize=4096)
def lines(link: LinkSpec, devices: int, collective: Collective = "all_reduce") -> tuple[Line, ...]:
    """The protocols of one collective; it takes the least of latency + bytes * per_byte.

    Between measured device counts latency and rate go by the logarithm of the count; beyond the
    last, latency grows on as between the last two and the rate stays.
    """
    if devices <= 1:
        return (Line(latency_s=0, per_byte_s=0),)
    by_devices = _table()[link.id].lines.get(collective)
    if by_devices is None:
        return lines(link, devices, "all_reduce")
    near_us, near_gb, far_us, far_gb = _at(by_devices, devices)
    wire = _BOTH_WAYS.get(collective, 1) * (devices - 1) / devices
    return (
        Line(latency_s=near_us * 1e-6, per_byte_s=wire / near_gb * 1e-9),
        Line(latency_s=far_us * 1e-6, per_byte_s=wire / far_gb * 1e-9),
    )


def _at(
    by_devices: dict[int, tuple[float, float, float, float]], devices: int
) -> tuple[float, float, float, float]:
    if devices in by_devices:
        return by_devices[devices]
    counts = sorted(by_devices)
    if len(counts) == 1:
        return by_devices[counts[0]]
    above = next((i for i, n in enumerate(counts) if n > devices), len(counts) - 1)
    low, high = counts[max(above - 1, 0)], counts[max(above, 1)]
    share = math.log(devices / low) / math.log(high / low)
    a, b, c, d = (
        x * (y / x) ** (share if i % 2 == 0 else min(share, 1.0))
        for i, (x, y) in enumerate(zip(by_devices[low], by_devices[high], strict=True))
    )
    return a, b, c, d


def custom_cap_bytes(link: LinkSpec, devices: int) -> int:
    """The largest message of the engines' own all-reduce; 0 where they do not use it.

    Source: vLLM 0.11 custom_all_reduce.py: 8 MiB, all devices over NVLink or 2 over PCIe.
    """
    by_devices = _table()[link.id].lines.get("custom_all_reduce")
    if not by_devices or devices > 8:
        return 0
    return 8 * 2**20 if devices <= max(by_devices) else 0


def all_reduce_s(
    link: LinkSpec,
    devices: int,
    size_bytes: float,
    *,
    custom: bool = True,
    measured: tuple[Sample, ...] = (),
) -> float:
    """Seconds to sum a message over devices of one host; `measured` is their own curve."""
    if devices <= 1:
        return 0.0
    if measured:
        return _on_curve(measured, size_bytes)
    if custom and size_bytes <= custom_cap_bytes(link, devices):
        own = lines(link, devices, "custom_all_reduce")
        return least_s(own + lines(link, devices), size_bytes)
    return least_s(lines(link, devices), size_bytes)


def all_to_all_s(link: LinkSpec, devices: int, size_bytes: float) -> float:
    """Seconds in which each device sends its message's parts to all others."""
    return least_s(lines(link, devices, "all_to_all"), size_bytes)


def point_to_point_s(link: LinkSpec, size_bytes: float) -> float:
    """Seconds of one message from one device (or host) to another.

    Source: half of what an all-gather of twice the bytes over two devices moves.
    """
    return least_s(lines(link, 2, "all_gather"), 2 * size_bytes)


def least_s(protocols: tuple[Line, ...], size_bytes: float) -> float:
    """Seconds of the protocol that is fastest at this size."""
    return min(line.latency_s + line.per_byte_s * size_bytes for line in protocols)


@functools.lru_cache(maxsize=256)
def curve_lines(measured: tuple[tuple[int, float], ...]) -> tuple[Line, ...]:
    """A measured curve of bytes and seconds as protocols: the least of them is the curve.

    Sides of the curve's upper hull, so that noise gives no protocol that is faster than what was
    measured.
    """
    points = sorted(measured)
    if len(points) == 1:
        return (Line(latency_s=points[0][1], per_byte_s=0),)
    hull = [(float(points[0][0]), points[0][1])]
    for size, duration_s in points[1:]:
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) < _slope(hull[-2], (size, duration_s)):
            hull.pop()
        hull.append((float(size), max(duration_s, hull[-1][1])))
    return tuple(
        Line(latency_s=max(0.0, a[1] - _slope(a, b) * a[0]), per_byte_s=_slope(a, b))
        for a, b in itertools.pairwise(hull)
    )


def _slope(one: tuple[float, float], other: tuple[float, float]) -> float:
    return (other[1] - one[1]) / (other[0] - one[0])


def _on_curve(measured: tuple[Sample, ...], size_bytes: float) -> float:
    """Between measured sizes by logarithms; below the first its time, above the last its rate."""
    points = sorted(measured, key=lambda point: point.size_bytes)
    if size_bytes <= points[0].size_bytes:
        return points[0].duration_s
    for low, high in itertools.pairwise(points):
        if size_bytes <= high.size_bytes:
            share = math.log(size_bytes / low.size_bytes) / math.log(
                high.size_bytes / low.size_bytes
            )
            return low.duration_s * math.exp(share * math.log(high.duration_s / low.duration_s))
    return points[-1].duration_s * size_bytes / points[-1].size_bytes

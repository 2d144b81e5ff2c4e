"""Forecast against actual: records of what was predicted and measured, and what they teach."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import Field, ValidationError

from llmdeploy.catalog.types import DeviceSpec
from llmdeploy.document import Document
from llmdeploy.errors import InputError
from llmdeploy.units import show_number

FILE = "forecasts.jsonl"
"""Name of a service's records, in its folder under the state root."""

NEWEST = 20
"""Records that a calibration is made of: engines and drivers change.
Source: own choice: about a quarter of weekly releases."""

LONE_SPREAD = 1.5
"""Factor each way around a single record. Source: own choice: two bursts of one release on one
host differed by up to that on a shared machine."""

FURTHEST = 4.0
"""Records past this factor, or under its inverse, tell of another fault than the forecast's.
Source: own choice: the widest interval that an estimate states."""

GEMM_RATIO, READ_RATIO = 0.78, 0.90
"""What a sound device reaches of its data sheet in a large bf16 product and in a plain read: the
coefficients of estimates stand on the data sheet, so a measured rate is brought up to it.

Source: public cuBLAS and stream measurements of A100, H100 and MI300X: 0.70-0.85 and 0.85-0.93."""


class Compared(Document):
    """One quantity at one load."""

    name: Literal["output_tokens_per_s", "ttft_s", "tpot_s", "kv_cache_tokens"]
    predicted: float = Field(gt=0)
    measured: float = Field(gt=0)

    @property
    def ratio(self) -> float:
        """Measured over predicted."""
        return self.measured / self.predicted


class Forecast(Document):
    """What was predicted of a release and what was measured when it went live; one JSON line."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    at_s: float
    """When it was measured, seconds since 1970."""
    service: str
    release: str
    model: str
    device: str
    """`cpu`, `cuda` or a catalog id."""
    engine: str
    requests: int = Field(ge=1)
    """Together, when it was measured."""
    compared: tuple[Compared, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Measured over predicted speed of former releases of the same kind: multiply rates by it."""

    ratio: float
    """The median."""
    low: float
    """Ends of what about 90 % of the records lie between."""
    high: float
    records: int

    @property
    def words(self) -> str:
        """The calibration in words for notes."""
        return (
            f"x {self.ratio:.2f} ({self.low:.2f} to {self.high:.2f}), the median of"
            f" {self.records} forecast(s) against what was measured"
        )


def line(forecast: Forecast) -> bytes:
    """The record as a line of FILE."""
    return forecast.model_dump_json(by_alias=True).encode() + b"\n"


def forecasts(text: str, *, place: str) -> tuple[Forecast, ...]:
    """The records of a file, oldest first; InputError names the line that is none."""
    found = []
    for number, written in enumerate(text.splitlines(), start=1):
        if not written.strip():
            continue
        try:
            found.append(Forecast.model_validate_json(written))
        except ValidationError as error:
            first = error.errors()[0]
            path = "/".join(str(part) for part in first["loc"]) or "(line)"
            raise InputError(
                f"{place}:{number}: {path}: {first['msg']}, needed a record that `verify` wrote",
                fix=f"remove line {number} of {place}",
            ) from error
    return tuple(sorted(found, key=lambda forecast: forecast.at_s))


def calibration(
    records: Iterable[Forecast], *, device: str, engine: str, model: str | None = None
) -> Calibration | None:
    """What the newest records of that device and engine say about speed, of that model alone
    where it has any; None where there is no record."""
    kind = [r for r in records if (r.device, r.engine) == (device, engine)]
    same = [r for r in kind if r.model == model] or kind
    ratios = [
        compared.ratio if compared.name == "output_tokens_per_s" else 1 / compared.ratio
        for record in sorted(same, key=lambda r: r.at_s)[-NEWEST:]
        for compared in record.compared[:1]
        if compared.name != "kv_cache_tokens" and 1 / FURTHEST < compared.ratio < FURTHEST
    ]
    if not ratios:
        return None
    middle = statistics.median(ratios)
    low, high = _ends(ratios, middle)
    return Calibration(ratio=middle, low=low, high=high, records=len(ratios))


def told(records: Sequence[Forecast]) -> tuple[str, ...]:
    """How far the last forecasts were off, a line for each device and engine."""
    lines = []
    for device, engine in sorted({(r.device, r.engine) for r in records}):
        same = [r for r in records if (r.device, r.engine) == (device, engine)]
        last = same[-1]
        parts = [
            f"{one.name} {show_number(one.measured)} measured, "
            f"{show_number(one.predicted)} predicted"
            f" ({(one.ratio - 1) * 100:+.0f} %)"
            for one in last.compared
        ]
        found = calibration(same, device=device, engine=engine)
        median = f"; speeds of the last {found.records}: {found.words}" if found else ""
        lines.append(
            f"{engine} on {device}, release {last.release} at {last.requests} requests:"
            f" {', '.join(parts)}{median}"
        )
    return tuple(lines)


def measured(
    spec: DeviceSpec,
    *,
    matmul_flops_per_s: float | None = None,
    memory_read_bytes_per_s: float | None = None,
) -> DeviceSpec:
    """The device with its data sheet's rates replaced by those measured on this host, brought up
    to what a data sheet would say; other precisions follow the bf16 product's."""
    flops = matmul_flops_per_s / GEMM_RATIO if matmul_flops_per_s else spec.bf16_flops_per_s
    read = memory_read_bytes_per_s / READ_RATIO if memory_read_bytes_per_s else None
    times = flops / spec.bf16_flops_per_s
    return replace(
        spec,
        bf16_flops_per_s=flops,
        fp8_flops_per_s=spec.fp8_flops_per_s and spec.fp8_flops_per_s * times,
        int8_flops_per_s=spec.int8_flops_per_s and spec.int8_flops_per_s * times,
        fp4_flops_per_s=spec.fp4_flops_per_s and spec.fp4_flops_per_s * times,
        memory_bytes_per_s=read or spec.memory_bytes_per_s,
        source=f"{spec.source}; measured on this host" if times != 1 or read else spec.source,
    )


def _ends(ratios: Sequence[float], middle: float) -> tuple[float, float]:
    """About 90 %: a lone record's own spread, narrowed with the root of their number, and never
    inside what was seen (past twenty, inside all but the outermost)."""
    spread = LONE_SPREAD ** (1 / len(ratios) ** 0.5)
    cut = len(ratios) // 20
    ordered = sorted(ratios)
    return (
        min(ordered[cut], middle / spread),
        max(ordered[len(ordered) - 1 - cut], middle * spread),
    )

"""Measured serving points as cases, with what was measured beside them."""

import json
import pathlib
from dataclasses import dataclass, replace
from typing import Any

import yaml

from llmdeploy.edge import local
from llmdeploy.errors import InputError
from llmdeploy.estimate.case import Case
from llmdeploy.estimate.parse import case_line
from llmdeploy.estimate.parse_case import resolve
from llmdeploy.estimate.parse_model import Models
from llmdeploy.estimate.speed.coefficients import family

KNOWLEDGE = pathlib.Path(__file__).parents[4] / "shared" / "knowledge"
THROUGHPUT = KNOWLEDGE / "throughput_measured.jsonl"
MODELS = Models(store="/nonexistent", shell=local.LocalShell())


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measured load. None where it was not measured."""

    case: Case
    group: str
    scenario: str
    tpot_s: float | None
    ttft_s: float | None
    output_tokens_per_s: float | None
    odd: bool
    """The row's own numbers contradict each other, or its layout cannot be what it says."""
    late: bool = False
    """Something beside the load held first tokens back, which no key of a case tells."""
    drafted: bool = False
    """Tokens were drafted (speculative decoding), which no key of a case tells."""

    @property
    def family(self) -> str:
        return family(self.case.shape)

    @property
    def has_experts(self) -> bool:
        return self.case.shape.experts is not None

    @property
    def running(self) -> float | None:
        """Requests that decode at a time, by Little's law."""
        if self.case.concurrency is None or self.tpot_s is None:
            return None
        decoding_s = (self.case.output_tokens or 1) * self.tpot_s
        return self.case.concurrency * decoding_s / ((self.ttft_s or 0) + decoding_s)


def line(row: dict[str, Any], *, mended: bool = False) -> dict[str, Any]:
    """The keys of a batch case. `mended`: sizes multiplied twice in the source are taken back."""
    tp, ep, dp = row.get("tp"), row.get("ep"), row.get("dp")
    workers, gpus = row.get("attention_dp"), row.get("gpu_count")
    if (workers or 1) > 1:
        dp = workers
    if mended and row["group"].startswith("inferencex"):
        tp, dp, gpus = _mended(row)
    dtype = str(row["dtype"])
    found = {
        "model": row["model"],
        "quantization": None if dtype == "nan" else dtype,
        "engine": row["engine"],
        "engine_version": row.get("engine_version"),
        "gpu": row.get("gpu_id") or row["gpu"],
        "gpus": gpus,
        "hosts": row.get("nodes"),
        "interconnect": row.get("interconnect"),
        "tensor_parallel": tp,
        "pipeline_parallel": row.get("pp"),
        "data_parallel": dp,
        "expert_parallel": ep,
        "kv_cache_dtype": row.get("kv_dtype"),
        "max_num_seqs": row.get("max_num_seqs"),
        "input_tokens": row.get("input_len"),
        "output_tokens": row.get("output_len"),
        "concurrency": row.get("concurrency") or _static_batch(row),
        "request_rate_per_s": row.get("request_rate"),
    }
    return {key: value for key, value in found.items() if value is not None}


def _static_batch(row: dict[str, Any]) -> float | None:
    return row.get("batch") if row["scenario"].startswith(("static batch", "batch 1")) else None


def _mended(row: dict[str, Any]) -> tuple[int, int | None, int | None]:
    """TP, DP and devices where the source counts the expert group a second time."""
    tp, ep, workers = row.get("tp") or 1, row.get("ep") or 1, row.get("attention_dp") or 1
    if workers > 1 and ep == tp * workers and tp > 1:
        return tp, None, tp
    if workers > 1 and tp == 1:
        real = workers // ep if ep > 1 and workers >= ep * ep else workers
        return 1, real, real
    if tp > 8 and ep > 1 and tp % ep == 0:
        return tp // ep, None, tp // ep
    return tp, None, tp


def points(path: pathlib.Path = THROUGHPUT, *, mended: bool = False) -> list[Point]:
    """Every aggregated point whose case can be made; disaggregated serving is another regime."""
    found = []
    for number, text in enumerate(path.read_text().splitlines(), start=1):
        row = json.loads(text)
        if row["scenario"].startswith("PD-"):
            continue
        place = f"{path.name}:{number}"
        try:
            case = resolve(
                case_line(json.dumps(line(row, mended=mended)), place=place),
                place=place,
                models=MODELS,
            ).case
        except InputError:
            continue
        found.append(_point(row, case))
    return _twins_drafted(found)


def _point(row: dict[str, Any], case: Case) -> Point:
    def seconds(key: str) -> float | None:
        return row[key] / 1e3 if row.get(key) else None

    return Point(
        case=case,
        group=row["group"],
        scenario=row["scenario"],
        tpot_s=seconds("tpot_ms"),
        ttft_s=seconds("ttft_ms"),
        output_tokens_per_s=row.get("output_tps_total"),
        odd=_odd(row),
        late=_late(row),
        drafted=_drafted(row),
    )


def _odd(row: dict[str, Any]) -> bool:
    tp, ep, workers = row.get("tp") or 1, row.get("ep") or 1, row.get("attention_dp") or 1
    if row["group"].startswith("inferencex") and (tp > 8 or (workers > 1 and ep != workers)):
        return True
    if row["group"].startswith("mlc") and row["engine"] == "vLLM":
        return True  # of 2023, without a version: three times slower than any later one
    if row["engine"] == "TensorRT-LLM" and str(row.get("engine_version")).startswith("1.3"):
        return True  # time between tokens rises and falls tenfold with more callers
    if _shares_prefixes(row):
        return True
    if "OVERLOADED" in row["scenario"] or "OPEN division" in row["scenario"]:
        return True
    at_once, tpot_ms = row.get("concurrency"), row.get("tpot_ms")
    if not at_once or not tpot_ms or not row.get("output_tps_total"):
        return False
    whole_s = ((row.get("ttft_ms") or 0) + row["output_len"] * tpot_ms) / 1e3
    told = row["output_tps_total"] * whole_s / row["output_len"]
    return not 0.7 < told / at_once < 1.4


def _late(row: dict[str, Any]) -> bool:
    """TensorRT-LLM told to wait up to 20 steps for a fuller batch, and SGLang that compiled
    kernels during the run: 7 s to the first token at any load.
    Source: InferenceX `70b_fp4_b200_trt_slurm.sh` (batch_wait_timeout_iters); our reading.
    """
    if not row["group"].startswith("inferencex") or row.get("engine_version") is not None:
        return False
    if row["engine"] == "TensorRT-LLM" and "Llama" in row["model"]:
        return (row["input_len"], row["output_len"]) == (1024, 1024) and row["tp"] < 8
    return (
        row["engine"] == "SGLang" and "DeepSeek" in row["model"] and row["dtype"] == "fp4"
        and row.get("gpu_id") == "b200-sxm"
    )  # fmt: skip


def _twins_drafted(found: list[Point]) -> list[Point]:
    """Of two measurements of one launch of DeepSeek-V3 the one that is a tenth faster drafted.
    Source: our reading; its checkpoints hold the draft layer, and recipes run with and without.
    """
    slowest_s: dict[Case, float] = {}
    for point in found:
        slowest_s[point.case] = max(slowest_s.get(point.case, 0.0), point.tpot_s or 0.0)
    return [
        replace(p, drafted=True)
        if p.case.engine.name == "sglang" and p.family.startswith("DeepseekV3")
        and p.tpot_s is not None and p.tpot_s < 0.9 * slowest_s[p.case]
        else p
        for p in found
    ]  # fmt: skip


def _drafted(row: dict[str, Any]) -> bool:
    """Half of the time per token of the same launch a month before.
    Source: our reading; InferenceX `dsr1_fp4_b200_trt_mtp.sh` runs beside `dsr1_fp4_b200_trt.sh`.
    """
    if row["engine"] != "TensorRT-LLM" or "DeepSeek" not in row["model"]:
        return False
    version = str(row.get("engine_version"))
    return version == "1.2.0rc6.post3" or (
        version == "1.1.0rc2.post2" and str(row.get("date")) >= "2026"
    )


def _shares_prefixes(row: dict[str, Any]) -> bool:
    """Prompts that would take half of all peak rates by themselves: most of them was cached."""
    return (
        row["engine"] == "vLLM" and row.get("engine_version") == "0.12.0"
        and "8B" in row["model"] and row.get("gpu_id") == "h200-sxm"
    )  # fmt: skip


def own_points(path: pathlib.Path) -> list[Point]:
    """The repository's own cases: batch keys and the measured figures beside them."""
    found = []
    for number, entry in enumerate(yaml.safe_load(path.read_text())["cases"], start=1):
        place = f"{path.name}: case {number}"
        case = resolve(
            case_line(json.dumps(entry["case"]), place=place), place=place, models=MODELS
        ).case
        found.append(
            Point(
                case=case,
                group="own",
                scenario="own",
                tpot_s=entry.get("tpot_s"),
                ttft_s=entry.get("ttft_s"),
                output_tokens_per_s=entry.get("output_tokens_per_s"),
                odd=False,
            )
        )
    return found

"""Weights that engines logged beside what we count: public logs and our own cases."""

import json
import pathlib
from dataclasses import dataclass

from llmdeploy.catalog import models
from llmdeploy.errors import InputError
from llmdeploy.model import ModelShape, WeightFormat, suited, weight_format, weights_bytes

LOGS = pathlib.Path(__file__).parents[4] / "shared" / "knowledge" / "engine_memory_logs.jsonl"
OWN = (
    {"model": "Qwen/Qwen2.5-7B-Instruct", "gib": 14.2487},
    {"model": "Qwen/Qwen2-7B-Instruct", "tp": 2, "gib": 7.1217},
    {"model": "meta-llama/Llama-3.1-8B-Instruct", "gib": 14.9889},
    {"model": "meta-llama/Llama-3.1-70B-Instruct", "tp": 8, "gib": 16.4605},
    {"model": "RedHatAI/Qwen3-14B-FP8-dynamic", "gib": 15.3388},
    {"model": "openai/gpt-oss-20b", "gib": 13.7194},
    {"model": "openai/gpt-oss-120b", "tp": 4, "gib": 17.2217},
    {"model": "Qwen/Qwen2.5-14B-Instruct-AWQ", "gib": 9.3795},
    {"model": "Qwen/Qwen3-32B-AWQ", "gib": 18.145},
    {"model": "Qwen/Qwen3-30B-A3B", "tp": 2, "gib": 28.4571},
    {"model": "deepseek-ai/DeepSeek-R1", "tp": 16, "ep": True, "gib": 40.3174},
    {"model": "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B", "tp": 2, "gib": 13.9476},
    {"model": "google/gemma-4-26B-A4B", "gib": 48.5},
    {"model": "Qwen/Qwen3.5-27B", "tp": 4, "gib": 13.01},
)
"""What vLLM 0.6 to 0.19 printed as the weights of one device, GiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One launch: what was logged and what is counted, GiB."""

    name: str
    family: str
    format: str
    device: str
    drafted: bool
    """With a draft model, whose weights the log includes and a case does not name."""
    logged_gib: float
    counted_gib: float

    @property
    def error_ratio(self) -> float:
        return self.counted_gib / self.logged_gib - 1


def own() -> list[Compared]:
    """Our own cases."""
    return [
        compared(
            case["model"], logged_gib=case["gib"], tp=case.get("tp", 1), ep=case.get("ep", False)
        )
        for case in OWN
    ]


def public() -> tuple[list[Compared], list[str]]:
    """Public logs, and the names of models that are not known."""
    if not LOGS.exists():
        return [], []
    found, unknown = [], []
    for line in LOGS.read_text().splitlines():
        row = json.loads(line)
        logged = row["logged"].get("weights_gib_per_gpu")
        if logged is None:
            continue
        try:
            found.append(_row(row, logged))
        except InputError:
            unknown.append(str(row.get("model_hf_id")))
    return found, unknown


def _row(row, logged):
    asked = row["resolved"].get("quantization") or row["flags"].get("quantization")
    parallel = row["parallel"]
    return compared(
        row.get("model_hf_id") or "nothing",
        logged_gib=logged,
        asked=asked,
        dtype=row["resolved"].get("dtype"),
        tp=parallel.get("tp") or 1,
        pp=parallel.get("pp") or 1,
        ep=bool(parallel.get("expert_parallel")),
        device=row["gpu"].get("name") or "unknown",
        drafted=bool(row["flags"].get("speculative_config")),
    )


def compared(
    name, *, logged_gib, asked=None, dtype=None, tp=1, pp=1, ep=False, device="", drafted=False
):
    """One launch of a model by its name."""
    shape = models.find(name)
    held = _held(shape, asked)
    width = dtype if dtype in ("bfloat16", "float16", "float32") else None
    counted = weights_bytes(shape, held, dtype=width, tp=tp, pp=pp, ep=ep)
    return Compared(
        name=name,
        family=shape.architecture.removesuffix("ForCausalLM").removesuffix(
            "ForConditionalGeneration"
        ),
        format=held.method if held else "plain",
        device=device,
        drafted=drafted,
        logged_gib=logged_gib,
        counted_gib=counted / 2**30,
    )


def _held(shape: ModelShape, asked: str | None) -> WeightFormat | None:
    if shape.weight_format is not None or not asked:
        return shape.weight_format
    return suited(shape, weight_format(asked))

"""Public launch logs and our own cases as (case line, what the engine printed)."""

import functools
import json
import pathlib
import re
from dataclasses import dataclass
from typing import Any

KNOWLEDGE = pathlib.Path(__file__).parents[4] / "shared" / "knowledge"
OWN = pathlib.Path(__file__).with_name("cases.jsonl")
GIB = 2**30
UNSAID_FLAGS = (
    "enable_lora", "speculative_config", "speculative_algorithm", "max_total_tokens", "runner",
    "limit_mm_per_prompt", "language_model_only", "cpu_offload_gb", "swa_full_tokens_ratio",
)  # fmt: skip
"""Options that change memory and that a case line has no key for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One launch."""

    id: str
    line: dict[str, Any]
    engine: str
    version_class: str
    model: str
    device: str
    started: bool
    outcome: str
    weights_bytes: float | None
    cache_bytes: float | None
    tokens: float | None
    bytes_per_token: float | None
    concurrency: float | None
    unsaid: bool
    """Some option outside the case's keys changed the memory."""

    fraction_known: bool
    """Given, or known to be the default."""
    id_known: bool = True
    """The model's exact id, and with it the format of its weights."""
    command_known: bool = True
    """What else was set beside the options that the record holds: nothing."""

    @property
    def is_known(self) -> bool:
        """Device, fraction and length are known, and nothing else was set."""
        said = self.engine == "sglang" or self.line.get("max_model_len") is not None
        device = "gpu" in self.line or "gpu_memory_bytes" in self.line
        return said and self.fraction_known and device and not self.unsaid and self.model != ""


@functools.cache
def public() -> tuple[Row, ...]:
    """The launches of the knowledge folder; empty where it is not there."""
    path = KNOWLEDGE / "engine_memory_logs.jsonl"
    if not path.exists():
        return ()
    configs = json.loads((KNOWLEDGE / "model_configs.json").read_text())
    return tuple(_row(json.loads(text), configs) for text in path.read_text().splitlines())


def own() -> tuple[Row, ...]:
    """The repository's own cases."""
    return tuple(_own(json.loads(text)) for text in OWN.read_text().splitlines())


def _own(tree: dict[str, Any]) -> Row:
    line, printed = tree["case"], tree["printed"]
    size = printed.get("kv_cache_gib")
    return Row(
        id=tree["id"], line=line, engine=line["engine"],
        version_class=version_class(line["engine"], line.get("engine_version"), None),
        model=line["model"], device=line.get("gpu", ""), started=printed["started"],
        outcome=printed.get("outcome", "started"), weights_bytes=None,
        cache_bytes=size * GIB if size else None, tokens=printed.get("tokens"),
        bytes_per_token=printed.get("bytes_per_token"), concurrency=printed.get("concurrency"),
        unsaid=False, fraction_known="memory_fraction" in line,
    )  # fmt: skip


def _row(log: dict[str, Any], configs: dict[str, Any]) -> Row:
    flags, logged = log["flags"], log["logged"]
    cache, tokens = _cache_gib(logged), _tokens(log)
    weights = logged.get("weights_gib_per_gpu") or logged.get("weights_mem_usage_gb")
    names = [name for name in (log.get("model_hf_id"), log.get("architecture_base")) if name]
    return Row(
        id=log["id"],
        line=_line(log, names, configs),
        engine=log["engine"],
        version_class=version_class(
            log["engine"], log.get("engine_version") or told_version(log), log.get("engine_core")
        ),
        model=names[0] if names else "",
        device=log["gpu"].get("name") or "",
        started=log["kind"] == "ok",
        outcome=log["outcome"],
        weights_bytes=weights * GIB if weights else None,
        cache_bytes=cache * GIB if cache is not None else None,
        tokens=tokens,
        bytes_per_token=cache * GIB / tokens if cache and tokens and cache > 0 else None,
        concurrency=logged.get("max_concurrency_x"),
        fraction_known=not any(
            note.startswith(("gpu_memory_utilization", "mem_fraction")) for note in log["missing"]
        ),
        id_known="exact HF id" not in log["missing"],
        command_known="exact command" not in log["missing"],
        unsaid=_unsaid(flags) or bool(logged.get("extra_pools")),
    )


def version_class(engine: str, version: str | None, core: str | None) -> str:
    """Versions that account alike."""
    if engine != "vllm":
        return "any"
    if core == "V0":
        return "V0"
    if not version or version.startswith(("0.1.dev", "dev")):
        return "unknown"
    minor = int(version.split(".")[1])
    if minor < 8:
        return "V0"
    for last, name in ((8, "0.8"), (11, "0.9-0.11"), (15, "0.12-0.15"), (20, "0.16-0.20")):
        if minor <= last:
            return name
    return "0.21-"


def told_version(log: dict[str, Any]) -> str | None:
    """A version that the log tells without naming it: the first core's last, or the last one that
    printed the tokens of blocks over groups, where they are not concurrency x length.

    Source: vLLM 0.20 `get_kv_cache_capacity`: what is printed since is that product.
    """
    logged = log["logged"]
    if log.get("engine_core") == "V0":
        return "0.6.6"
    times, length = logged.get("max_concurrency_x"), logged.get("max_concurrency_request_tokens")
    printed = logged.get("kv_cache_tokens")
    if log["engine"] != "vllm" or not (times and length and printed):
        return None
    return None if abs(printed / (times * length) - 1) < 0.02 else "0.19.0"


def _cache_gib(logged: dict[str, Any]) -> float | None:
    if logged.get("available_kv_cache_gib") is not None:
        return float(logged["available_kv_cache_gib"])
    size = sum(logged.get(key) or 0 for key in ("k_size_gb", "v_size_gb", "kv_size_gb"))
    return float(size) if size and not logged.get("extra_pools") else None


def _tokens(log: dict[str, Any]) -> float | None:
    logged = log["logged"]
    for key in ("max_total_num_tokens", "kv_cache_tokens", "max_batch_total_tokens"):
        if logged.get(key):
            return float(logged[key])
    if logged.get("gpu_blocks"):
        return float(logged["gpu_blocks"] * (log["flags"].get("block_size") or 16))
    return None


def _line(log: dict[str, Any], names: list[str], configs: dict[str, Any]) -> dict[str, Any]:
    """The case line of a log: only keys that a user of `estimate --batch` has."""
    flags, resolved, gpu = log["flags"], log["resolved"], log["gpu"]
    total = gpu.get("total_mem_gib_logged") or log["logged"].get("total_mem_gib")
    length = ("max_model_len", "context_length", "n_ctx")
    sequences = ("max_num_seqs", "max_running_requests")
    line = _model(names, configs) | {
        "quantization": flags.get("quantization") or resolved.get("quantization"),
        "engine": log["engine"],
        "engine_version": log.get("engine_version") or told_version(log),
        "gpu": gpu.get("name"),
        "gpu_memory_bytes": round(total * GIB) if total else None,
        "gpus": gpu.get("count"),
        "hosts": log.get("nodes"),
        "tensor_parallel": log["parallel"].get("tp"),
        "pipeline_parallel": log["parallel"].get("pp"),
        "data_parallel": log["parallel"].get("dp"),
        "expert_parallel": log["parallel"].get("expert_parallel") or log["parallel"].get("ep"),
        "memory_fraction": flags.get("gpu_memory_utilization")
        or flags.get("mem_fraction_static")
        or flags.get("kv_cache_free_gpu_mem_fraction"),
        "max_model_len": _first(flags, *length) or _first(resolved, *length),
        "kv_cache_dtype": flags.get("kv_cache_dtype") or resolved.get("kv_cache_dtype"),
        "dtype": resolved.get("dtype") or flags.get("dtype"),
        "max_num_seqs": _first(flags, *sequences),
        "max_num_batched_tokens": _batched(flags, resolved),
        "enforce_eager": _eager(flags, resolved),
        "speculative_tokens": _drafted(flags),
    }
    return {key: value for key, value in line.items() if value is not None}


def _model(names: list[str], configs: dict[str, Any]) -> dict[str, Any]:
    from llmdeploy.catalog import models
    from llmdeploy.errors import InputError

    for name in names:
        try:
            models.find(name)
        except InputError:
            continue
        return {"model": name}
    for name in names:
        if config := configs.get(name, {}).get("config"):
            return {"model": name, "model_config": config}
    return {"model": names[0]} if names else {}


def _batched(flags: dict[str, Any], resolved: dict[str, Any]) -> int | None:
    chunk = flags.get("chunked_prefill_size")
    printed = resolved.get("max_num_batched_tokens_logged")
    if flags.get("max_num_batched_tokens"):
        return int(flags["max_num_batched_tokens"])
    if printed:
        return int(printed[-1])
    return int(chunk) if chunk and chunk > 0 else None


def _unsaid(flags: dict[str, Any]) -> bool:
    told = {"speculative_config"} if _drafted(flags) else set()
    return any(flags.get(flag) for flag in UNSAID_FLAGS if flag not in told)


def _drafted(flags: dict[str, Any]) -> int | None:
    """Tokens drafted by the model's own layers; None: none are, or by another model."""
    said = str(flags.get("speculative_config") or "").lower()
    number = re.search(r"num_speculative_tokens\D+(\d+)|mtp, (\d+) tokens", said)
    if "mtp" not in said or "'model'" in said or number is None:
        return None
    return int(number[1] or number[2])


def _eager(flags: dict[str, Any], resolved: dict[str, Any]) -> bool | None:
    for tree, key in (
        (flags, "enforce_eager"),
        (resolved, "enforce_eager"),
        (flags, "disable_cuda_graph"),
    ):
        if tree.get(key) is not None:
            return bool(tree[key])
    return None


def _first(tree: dict[str, Any], *keys: str) -> Any:
    return next((tree[key] for key in keys if tree.get(key)), None)

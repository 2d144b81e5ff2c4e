"""What a worker may take of the machine's memory, from files of the kernel and of the model."""

import json
import math
import pathlib
import struct
from dataclasses import dataclass
from typing import Any

from llmdeploy.engine.settings import EngineSettings
from llmdeploy.errors import InputError, Refused

_ELEMENT_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
_LINEAR_BYTES = {"int8": 1.0, "nf4": 0.5 + 4 / 64}
"""Bytes a number of a quantised linear layer takes: nf4 has an fp32 scale for each 64 numbers."""

_QUANTIZING_BYTES = 1100 * 10**6
"""What a worker takes on top while bitsandbytes quantises (0.7 to 1.1 GB measured)."""

_PROCESS_BYTES = 420 * 2**20
"""Resident memory of a worker with torch and transformers loaded and no model, measured 400 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """What the model's files say of its size."""

    parameters: int
    linear_parameters: int
    """Of them, those that quantisation shrinks: matrices but the embedding and the head."""
    kv_bytes_per_token: int
    kv_heads: int
    heads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNeed:
    """What all workers of one endpoint hold, in bytes."""

    weights_bytes: int
    """One copy of the weights as the model library loads them."""
    packed_bytes: int
    """The copies packed for fast products, over all workers."""
    kv_bytes: int
    total_bytes: int


def read_model(folder: str, *, dtype: str) -> ModelFiles:
    """Parameters, heads and KV bytes per token of the model in `folder`; InputError if damaged."""
    root = pathlib.Path(folder)
    config = _config(root)
    heads = int(config["num_attention_heads"])
    kv_heads = int(config.get("num_key_value_heads") or heads)
    head_dim = int(config.get("head_dim") or config["hidden_size"] // heads)
    kv_numbers = 2 * int(config["num_hidden_layers"]) * kv_heads * head_dim
    shards = sorted(root.glob("*.safetensors"))
    if not shards:
        raise InputError(
            f"{root}: found no *.safetensors, needed the model's weights",
            fix="add the model again: llmdeploy models add",
        )
    tensors = {name: n for shard in shards for name, n in _tensors(shard).items()}
    kept = ("embed", "lm_head", "norm", "bias")
    return ModelFiles(
        parameters=sum(tensors.values()),
        linear_parameters=sum(n for name, n in tensors.items() if not any(k in name for k in kept)),
        kv_bytes_per_token=kv_numbers * _ELEMENT_BYTES[dtype],
        kv_heads=kv_heads,
        heads=heads,
    )


def _config(root: pathlib.Path) -> dict[str, Any]:
    path = root / "config.json"
    try:
        config = json.loads(path.read_text())
        return dict(config.get("text_config") or config)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path}: {error}", fix="give --model the folder of a model with config.json"
        ) from error


def _tensors(shard: pathlib.Path) -> dict[str, int]:
    """Numbers in each tensor of the file, which must be as long as its header says."""
    size_bytes = shard.stat().st_size
    damaged = "add the model again: its file is cut off or damaged"
    try:
        with shard.open("rb") as file:
            (header_bytes,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(header_bytes))
    except (ValueError, struct.error, OverflowError, MemoryError) as error:
        raise InputError(f"{shard}: no safetensors header: {error}", fix=damaged) from error
    header.pop("__metadata__", None)
    ends = [tensor["data_offsets"][1] for tensor in header.values()]
    needed_bytes = 8 + header_bytes + max(ends, default=0)
    if size_bytes < needed_bytes:
        raise InputError(
            f"{shard}: {size_bytes} bytes, its header says {needed_bytes}", fix=damaged
        )
    return {name: math.prod(tensor["shape"]) for name, tensor in header.items()}


def memory_need(model: ModelFiles, settings: EngineSettings) -> MemoryNeed:
    """What all workers hold once the model is loaded and the KV cache is there.

    Each data-parallel worker has its own weights, and on CPU a second, packed copy; the KV cache is
    divided among them. Tensor-parallel ranks divide weights and KV heads.
    """
    element_bytes = _ELEMENT_BYTES[settings.dtype]
    quantized = settings.quantization != "none"
    linear_bytes = _LINEAR_BYTES.get(settings.quantization, element_bytes) * model.linear_parameters
    kept_parameters = model.parameters - model.linear_parameters
    weights_bytes = kept_parameters * element_bytes + round(linear_bytes)
    packs = settings.device == "cpu" and not quantized and settings.tensor_parallel == 1
    packed_bytes = weights_bytes if packs else 0
    kv_bytes = settings.kv_cache_tokens * model.kv_bytes_per_token
    processes = settings.data_parallel * settings.tensor_parallel
    return MemoryNeed(
        weights_bytes=weights_bytes,
        packed_bytes=packed_bytes * settings.data_parallel,
        kv_bytes=kv_bytes,
        total_bytes=(weights_bytes + packed_bytes) * settings.data_parallel
        + kv_bytes
        + processes * (_PROCESS_BYTES + (_QUANTIZING_BYTES if quantized else 0)),
    )


def check_memory(need: MemoryNeed, *, free_bytes: int, model: ModelFiles) -> None:
    """Refused where the workers do not fit, with the KV size that would."""
    if need.total_bytes <= free_bytes:
        return
    for_kv_bytes = free_bytes - (need.total_bytes - need.kv_bytes)
    tokens = max(0, for_kv_bytes // model.kv_bytes_per_token)
    fix = f"set --kv-cache-tokens to at most {tokens}"
    if tokens < 1024:
        fix = "give the host or its cgroup more memory, or use fewer workers or --quantization"
    raise Refused(
        f"the engine needs {need.total_bytes} bytes (of it {need.kv_bytes} of KV cache), "
        f"{free_bytes} bytes are free",
        fix=fix,
    )


def free_memory_bytes(*, root: pathlib.Path = pathlib.Path("/")) -> int:
    """Bytes this process may still take: the machine's, or what its cgroups (v1, v2) leave."""
    meminfo = (root / "proc/meminfo").read_text()
    fields = {line.split(":")[0]: line.split()[1] for line in meminfo.splitlines() if ":" in line}
    free = [int(fields["MemAvailable"]) * 1024]
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            free += _left(root / "sys/fs/cgroup", path, "memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
            free += _left(root / "sys/fs/cgroup/memory", path, *names)
    return max(0, min(free))


def _left(mount: pathlib.Path, path: str, limit: str, used: str) -> list[int]:
    """What each group from `path` up to the mount leaves; page cache counts as free."""
    left = []
    group = mount / path.lstrip("/")
    for folder in (group, *group.parents):
        if not folder.is_relative_to(mount):
            break
        text = _read(folder / limit)
        if text.isdigit() and int(text) < 2**60:  # v1 writes about 2^63 for "no limit"
            reclaimable = _reclaimable_bytes(_read(folder / "memory.stat"))
            left.append(int(text) - int(_read(folder / used) or 0) + reclaimable)
    return left


def _reclaimable_bytes(stat: str) -> int:
    fields = dict(line.split() for line in stat.splitlines())
    return int(fields.get("inactive_file", fields.get("total_inactive_file", 0)))


def _read(path: pathlib.Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def check_parallel(model: ModelFiles, settings: EngineSettings) -> None:
    """Refused for a split of the model that would load and then fail at its first step."""
    ranks = settings.tensor_parallel
    if ranks == 1:
        return
    if settings.quantization != "none":
        raise Refused(
            f"--quantization {settings.quantization} with --tensor-parallel {ranks}: "
            "bitsandbytes weights cannot be split over processes",
            fix="use --quantization none, or --tensor-parallel 1",
        )
    for name, heads in (("attention heads", model.heads), ("KV heads", model.kv_heads)):
        if heads % ranks:
            raise Refused(
                f"the model's {heads} {name} do not divide by --tensor-parallel {ranks}",
                fix=f"use --tensor-parallel {_largest_divisor(model, ranks)}",
            )


def _largest_divisor(model: ModelFiles, ranks: int) -> int:
    fitting = [n for n in range(1, ranks + 1) if model.heads % n == 0 and model.kv_heads % n == 0]
    return max(fitting)

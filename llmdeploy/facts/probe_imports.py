"""Sent as text to the host's Python: really imports the engine's packages and measures the CPU.

    python -c PROGRAM MODEL_FOLDER MEASURE

Prints JSON lines, one before and one after each import, so that a crash or a hang
names its package. Rates are taken in the same process because importing torch costs seconds.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
import warnings

from llmdeploy.facts.probe_show import show

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs more than the rest where there is nothing to import
    from collections.abc import Callable
    from typing import Any

NEEDED = ("torch", "transformers", "safetensors", "accelerate", "uvicorn", "psutil", "bitsandbytes")
ROUND_S = 0.4
"""How long each speed is measured; the best round counts, since a host is never quite idle."""


def load(name: str) -> Any:
    """The imported package, None where it does not import."""
    show("import", at="begin", name=name, duration_s=None, error=None)
    begun = time.perf_counter()
    module, error = None, None
    try:
        module = importlib.import_module(name)
        if name == "transformers":
            _ = module.AutoModelForCausalLM  # it imports lazily: this makes it real
    except Exception as caught:  # noqa: BLE001  # whatever it is, the engine would meet it too
        lines = f"{type(caught).__name__}: {caught}".strip().splitlines()
        module, error = None, lines[0]
    show("import", at="end", name=name, duration_s=time.perf_counter() - begun, error=error)
    return module


def best_s(work: Callable[..., Any], *given: Any) -> float:
    """Shortest of the rounds that fit into ROUND_S, in seconds; the first one only warms up."""
    work(*given)
    shortest: float | None = None
    end = time.perf_counter() + ROUND_S
    while shortest is None or time.perf_counter() < end:
        begun = time.perf_counter()
        work(*given)
        taken = time.perf_counter() - begun
        shortest = taken if shortest is None else min(shortest, taken)
    return shortest


def rates(torch: Any) -> None:
    """Measured speeds: product and memory read on one thread, memory read on all.

    The product is of the type that the plan's `auto` takes: fp32 where bf16 is slower.
    """
    cores = len(os.sched_getaffinity(0))
    torch.set_num_threads(1)
    rows, inner, columns = 256, 1024, 1024
    flops = 2 * rows * inner * columns
    fastest = 0.0
    for dtype in (torch.bfloat16, torch.float32):
        left = torch.ones(rows, inner, dtype=dtype)
        right = torch.ones(inner, columns, dtype=dtype)
        fastest = max(fastest, flops / best_s(left.mm, right))
    show("rate", fact="core_matmul_flops_per_s", value=fastest)
    block = torch.ones(2**26, dtype=torch.float32)  # 256 MiB: past any cache
    size = block.numel() * block.element_size()
    one_core = size / best_s(block.sum)
    show("rate", fact="core_memory_read_bytes_per_s", value=one_core)
    torch.set_num_threads(cores)
    show("rate", fact="memory_read_bytes_per_s", value=max(one_core, size / best_s(block.sum)))


def cuda(torch: Any) -> None:
    """Devices that torch can use, and what it was built for."""
    there = torch.cuda.is_available()
    try:
        nccl = ".".join(str(part) for part in torch.cuda.nccl.version()) if there else None
    except Exception:  # noqa: BLE001  # torch without NCCL
        nccl = None
    show(
        "cuda",
        devices=torch.cuda.device_count() if there else 0,
        version=getattr(torch.version, "cuda", None) or getattr(torch.version, "hip", None),
        architectures=torch.cuda.get_arch_list() if there else [],
        nccl=nccl,
    )


def devices(bitsandbytes: Any, torch: Any) -> None:
    """Devices bitsandbytes has kernels for."""
    names = getattr(bitsandbytes, "supported_torch_devices", None)
    if names is None:
        names = {"cuda"} if torch.cuda.is_available() else set()
    show("bitsandbytes", devices=sorted(names))


def architecture(transformers: Any, folder: str) -> None:
    """Whether transformers has the class that the model's config names."""
    import json  # transformers has it already

    try:
        with open(os.path.join(folder, "config.json")) as file:
            names = json.load(file).get("architectures") or []
    except (OSError, ValueError):
        return
    show("architecture", known=bool(names) and all(hasattr(transformers, n) for n in names))


def main() -> None:
    warnings.simplefilter("ignore")
    folder, measure = sys.argv[1:3]
    modules = {name: load(name) for name in NEEDED if name != "bitsandbytes"}
    torch, transformers = modules["torch"], modules["transformers"]
    if torch:
        cuda(torch)
    if torch and measure == "yes":
        with torch.inference_mode():
            rates(torch)
    if transformers:
        architecture(transformers, folder)
    bitsandbytes = load("bitsandbytes")  # last: its native code is the likeliest to crash
    if torch and bitsandbytes:
        devices(bitsandbytes, torch)


main()

"""Sent to a host: products with known answers, memory patterns and copies between its devices.

    python - '{"tests": ["product", "pattern", "copy"], "cpu": true, "test_s": …, "limit_s": …,
               "size": …, "cpu_size": …, "most_bytes": …, "cpu_bytes": …}'

Every test is told before it begins, so that a hang or crash names its device and test.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

from llmdeploy.facts.active.program_watch import arm, show

ROWS = 64
"""Rows of the left factor repeat after so many, so a few known rows give the whole answer."""
FILLS = (0, -1, 0x5555555555555555, -0x5555555555555556)
FREE_RATIO = 0.9
"""Of a device's free memory that may be tested. Source: own choice."""
MOST_TAKEN_RATIO = 0.1
"""Of a device's memory: beyond it something runs there. Source: own choice."""
KINDS = ("cuda", "npu", "xpu")


def main() -> None:
    asked = json.loads(sys.argv[1])
    arm(asked["limit_s"])
    try:
        torch = importlib.import_module("torch")
    except Exception as error:  # noqa: BLE001  # whatever it is, the engine would meet it too
        show("problem", reason=f"torch does not import: {type(error).__name__}: {error}")
        return
    there = list(accelerators(torch))
    show("devices", accelerators=len(there), built=built(torch))
    devices = [device for device in there if unused(torch, device, asked["tests"])]
    for device in devices + (["cpu"] if asked["cpu"] else []):
        for test in asked["tests"]:
            if test == "copy":
                continue
            tried(test, device, lambda d=device, t=test: TESTS[t](torch, d, asked))
    if "copy" in asked["tests"]:
        for source in devices:
            for target in devices:
                if source != target:
                    tried("copy", f"{source} to {target}",
                          lambda s=source, t=target: copy(torch, s, t))  # fmt: skip
    show("done")


def unused(torch: Any, device: str, tests: list[str]) -> bool:
    """Whether nothing else runs on the device; what does must not be disturbed."""
    free_bytes, whole_bytes = getattr(torch, device.partition(":")[0]).mem_get_info(device)
    taken_ratio = 1 - free_bytes / whole_bytes
    if taken_ratio <= MOST_TAKEN_RATIO:
        return True
    for test in tests:
        show("error", test=test, device=device, reason=f"{taken_ratio:.0%} of its memory is taken")
    return False


def tried(test: str, place: str, work: Any) -> None:
    """Does the work; an error of any class is shown as the test's answer."""
    show("enter", test=test, device=place)
    try:
        work()
    except Exception as error:  # noqa: BLE001  # the driver's errors are of any class
        lines = f"{type(error).__name__}: {error}".strip().splitlines()
        show("error", test=test, device=place, reason=lines[0][:300])


def built(torch: Any) -> str:
    """What this torch was built for: `CUDA`, `ROCm` or `no accelerator`."""
    kinds = {"cuda": "CUDA", "hip": "ROCm"}
    found = [word for name, word in kinds.items() if getattr(torch.version, name, None)]
    return found[0] if found else "no accelerator"


def accelerators(torch: Any) -> Iterator[str]:
    """Devices that torch sees, of the first kind that has any."""
    with contextlib.suppress(ImportError):  # no Ascend here
        importlib.import_module("torch_npu")
    for kind in KINDS:
        module = getattr(torch, kind, None)
        count = module.device_count() if module is not None and module.is_available() else 0
        if count:
            yield from (f"{kind}:{number}" for number in range(count))
            return


def settle(torch: Any, device: str) -> None:
    """Waits until the device has done what it was given; a CPU has."""
    if device != "cpu":
        getattr(torch, device.partition(":")[0]).synchronize(device)


def title(torch: Any, device: str) -> str:
    """The device's name as its driver prints it."""
    if device == "cpu":
        return "cpu"
    return str(getattr(torch, device.partition(":")[0]).get_device_name(device))


def product(torch: Any, device: str, asked: dict[str, Any]) -> None:
    """Whole numbers that every type holds; sums of products stay exact in any order."""
    if device.startswith("cuda"):  # sums of parts must not be rounded before the end
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    size = asked["cpu_size"] if device == "cpu" else asked["size"]
    kinds = ("float32", "bfloat16") if device == "cpu" else ("bfloat16", "float16", "float32")
    for kind in kinds:
        dtype = getattr(torch, kind)
        left, right = factors(torch, size)
        known = (left[:ROWS].double() @ right.double()).to(dtype).repeat(size // ROWS, 1)
        left, right, known = (m.to(dtype).to(device) for m in (left, right, known))
        rate, wrong = rated(torch, device, (left, right, known), budget_s=asked["test_s"])
        show("product", device=device, name=title(torch, device), dtype=kind, size=size,
             flops_per_s=rate, wrong=wrong)  # fmt: skip


def factors(torch: Any, size: int) -> tuple[Any, Any]:
    """-1, 0 and 1 in a pattern of the place, the left one repeating after ROWS rows."""
    row = torch.arange(size).reshape(-1, 1)
    column = torch.arange(size).reshape(1, -1)
    left = ((row % ROWS) * 7 + column * 11 + (column * column) % 13) % 3 - 1
    right = (row * 5 + column * 3 + (row * column) % 17) % 3 - 1
    return left.float(), right.float()


def rated(torch: Any, device: str, matrices: tuple[Any, Any, Any], *, budget_s: float) -> Any:
    """FLOP/s of the fastest round, and wrong elements of the first and the last answer."""
    left, right, known = matrices
    wrong = int((answered(left @ right) != known).sum().item())
    settle(torch, device)
    flops, best_s, repeats = 2 * len(left) ** 3, float("inf"), 1
    end_s = time.perf_counter() + budget_s
    while time.perf_counter() < end_s:
        begun_s = time.perf_counter()
        for _ in range(repeats):
            answer = left @ right
        settle(torch, device)
        taken_s = (time.perf_counter() - begun_s) / repeats
        best_s = min(best_s, taken_s)
        repeats = max(1, min(100, int(0.1 / taken_s)))
    return flops / best_s, wrong + int((answered(answer) != known).sum().item())


def answered(answer: Any) -> Any:
    """The answer as it came."""
    return answer


def free_bytes(torch: Any, device: str, asked: dict[str, Any]) -> int:
    """Memory that the test may take on the device, in bytes."""
    if device == "cpu":
        with open("/proc/meminfo") as file:
            kib = next(int(ln.split()[1]) for ln in file if ln.startswith("MemAvailable"))
        return int(min(asked["cpu_bytes"], kib * 1024 // 4))
    module = getattr(torch, device.partition(":")[0])
    return int(min(asked["most_bytes"], FREE_RATIO * module.mem_get_info(device)[0]))


def pattern(torch: Any, device: str, asked: dict[str, Any]) -> None:
    """Constants, then every word its own place: a wrong address shows as well as a wrong bit."""
    words = free_bytes(torch, device, asked) // 8 // 2  # half: comparing needs as much again
    memory = torch.empty(words, dtype=torch.int64, device=device)
    wrong, read_s = 0, float("inf")
    for fill in FILLS:
        memory.fill_(fill)
        settle(torch, device)
        wrong += differing(memory, fill)
        begun_s = time.perf_counter()
        memory.sum()
        settle(torch, device)
        read_s = min(read_s, time.perf_counter() - begun_s)
    part = max(1, words // 8)
    for start in range(0, words, part):
        end = min(words, start + part)
        torch.arange(start, end, out=memory[start:end])
    for start in range(0, words, part):
        end = min(words, start + part)
        wrong += int((memory[start:end] != torch.arange(start, end, device=device)).sum().item())
    show("pattern", device=device, tested_bytes=words * 8, wrong=wrong,
         read_bytes_per_s=words * 8 / read_s)  # fmt: skip


def differing(memory: Any, fill: int) -> int:
    """How many words of the memory hold another number than `fill`."""
    return sum(int((part != fill).sum().item()) for part in memory.chunk(8))


def copy(torch: Any, source: str, target: str) -> None:
    words = (64 << 20) // 8
    mine = torch.arange(words, device=source) * 2654435761
    there = torch.zeros(words, dtype=torch.int64, device=target)
    best_s = float("inf")
    for _ in range(5):
        settle(torch, source)
        begun_s = time.perf_counter()
        there.copy_(mine)
        settle(torch, source)
        settle(torch, target)
        best_s = min(best_s, time.perf_counter() - begun_s)
    known = torch.arange(words, device=target) * 2654435761
    ask = getattr(getattr(torch, source.partition(":")[0]), "can_device_access_peer", None)
    numbers = [int(device.partition(":")[2]) for device in (source, target)]
    show("copy", source=source, target=target, wrong=int((there != known).sum().item()),
         bytes_per_s=words * 8 / best_s, direct=bool(ask(*numbers)) if ask else None)  # fmt: skip


TESTS = {"product": product, "pattern": pattern}


if __name__ == "__main__":
    if os.environ.get("OMP_NUM_THREADS") is None:
        os.environ["OMP_NUM_THREADS"] = str(len(os.sched_getaffinity(0)))
    main()

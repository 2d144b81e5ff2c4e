"""Prints how many speed estimates and pace calls a second one core gives.

`python -m tests.bench.speed`; wanted: 400 estimates and 100,000 decoding steps a second.
"""

import time

from llmdeploy.catalog import devices, engines, models
from llmdeploy.estimate import speed
from llmdeploy.estimate.case import Case


def cases() -> list[Case]:
    made = []
    for name, tensor_parallel in (("Qwen/Qwen3-8B", 1), ("deepseek-ai/DeepSeek-V3", 8)):
        shape = models.find(name)
        for callers in range(1, 101):
            made.append(
                Case(
                    shape=shape,
                    weight_format=shape.weight_format,
                    engine=engines.find("vllm"),
                    device=devices.find("h200"),
                    device_memory_bytes=None,
                    tensor_parallel=tensor_parallel,
                    input_tokens=1024.0,
                    output_tokens=256.0,
                    concurrency=float(callers),
                )
            )
    return made


def main() -> None:
    every = cases()
    begin = time.perf_counter()
    for case in every:
        speed.estimate(case)
    print(f"{len(every) / (time.perf_counter() - begin):,.0f} estimates/s")
    for case in (every[0], every[-1]):
        pace, begin = speed.pace(case), time.perf_counter()
        for n in range(20_000):
            pace.decode_step_s(n % 100 + 1, 1000)
        rate = 20_000 / (time.perf_counter() - begin)
        print(f"{rate:,.0f} decoding steps/s, {case.shape.architecture}")


if __name__ == "__main__":
    main()

"""Times `llmdeploy estimate --batch`: cases a second, of memory alone and with speed.

    python tests/bench/estimate.py --cases 2000

Cases differ in model, device, engine, version, TP, lengths and load, so that only looked up names
are met twice. Memory alone: cases that give the device's memory and not its name. Needed: at least
500 cases/s of memory and 200 of speed, on one core.
"""

import argparse
import itertools
import json
import sys
import time

from llmdeploy.edge.local import LocalShell
from llmdeploy.estimate.batch import answers
from llmdeploy.estimate.parse_model import Models

MODELS = (
    "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen3-8B",
    "Qwen/Qwen3-30B-A3B", "mistralai/Mixtral-8x7B-Instruct-v0.1", "google/gemma-3-27b-it",
    "meta-llama/Llama-3.3-70B-Instruct", "deepseek-ai/DeepSeek-V3",
)  # fmt: skip
DEVICES = ("h100-sxm", "NVIDIA A100-SXM4-80GB", "rtx4090", "h200-sxm", "mi300x", "l40s")
ENGINES = (("vllm", "0.11.0"), ("vLLM", "0.8.5"), ("sglang", "0.5.4"), ("TensorRT-LLM", "1.0.0"))
NEEDED_PER_S = {"memory": 500, "speed": 200}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=2000, help="cases of each kind")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = {
        kind: rate_per_s(lines(options.cases, with_speed=kind == "speed")) for kind in NEEDED_PER_S
    }
    if options.json:
        print(json.dumps({f"{kind}_cases_per_s": rate for kind, (rate, _) in found.items()}))
    else:
        for kind, (rate, errors) in found.items():
            needed = NEEDED_PER_S[kind]
            print(f"{kind:7} {rate:8.0f} cases/s of CPU time, needed {needed}; {errors} errors")
    if any(rate < NEEDED_PER_S[kind] for kind, (rate, _) in found.items()):
        sys.exit(1)


def lines(count: int, *, with_speed: bool) -> list[str]:
    """That many cases, no two alike."""
    mixed = itertools.cycle(itertools.product(MODELS, DEVICES, ENGINES))
    made = []
    for number, (model, gpu, (engine, version)) in zip(range(count), mixed, strict=False):
        case = {"model": model, "engine": engine, "engine_version": version,
                "tensor_parallel": (1, 2, 4)[number % 3], "max_model_len": 4096 + number,
                "memory_fraction": 0.9}  # fmt: skip
        if with_speed:
            case |= {"gpu": gpu, "input_tokens": 500 + number, "output_tokens": 100 + number % 400,
                     "concurrency": 1 + number % 128}  # fmt: skip
        else:
            case |= {"gpu_memory_bytes": (24, 40, 48, 80, 141, 192)[number % 6] * 2**30}
        made.append(json.dumps(case))
    return made


def rate_per_s(cases: list[str]) -> tuple[float, int]:
    """Cases a second of CPU time, which other programs on the machine do not change, after each
    name was looked up once; and how many had no answer."""
    models = Models(store="/nowhere", shell=LocalShell())
    for _ in answers(cases[:200], place="warm", models=models):
        pass
    start_s = time.process_time()
    errors = sum(text.startswith('{"error"') for text in answers(cases, place="b", models=models))
    return len(cases) / (time.process_time() - start_s), errors


if __name__ == "__main__":
    main()

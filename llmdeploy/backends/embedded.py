"""How the embedded engine is started: `python -m llmdeploy.engine` and its settings' flags."""

from llmdeploy.backends.spec import DrillSpec, EngineCommand, Place, ServeSpec


def command(serve: ServeSpec, place: Place) -> EngineCommand:
    """Argv and environment of one replica; nothing is left to the engine's own defaults."""
    options = {
        "--model": place.model_folder,
        "--served-name": serve.served_name,
        "--host": place.address,
        "--port": str(place.port),
        "--device": serve.device,
        "--dtype": serve.dtype,
        "--quantization": serve.quantization,
        "--tensor-parallel": str(serve.tensor_parallel),
        "--data-parallel": str(serve.data_parallel),
        "--threads-per-worker": str(serve.threads_per_worker),
        "--cores": ",".join(str(core) for core in place.cores),
        "--max-model-len": str(serve.max_model_len),
        "--max-num-seqs": str(serve.max_num_seqs),
        "--max-num-batched-tokens": str(serve.max_num_batched_tokens),
        "--max-queue": str(serve.max_queue),
        "--kv-cache-tokens": str(serve.kv_cache_tokens),
        "--batch-window-s": f"{serve.batch_window_s:.12g}",
        "--request-timeout-s": f"{serve.request_timeout_s:.12g}",
        "--drain-timeout-s": f"{serve.drain_timeout_s:.12g}",
        "--log-level": serve.log_level,
    }
    drill = _drill(serve.drill) if serve.drill else {}
    flags = (part for option, value in (options | drill).items() for part in (option, value))
    return EngineCommand(
        argv=(place.python, "-m", "llmdeploy.engine", *flags),
        env=_environment(serve),
    )


def _drill(drill: DrillSpec) -> dict[str, str]:
    return {
        "--drill-slowdown": f"{drill.slowdown:.12g}",
        "--drill-error-ratio": f"{drill.error_ratio:.12g}",
        "--drill-garbage-ratio": f"{drill.garbage_ratio:.12g}",
        "--drill-after-requests": str(drill.after_requests),
    }


def _environment(serve: ServeSpec) -> tuple[tuple[str, str], ...]:
    """The engine's whole environment: offline, its own thread count, few malloc arenas.

    Source: glibc `mallopt(3)`: by default 8 arenas a core, each keeping what was freed in it, so
    that resident memory looks like a leak; two are enough for a worker's two busy threads.
    """
    threads = str(serve.threads_per_worker)
    variables = {
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_OFFLINE": "1",
        "MALLOC_ARENA_MAX": "2",
        "MKL_NUM_THREADS": threads,
        "OMP_NUM_THREADS": threads,
        "PYTHONUNBUFFERED": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "TRANSFORMERS_OFFLINE": "1",
    }
    if serve.device == "cpu":
        variables["CUDA_VISIBLE_DEVICES"] = (
            ""  # a visible GPU would be initialised, and take memory
        )
    return tuple(sorted(variables.items()))

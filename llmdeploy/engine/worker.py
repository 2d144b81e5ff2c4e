"""One worker process: its cores, its share of the limits, its model, its loop.

The API process imports this module to start workers; torch and transformers are therefore imported
inside `main`, once the process is a worker and its threads are set.
"""

import os
import sys
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from llmdeploy.engine import log
from llmdeploy.engine.limits import (
    check_memory,
    check_parallel,
    free_memory_bytes,
    memory_need,
    read_model,
)
from llmdeploy.engine.messages import Failed, Reached
from llmdeploy.engine.settings import EngineSettings
from llmdeploy.errors import LlmDeployError

if TYPE_CHECKING:
    from llmdeploy.engine.batch import Batch
    from llmdeploy.engine.drill import Drill
    from llmdeploy.engine.loader import Loaded


_SPINS = "10000"
"""How often a thread looks for work before it sleeps. libgomp's 300,000 let a thread burn the core
that the thread it waits for needs: beside other busy processes 2 threads on 2 cores gave 3 tokens/s
instead of 14. On a quiet machine 10,000 is as fast (61 tokens/s, 53 with 1,000, 29 with none)."""


def main(settings: EngineSettings, connection: Connection, *, worker: int) -> None:
    """Serves until Shutdown; sends Failed and exits 2 or 3 where the settings cannot be met."""
    log.open_log(settings.log_level)
    place(settings, worker=worker)
    try:
        model = read_model(settings.model, dtype=settings.dtype)
        check_parallel(model, settings)
        check_memory(memory_need(model, settings), free_bytes=free_memory_bytes(), model=model)
        _run(settings, connection, worker=worker)
    except LlmDeployError as error:
        connection.send(Failed(reason=str(error), fix=error.fix))
        sys.exit(error.exit_code)
    except Exception as error:  # the top of the process: the API tells what it ended with
        connection.send(Failed(reason=f"{type(error).__name__}: {error}"))
        raise


def place(settings: EngineSettings, *, worker: int) -> None:
    """Keeps this process on its cores; one-thread workers get one core each."""
    cores = settings.cores or tuple(sorted(os.sched_getaffinity(0)))
    if settings.data_parallel > 1 and settings.threads_per_worker == 1:
        cores = (cores[worker % len(cores)],)
    os.sched_setaffinity(0, cores)
    os.environ["OMP_NUM_THREADS"] = str(settings.threads_per_worker)
    os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)


def _run(settings: EngineSettings, connection: Connection, *, worker: int) -> None:
    import torch

    from llmdeploy.engine.drill import Drill
    from llmdeploy.engine.group import lead
    from llmdeploy.engine.loader import load
    from llmdeploy.engine.loop import serve

    torch.set_num_threads(settings.threads_per_worker)
    leaving = None
    if settings.tensor_parallel > 1:
        leaving = lead(settings, worker=worker, follow=follow)
    connection.send(Reached(phase="comm_ready"))
    loaded = load(settings)
    connection.send(Reached(phase="loaded", weights_bytes=loaded.weights_bytes))
    vocabulary = loaded.model.get_input_embeddings().num_embeddings
    drill = Drill(settings.drill, vocabulary=vocabulary, seed=worker)
    batch = start_batch(loaded, settings, drill=drill)
    connection.send(
        Reached(
            phase="kv_ready",
            kv_cache_tokens=batch.kv_cache_tokens,
            weights_bytes=loaded.weights_bytes,
        )
    )
    serve(batch, drill, connection, batch_window_s=settings.batch_window_s)
    if leaving is not None:
        leaving.set()


def follow(settings: EngineSettings, worker: int) -> None:
    """What a tensor-parallel rank above 0 does until its group ends."""
    import torch

    from llmdeploy.engine.drill import Drill
    from llmdeploy.engine.loader import load

    place(settings, worker=worker)
    loaded = load(settings)
    batch = start_batch(loaded, settings, drill=Drill(None, vocabulary=0))
    with torch.inference_mode():
        batch.follow()


def start_batch(loaded: "Loaded", settings: EngineSettings, *, drill: "Drill") -> "Batch":
    """An empty batch with this worker's share of the engine's limits."""
    import torch

    from llmdeploy.engine.batch import Batch, BatchLimits

    workers = settings.data_parallel
    limits = BatchLimits(
        kv_cache_tokens=settings.kv_cache_tokens // workers,
        max_num_seqs=max(1, settings.max_num_seqs // workers),
        max_num_batched_tokens=settings.max_num_batched_tokens,
        max_model_len=settings.max_model_len,
    )
    with torch.inference_mode():
        return Batch(loaded.model, limits=limits, drill=drill, step=loaded.step, fused=loaded.fused)

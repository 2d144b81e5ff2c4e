"""The processes that share one model: rank 0 decides, all compute, all end together."""

import logging
import multiprocessing
import multiprocessing.connection
import os
import socket
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import distributed

from llmdeploy.engine import log
from llmdeploy.engine.settings import EngineSettings

Follow = Callable[[EngineSettings, int], None]
"""What a process of rank 1 and up does, given the settings and the worker's number."""


def lead(settings: EngineSettings, *, worker: int, follow: Follow) -> threading.Event:
    """Starts ranks 1 and up, joins them as rank 0 and checks that all are there.

    From then on this process ends as soon as one of them does, and they as soon as it does: half a
    model cannot answer, and a rank left behind would keep its memory. Setting the event that comes
    back says that this process is about to end by itself.
    """
    leaving = threading.Event()
    port = _free_port()
    context = multiprocessing.get_context("spawn")
    sentinels, ends = [], []
    for rank in range(1, settings.tensor_parallel):
        ours, theirs = context.Pipe()
        process = context.Process(
            target=_follower, args=(settings, rank, port, theirs, worker, follow), daemon=True
        )
        process.start()
        theirs.close()
        sentinels.append(process.sentinel)
        ends.append(ours)
    threading.Thread(target=_end_with, args=(sentinels, ends, leaving), daemon=True).start()
    _join(settings, rank=0, port=port)
    return leaving


def _follower(
    settings: EngineSettings,
    rank: int,
    port: int,
    leader: Connection,
    worker: int,
    follow: Follow,
) -> None:
    threading.Thread(target=_end_without, args=(leader,), daemon=True).start()
    torch.set_num_threads(settings.threads_per_worker)
    _join(settings, rank=rank, port=port)
    follow(settings, worker)


def _join(settings: EngineSettings, *, rank: int, port: int) -> None:
    """Joins the group of all ranks and sums once over it, so that a dead link shows now."""
    size = settings.tensor_parallel
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    device = torch.device(settings.device)
    if settings.device == "cuda":
        torch.cuda.set_device(rank)
    distributed.init_process_group("gloo" if settings.device == "cpu" else "nccl")
    ranks = torch.ones(1, device=device)
    distributed.all_reduce(ranks)
    if int(ranks.item()) != size:
        raise RuntimeError(f"{int(ranks.item())} ranks answered, needed {size}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _end_with(sentinels: list[Any], ends: list[Connection], leaving: threading.Event) -> None:
    """Ends this process with the first follower that ends. `ends` live as long as this thread."""
    multiprocessing.connection.wait(sentinels)
    if not leaving.is_set():
        log.write("rank_lost", level=logging.ERROR, ranks=len(ends) + 1)
        os._exit(1)


def _end_without(leader: Connection) -> None:
    """Ends this process when the leader's end of the pipe is gone."""
    try:
        leader.recv()
    except (EOFError, OSError):
        os._exit(1)

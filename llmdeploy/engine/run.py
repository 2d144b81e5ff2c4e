"""The engine process from its start to its end: socket, workers, signals, drain, exit code."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import Iterator

import uvicorn
import uvloop

from llmdeploy.engine import log, text
from llmdeploy.engine.pool import Pool
from llmdeploy.engine.server import Api
from llmdeploy.engine.settings import EngineSettings
from llmdeploy.errors import InputError

_EXIT_FAILED_AT_START = 3
_EXIT_WORKER_LOST = 1
_FAILURE_SHOWN_S = 1.0
"""How long /ready tells the reason of a failure before the process ends."""
_LAST_WRITES_S = 2
_KEEP_ALIVE_S = 3600
"""Longer than gateways keep idle connections: who reuses one must be the one to close it."""


def run(settings: EngineSettings, *, worker_module: str) -> int:
    """Serves until SIGTERM or until a worker is lost; the exit code."""
    log.open_log(settings.log_level)
    model = text.load(settings.model)
    if model.defaults.ignored:
        log.write("generation_config", level=logging.WARNING, not_applied=model.defaults.ignored)
    if settings.cores:
        _stay_on(settings.cores)
    with _listen(settings.host, settings.port) as listener:
        pool = Pool(settings, worker_module=worker_module)
        api = Api(settings, model=model, pool=pool, created_s=int(time.time()))
        return int(uvloop.run(_serve(settings, api=api, pool=pool, listener=listener)))


def _stay_on(cores: tuple[int, ...]) -> None:
    """Pins this process, and so its workers, to the replica's cores."""
    try:
        os.sched_setaffinity(0, cores)
    except OSError as error:
        allowed = ",".join(map(str, sorted(os.sched_getaffinity(0))))
        raise InputError(
            f"--cores: found {','.join(map(str, cores))}, needed some of {allowed}: {error}",
            fix=f"start it with --cores {allowed}",
        ) from error


def _listen(host: str, port: int) -> socket.socket:
    """The listening socket; InputError where the address cannot be had."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, OverflowError) as error:
        raise InputError(
            f"--host {host} --port {port}: cannot listen there: {error}",
            fix="choose a free port, or stop what listens there (`ss -ltnp`)",
        ) from error


class _Server(uvicorn.Server):  # type: ignore[misc]  # untyped in the base install
    """uvicorn without its own signal handling: this module drains first."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves the signals alone."""
        yield


async def _serve(settings: EngineSettings, *, api: Api, pool: Pool, listener: socket.socket) -> int:
    asked_to_end = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, asked_to_end.set)
    config = uvicorn.Config(
        api,
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_LAST_WRITES_S,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    address, port = listener.getsockname()[:2]
    log.write("listening", address=address, port=port, served_name=settings.served_name)
    pool.start()
    try:
        return await _until_the_end(settings, pool=pool, asked_to_end=asked_to_end)
    finally:
        server.should_exit = True
        await asyncio.gather(serving, pool.stop())
        log.write("ended")


async def _until_the_end(
    settings: EngineSettings, *, pool: Pool, asked_to_end: asyncio.Event
) -> int:
    """Waits for the signal or a failure, ends the requests; the exit code."""
    ended = asyncio.create_task(asked_to_end.wait())
    was_ready = False
    while not (asked_to_end.is_set() or pool.failure):
        changed = asyncio.create_task(pool.changed.wait())
        await asyncio.wait((ended, changed), return_when=asyncio.FIRST_COMPLETED)
        changed.cancel()
        pool.changed.clear()
        if pool.phase == "ready" and not was_ready:
            was_ready = True
            log.write("ready", kv_cache_tokens=pool.kv_cache_tokens)
    ended.cancel()
    if pool.failure:
        await asyncio.sleep(_FAILURE_SHOWN_S)
        return _EXIT_WORKER_LOST if was_ready else _EXIT_FAILED_AT_START
    await _drain(pool, timeout_s=settings.drain_timeout_s)
    return 0


async def _drain(pool: Pool, *, timeout_s: float) -> None:
    """Lets running requests finish for this long, then ends them with an error."""
    pool.drain()
    log.write("draining", in_flight=pool.in_flight, timeout_s=timeout_s)
    deadline_s = time.monotonic() + timeout_s
    while pool.in_flight and time.monotonic() < deadline_s and not pool.failure:
        await asyncio.sleep(0.05)
    if pool.in_flight:
        log.write("drain_timeout", level=logging.WARNING, cut=pool.in_flight)
        pool.end_requests("the engine drained")

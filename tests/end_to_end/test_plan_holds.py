"""A planned engine, started for real, keeps what its plan says of KV cache and memory."""

import concurrent.futures
import os
import pathlib
import socket
import subprocess
import sys
import time

import httpx
import psutil
import pytest

from llmdeploy import backends, store
from llmdeploy.backends.spec import Place
from llmdeploy.edge.local import LocalShell
from llmdeploy.plan import make

from ..plan.cases import INVENTORY, bundle, service

pytestmark = pytest.mark.end_to_end
START_TIMEOUT_S = 180.0
REQUESTS = 16


@pytest.fixture(scope="module")
def plan(model_folder: pathlib.Path):
    """The real model on a host of two cores, for requests like the quickstart's."""
    model = store.load(str(model_folder), LocalShell())
    lengths = service().workload.input_tokens.model_copy(update={"mean": 40.0, "p95": 100.0})
    wanted = service(
        model={"id": model.manifest.id},
        engine={"max_model_len": 1024},
        workload={"requests_per_day": 1000, "input_tokens": lengths},
    )
    return make(wanted, INVENTORY, bundle(), model)


@pytest.fixture(scope="module")
def engine(plan, model_folder, tmp_path_factory):
    """Its one replica, ready: (URL, process)."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    place = Place(
        python=sys.executable,
        model_folder=str(model_folder),
        address=plan.data_address,
        port=port,
        cores=(min(os.sched_getaffinity(0)),),
    )
    command = backends.command(plan.replicas[0].serve, place)
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    log = tmp_path_factory.mktemp("engine") / "engine.log"
    with log.open("w") as output:
        process = subprocess.Popen(command.argv, env=kept | dict(command.env), stderr=output)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_ready(url, process, log)
        yield url, process
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_ready(url: str, process: subprocess.Popen, log: pathlib.Path) -> None:
    until_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < until_s:
        assert process.poll() is None, log.read_text()
        try:
            if httpx.get(f"{url}/ready").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise AssertionError(f"not ready in {START_TIMEOUT_S} s:\n{log.read_text()}")


def test_the_engine_has_the_kv_cache_that_the_plan_promises(plan, engine):
    url, _ = engine
    assert httpx.get(f"{url}/ready").json()["kv_cache_tokens"] == plan.promises.kv_cache_tokens


def test_a_busy_engine_stays_within_the_memory_that_the_plan_says_it_needs(plan, engine):
    url, process = engine
    needed = next(f.value for f in plan.figures if f.name == "memory_needed")

    def ask(number: int) -> int:
        prompt = f"Request {number}: " + "tell me about the sea. " * 8
        body = {"model": plan.replicas[0].serve.served_name, "prompt": prompt, "max_tokens": 16}
        return httpx.post(f"{url}/v1/completions", json=body, timeout=300).status_code

    with concurrent.futures.ThreadPoolExecutor(REQUESTS) as pool:
        assert set(pool.map(ask, range(REQUESTS))) == {200}
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    resident = sum(member.memory_info().rss for member in family)
    print(f"resident {resident / 2**20:.0f} MiB, planned {needed / 2**20:.0f} MiB")
    assert 0.5 * needed < resident <= needed

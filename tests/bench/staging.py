"""How long a model takes to many hosts, beside one host alone, copied as `launch` copies it.

    python -m tests.bench.staging --hosts 8 --gib 1 --mbit 200

Needs root. The hosts are booted, their links shaped both ways. A second copy to all is killed
(SIGKILL) halfway and begun again: the bytes that came in at the hosts, over both tries, are shown
as a multiple of what they needed.
"""

import argparse
import multiprocessing
import os
import pathlib
import shutil
import tempfile
import time

from llmdeploy.cli.stations import stations
from llmdeploy.cli.transport import Shells
from llmdeploy.edge.clock import SystemClock
from llmdeploy.edge.local import LocalShell
from llmdeploy.inventory import Host, Inventory
from llmdeploy.release.transfer import bring
from llmdeploy.store import Model
from tests.lab.bed import Bed
from tests.lab.machine import Machine
from tests.lab.sshd import run
from tests.onhost.made import random_model

STORE = "/srv/models"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--gib", type=float, default=1.0, help="of the model (default 1)")
    parser.add_argument("--mbit", type=float, default=200.0, help="of each link, Mbit/s")
    wanted = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="llmdeploy-bench-"))
    os.environ["HOME"] = str(folder / "bed")  # the client's .ssh
    size_bytes = int(wanted.gib * 2**30)
    disk = f"{int(wanted.gib * 1024 * 1.2) + 300}m"
    try:
        model = random_model(folder / "model", weights_bytes=size_bytes)
        with Bed(folder / "bed", size=wanted.hosts, name="lds", prefix="10.86", disk=disk) as bed:
            for plug in bed.network.plugs:
                bed.network.limit(plug, rate_bits_per_s=wanted.mbit * 1e6, both_ways=True)
            _measure(bed, model)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measure(bed: Bed, model: Model) -> None:
    size_bytes = sum(file.size_bytes for file in model.manifest.files)
    one_s = _timed(bed.machines[:1], model)
    print(f"to 1 host: {one_s:.1f} s, {size_bytes / one_s / 1e6:.1f} MB/s")
    _clear(bed)
    all_s = _timed(bed.machines, model)
    print(f"to {len(bed.machines)} hosts: {all_s:.1f} s, {all_s / one_s:.2f} x the time for one")
    _clear(bed)
    before_bytes = _received_bytes(bed)
    killed = _started(bed.machines, model)
    time.sleep(all_s / 2)
    killed.kill()
    killed.join()
    half_bytes = _received_bytes(bed) - before_bytes
    again_s = _timed(bed.machines, model)
    needed_bytes = size_bytes * len(bed.machines)
    ratio = (_received_bytes(bed) - before_bytes) / needed_bytes
    print(f"killed at {half_bytes / needed_bytes:.0%}; the next took {again_s:.1f} s; "
          f"{ratio:.3f} x the bytes needed came in over both")  # fmt: skip


def _timed(machines: tuple[Machine, ...], model: Model) -> float:
    begun_s = time.monotonic()
    process = _started(machines, model)
    process.join()
    assert process.exitcode == 0, f"the copy ended with {process.exitcode}"
    return time.monotonic() - begun_s


def _started(machines: tuple[Machine, ...], model: Model) -> multiprocessing.Process:
    process = multiprocessing.Process(target=_copy, args=(machines, model))
    process.start()
    return process


def _copy(machines: tuple[Machine, ...], model: Model) -> None:
    hosts = tuple(
        Host(name=m.name, address=m.name, data_address=m.address, python="/usr/bin/python3")
        for m in machines
    )
    inventory = Inventory(hosts=hosts, model_store=STORE)
    clock = SystemClock()
    with Shells() as shells:
        names = frozenset(machine.name for machine in machines)
        reached = stations(inventory, names, service="bench", shells=shells, clock=clock)
        bring(model, reached, report=print, here=LocalShell(), clock=clock)


def _clear(bed: Bed) -> None:
    for machine in bed.machines:
        machine.run("rm", "-rf", STORE)


def _received_bytes(bed: Bed) -> int:
    counter = "/sys/class/net/eth0/statistics/rx_bytes"
    inside = (("ip", "netns", "exec", plug.namespace) for plug in bed.network.plugs)
    return sum(int(run(*prefix, "cat", counter)) for prefix in inside)


if __name__ == "__main__":
    main()

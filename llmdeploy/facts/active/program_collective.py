"""Sent to every host of a group: joins it and sums over it, content known, sizes swept.

    python - '{"rank_first": …, "ranks": …, "local": …, "device": "cpu"|"cuda",
               "backend": …, "master": …, "port": …, "interface": …, "env": {…}, "sizes_bytes": […],
               "meet_s": …, "step_s": …, "size_s": …, "limit_s": …}'

Every step is told before and after, so that the host that hangs is the one that is behind.
"""

from __future__ import annotations

import datetime
import importlib
import json
import os
import signal
import sys
import time
from typing import Any

from llmdeploy.facts.active.program_watch import arm, end_with_parent, hurry, show

PERIOD = 251
"""Length of the pattern, a prime: no power-of-two shift of the data looks right."""
LEAST_TIMES, MOST_TIMES = 3, 200
SIZE_STEPS = 2.0
"""Steps' limits in which a size must be done."""
SLOW_SIZES = 1.0
"""The sweep ends where one sum takes this many times what all sums of a size should."""


def main() -> None:
    asked = json.loads(sys.argv[1])
    arm(asked["limit_s"])
    os.environ.update(environment(asked))
    children = []
    for local in range(1, asked["local"]):
        child = os.fork()  # before torch: a device's driver does not survive a fork
        if child == 0:
            end_with_parent()
            arm(asked["limit_s"])
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # rank 0 of the host speaks for it
            os._exit(run(asked, local))
        children.append(child)
    code = run(asked, 0)
    for child in children:
        if code:
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if status and not code:
            show("error", reason=f"another process of this host ended with {status}")
    os._exit(code)


def environment(asked: dict[str, Any]) -> dict[str, str]:
    """Each host its own interface: NCCL takes `=name` for exactly that one, Gloo the plain name."""
    values = {
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "OMP_NUM_THREADS": "1",
        "RES_OPTIONS": "attempts:0",  # torch looks up its peers' names, twice: 2 s each without DNS
        **asked["env"],
    }
    if asked["interface"]:
        values["GLOO_SOCKET_IFNAME"] = asked["interface"]
        values["NCCL_SOCKET_IFNAME"] = f"={asked['interface']}"
    return values


def run(asked: dict[str, Any], local: int) -> int:
    """One rank's part: 0 once it summed, 1 after an error, which is shown."""
    try:
        show("enter", stage="importing torch")
        torch = importlib.import_module("torch")
        torch.set_num_threads(1)
        show("leave", stage="importing torch")
        group(torch, asked, local)
    except Exception as error:  # noqa: BLE001  # torch raises errors of any class
        lines = f"{type(error).__name__}: {error}".strip().splitlines()
        show("error", reason=lines[0][:300])
        return 1
    return 0


def group(torch: Any, asked: dict[str, Any], local: int) -> None:
    """Meets the other ranks, joins their group and sums: each stage is shown as it begins and
    ends."""
    rank, ranks = asked["rank_first"] + local, asked["ranks"]
    device = asked["device"] if asked["device"] == "cpu" else f"{asked['device']}:{local}"
    if device != "cpu":
        getattr(torch, asked["device"]).set_device(local)
    show("enter", stage="meeting the others")
    store = torch.distributed.TCPStore(
        asked["master"],
        asked["port"],
        ranks,
        rank == 0,
        timeout=datetime.timedelta(seconds=asked["meet_s"]),
    )  # all wait here for the slowest import, so that later only a fault makes them wait
    show("leave", stage="meeting the others")
    show("enter", stage="joining the group")
    torch.distributed.init_process_group(
        asked["backend"],
        store=store,
        rank=rank,
        world_size=ranks,
        timeout=datetime.timedelta(seconds=asked["step_s"]),
    )
    torch.distributed.barrier()
    show("leave", stage="joining the group")
    for size_bytes in asked["sizes_bytes"]:
        hurry(SIZE_STEPS * asked["step_s"])  # one that does nothing is not waited for
        show("enter", stage=f"summing {size_bytes} bytes")
        go_on = sweep(torch, asked, Seat(rank, ranks, device), size_bytes=size_bytes)
        show("leave", stage=f"summing {size_bytes} bytes")
        if not go_on:
            break
    torch.distributed.barrier()
    show("done")


class Seat:
    """Where this process sits in the group."""

    def __init__(self, rank: int, ranks: int, device: str) -> None:
        self.rank, self.ranks, self.device = rank, ranks, device


def sweep(torch: Any, asked: dict[str, Any], seat: Seat, *, size_bytes: int) -> bool:
    """One size: the first round is checked whole, and how long it took tells how many follow.

    Whether the next size, four times as large, is worth its time: rank 0 says so for all.
    """
    count = max(1, size_bytes // 4)
    own = pattern(torch, seat, count, ranks=[seat.rank])
    known = pattern(torch, seat, count, ranks=range(seat.ranks))
    data = own.clone()
    torch.distributed.all_reduce(data)
    wrong = int((answered(data) != known).sum().item())
    first_s = timed_s(torch, seat, data)
    times = torch.tensor([times_in(first_s, asked["size_s"])], device=seat.device)
    torch.distributed.broadcast(times, 0)
    taken = sorted(timed_s(torch, seat, data) for _ in range(int(times.item())))
    data.copy_(own)
    torch.distributed.all_reduce(data)
    wrong += int((answered(data) != known).sum().item())
    middle_s = taken[len(taken) // 2]
    show("size", size_bytes=count * 4, duration_s=middle_s, times=len(taken), wrong=wrong)
    go_on = torch.tensor([int(middle_s < SLOW_SIZES * asked["size_s"])], device=seat.device)
    torch.distributed.broadcast(go_on, 0)
    return bool(go_on.item())


def answered(data: Any) -> Any:
    """The answer as it came."""
    return data


def pattern(torch: Any, seat: Seat, count: int, *, ranks: Any) -> Any:
    """Sum over these ranks' own numbers: small and whole, so exact in any order of summing."""
    base = torch.arange(count, device=seat.device) % PERIOD
    total = torch.zeros(count, device=seat.device)
    for rank in ranks:
        total += ((base * (rank + 3)) % PERIOD).to(torch.float32)
    return total


def times_in(first_s: float, budget_s: float) -> int:
    """How often a sum that took `first_s` is repeated within the budget, in seconds."""
    return max(LEAST_TIMES, min(MOST_TIMES, int(budget_s / max(first_s, 1e-6))))


def timed_s(torch: Any, seat: Seat, data: Any) -> float:
    """One sum, from when all are there until it is done here; the numbers stay finite."""
    data.zero_()
    torch.distributed.barrier()
    settle(torch, seat)
    begun_s = time.perf_counter()
    torch.distributed.all_reduce(data)
    settle(torch, seat)
    return time.perf_counter() - begun_s


def settle(torch: Any, seat: Seat) -> None:
    """Waits until the device has done what it was given; a CPU has."""
    if seat.device != "cpu":
        getattr(torch, seat.device.partition(":")[0]).synchronize()


if __name__ == "__main__":
    main()

"""Times of the simulation and of the closed form: `python -m tests.bench.simulate`."""

import time

from llmdeploy.simulate import Limits, by_mean, peak
from llmdeploy.simulate.arrivals import Traffic
from llmdeploy.simulate.scenario import answer
from llmdeploy.simulate.table import table
from tests.simulate.paces import LinearPace

PACE = LinearPace()
LIMITS = Limits(kv_cache_tokens=400_000, max_num_seqs=256, max_num_batched_tokens=2048)
INPUT, OUTPUT = by_mean(1000, p95=3000), by_mean(300, p95=900)
LOADS = (
    ("100,000 requests a day on 1 replica", 100_000, 1),
    ("100,000 requests a day on 4 replicas", 100_000, 4),
    ("100,000,000 requests a day on 1,250 replicas of 8 devices", 100_000_000, 1250),
)


def main() -> None:
    for words, requests, replicas in LOADS:
        traffic = Traffic(
            rate_per_s=requests / 86400, peak_factor=3, input_tokens=INPUT, output_tokens=OUTPUT
        )
        began_s = time.perf_counter()
        found = answer(traffic, PACE, replicas=replicas, limits=LIMITS)
        taken_s = time.perf_counter() - began_s
        each_us = taken_s / max(1, found.whole.requests) * 1e6
        print(f"{words}: {taken_s:.1f} s, {each_us:.0f} us a simulated request")
        print(table(found))
    closed = []
    for _ in range(50):
        began_s = time.perf_counter()
        peak(
            PACE, rate_per_s=30, replicas=4, input_tokens=INPUT, output_tokens=OUTPUT,
            limits=LIMITS,
        )  # fmt: skip
        closed.append(time.perf_counter() - began_s)
    print(f"closed form: {min(closed) * 1e6:.0f} us at best")


if __name__ == "__main__":
    main()

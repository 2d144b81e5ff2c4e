"""Prints the collectives of catalog/links.yaml, fitted to measured latencies.

`python -m tests.accuracy.speed.fit_links ../shared/knowledge/collective_latency.jsonl`
"""

import json
import pathlib
import sys
from collections import defaultdict

import numpy as np

from .least_squares import Vector, fit

SYSTEMS = {
    "nvlink3": ("a100_sxm",),
    "nvlink4": ("h100_sxm", "h200_sxm"),
    "nvlink5": ("b200_sxm", "b300_sxm"),
    "nvlink5-nvl72": ("gb200",),
    "pcie4": ("l40s",),
    "pcie5": ("rtx_pro_6000_server",),
}
COLLECTIVES = ("all_reduce", "custom_all_reduce", "all_gather", "reduce_scatter", "all_to_all")
CUSTOM_CAP_BYTES = 8 * 2**20


def wire_share(collective: str, devices: int) -> float:
    """Bytes that cross one device's link, over the bytes of the message."""
    both_ways = 2 if "all_reduce" in collective else 1
    return both_ways * (devices - 1) / devices


def curves(path: pathlib.Path) -> dict[tuple[str, str, int], list[tuple[float, float]]]:
    """(system, collective, devices) to pairs of bytes and seconds."""
    found = defaultdict(list)
    for line in path.read_text().splitlines():
        row = json.loads(line)
        if row.get("devices_per_node") or row["impl"].endswith("eager"):
            continue
        collective = row["collective"].replace("alltoall", "all_to_all")
        size, seconds = row["message_bytes"], row["latency_us"] * 1e-6
        if row["impl"].startswith("vLLM"):
            collective = "custom_all_reduce"
            if size > CUSTOM_CAP_BYTES:
                continue
        if size <= 2**28:
            found[row["system"], collective, row["num_gpus"]].append((size, seconds))
    return found


def predicted(x: Vector, wire_bytes: Vector) -> Vector:
    near_s, near_rate, far_s, far_rate = np.exp(x)
    return np.minimum(near_s + wire_bytes / near_rate, far_s + wire_bytes / far_rate)


def main() -> None:
    measured = curves(pathlib.Path(sys.argv[1]))
    for link, systems in SYSTEMS.items():
        sys.stdout.write(f"  {link}:\n")
        errors = []
        for collective in COLLECTIVES:
            cells = []
            for devices in (2, 4, 8):
                points = [p for s in systems for p in measured.get((s, collective, devices), [])]
                if not points:
                    continue
                sizes, seconds = np.array(sorted(points)).T
                wire = sizes * wire_share(collective, devices)
                middle, end = len(wire) // 2, len(wire) - 1
                best = None
                for times in (1.5, 3.0, 8.0):
                    start = np.log(
                        [
                            seconds[0],
                            2 * wire[middle] / seconds[middle],
                            times * seconds[0],
                            1.1 * wire[end] / seconds[end],
                        ]
                    )
                    found = fit(lambda x, w=wire, s=seconds: np.log(predicted(x, w) / s), start)
                    if best is None or found[1] < best[1]:
                        best = found
                assert best is not None
                errors.extend(np.log(predicted(best[0], wire) / seconds))
                a, b, c, d = np.exp(best[0])
                cells.append(
                    f"{devices}: [{a * 1e6:.3g}, {b / 1e9:.3g}, {c * 1e6:.3g}, {d / 1e9:.3g}]"
                )
            if cells:
                sys.stdout.write(f"    {collective}: {{{', '.join(cells)}}}\n")
        sizes_of_error = np.abs(errors)
        spread, middle_error = np.quantile(sizes_of_error, 0.9), np.median(sizes_of_error)
        sys.stdout.write(
            f"    spread_ratio: {spread:.2f}  # median {middle_error:.3f}, {len(errors)} points\n"
        )


if __name__ == "__main__":
    main()

"""A simulation as a table for people, the closed form beside it."""

from llmdeploy.simulate.result import Result, Spread
from llmdeploy.simulate.scenario import Simulated
from llmdeploy.units import show_ratio, show_seconds


def table(found: Simulated) -> str:
    """Plain text, at most 100 columns."""
    busiest, queue = found.busiest, found.queue
    begin = _span(busiest.begin_s) if busiest.begin_s > 0 else "the start"
    lines = [
        f"{found.replicas} replica(s), {found.simulated_replicas} simulated,"
        f" {found.whole.requests} requests; busiest"
        f" {_span(busiest.end_s - busiest.begin_s)} from {begin}: {busiest.requests} requests",
        "",
        f"  {'':24}{'simulated':>14}{'closed form':>14}",
    ]
    ttft, tpot, e2e = (_cells(spread) for spread in (busiest.ttft, busiest.tpot, busiest.e2e))
    for name, simulated, formula in (
        ("TTFT p50", ttft[1], _time(queue.ttft_p50_s)),
        ("TTFT p95", ttft[2], _time(queue.ttft_p95_s)),
        ("TTFT p99", ttft[3], _time(queue.ttft_p99_s)),
        ("TPOT mean", tpot[0], _time(queue.tpot_mean_s)),
        ("TPOT p95", tpot[2], _time(queue.tpot_p95_s)),
        ("end to end p50", e2e[1], ""),
        ("end to end p95", e2e[2], ""),
        ("output tokens/s", f"{busiest.output_tokens_per_s:.0f}",
         f"{queue.output_tokens_per_s:.0f}"),
        ("decoded together", f"{busiest.batch:.3g}", f"{queue.batch:.3g}"),
        ("KV cache used", show_ratio(busiest.kv_used_ratio), show_ratio(queue.kv_used_ratio)),
        ("KV cache, fullest", show_ratio(busiest.kv_most_ratio), ""),
        ("time with work", show_ratio(busiest.busy_ratio), ""),
        ("of the sustained rate", "", show_ratio(queue.utilisation_ratio)),
        ("rejected", f"{busiest.rejected} ({show_ratio(_rejected_ratio(busiest))})", ""),
        ("preempted (all)", f"{busiest.preempted}", ""),
    ):  # fmt: skip
        lines.append(f"  {name:24}{simulated:>14}{formula:>14}".rstrip())
    lines += [f"  approximated: {words}" for words in found.approximations]
    if not queue.stable:
        lines.append("  the replicas cannot keep up: they sustain"
                     f" {queue.sustained_rate_per_s:.3g} requests/s")  # fmt: skip
    return "\n".join(lines) + "\n"


def _cells(spread: Spread | None) -> tuple[str, str, str, str]:
    if spread is None:
        return ("none", "none", "none", "none")
    return (
        _time(spread.mean_s),
        _time(spread.p50_s),
        _time(spread.p95_s),
        _time(spread.p99_s),
    )


def _time(duration_s: float) -> str:
    return "no end" if duration_s == float("inf") else show_seconds(duration_s)


def _span(duration_s: float) -> str:
    """A part of the day: hours with three digits, below one hour as all durations."""
    return f"{duration_s / 3600:.3g} h" if duration_s >= 3600 else show_seconds(duration_s)


def _rejected_ratio(found: Result) -> float:
    return found.rejected / max(1, found.requests)

"""A cluster's plan as blocks of a table for people: parts, expectations, choices, rejections."""

import textwrap
from collections import Counter

from llmdeploy.plan.cluster import Choice, Cluster, Expected, PlannedPart
from llmdeploy.plan.document import Plan
from llmdeploy.plan.figure import shown
from llmdeploy.units import show_bytes, show_ratio, show_seconds

WIDTH = 100
MOST_PLACES = 12
MOST_REJECTED = 3
"""Layouts shown for each rule; plan.yaml lists all."""


def cluster_blocks(plan: Plan, cluster: Cluster) -> list[tuple[str, list[str]]]:
    """Title and lines of each block, in the order of reading."""
    return [
        ("layout", [line for part in cluster.parts for line in _part(part)]),
        ("replicas", _places(plan)),
        ("against the objectives (predicted at the peak, 90 % interval)", _expected(cluster)),
        ("cost", _cost(cluster)),
        ("choices that nothing else beats (cheapest first)", _choices(cluster)),
        ("rejected layouts", _rejected(cluster)),
    ]


def _part(part: PlannedPart) -> list[str]:
    spares = f" and {part.spares} spare" if part.spares else ""
    over = f" on {part.hosts_per_replica} hosts" if part.hosts_per_replica > 1 else ""
    memory = (
        f"weights {show_bytes(part.weights_bytes)}, activations {show_bytes(part.activation_bytes)}"
        f", graphs {show_bytes(part.graph_bytes)}, other {show_bytes(part.other_bytes)},"
        f" KV cache {show_bytes(part.kv_cache_bytes)} of {show_bytes(part.usable_bytes)}"
    )
    return [
        f"  {part.layout}: {part.replicas} replica(s){spares}, {part.devices_per_replica}"
        f" device(s) each{over}",
        f"    a replica: {part.max_num_seqs} requests decoded together,"
        f" {part.kv_cache_tokens} KV tokens, {shown(part.output_tokens_per_s)} output tokens/s",
        *_wrapped("    a device: ", memory),
    ]


def _places(plan: Plan) -> list[str]:
    lines = []
    for replica in plan.replicas[:MOST_PLACES]:
        places = ", ".join(
            f"{member.host}[{_range(member.device_ids)}]" for member in replica.members or ()
        )
        lines.append(f"  {replica.name} on {places}{' (spare)' if replica.spare else ''}")
    more = len(plan.replicas) - MOST_PLACES
    return [*lines, f"  and {more} more, see plan.yaml"] if more > 0 else lines


def _range(ids: tuple[int, ...]) -> str:
    return str(ids[0]) if len(ids) == 1 else f"{ids[0]}-{ids[-1]}"


def _expected(cluster: Cluster) -> list[str]:
    return [_one(expected) for expected in cluster.expected]


def _one(expected: Expected) -> str:
    def words(value: float) -> str:
        return show_ratio(value) if expected.unit == "ratio" else show_seconds(value)

    verdict = "kept" if expected.sure else "kept, not surely" if expected.kept else "missed"
    return (
        f"  {expected.name:12} promised {words(expected.promised):>8}  predicted"
        f" {words(expected.predicted):>8} ({words(expected.low)} to {words(expected.high)},"
        f" {expected.method})  {verdict}"
    )


def _cost(cluster: Cluster) -> list[str]:
    cost, lines = cluster.cost, []
    money = f" {cost.currency}" if cost.currency else ""
    if cost.price_per_hour is not None:
        unnamed = "" if money else " (cluster.yaml names no currency)"
        lines.append(
            f"  {shown(cost.price_per_hour)}{money} an hour,"
            f" {shown(cost.price_per_million_output_tokens or 0)}{money} for a million output"
            f" tokens at the day's mean load{unnamed}"
        )
    else:
        lines.append("  no prices in the inventory: set devices/price_per_hour")
    if cost.power_w is not None:
        lines.append(
            f"  at most {shown(cost.power_w / 1000)} kW for the devices,"
            f" {shown(cost.energy_per_day_kwh or 0)} kWh a day"
        )
    else:
        lines.append("  the power of a device is not published")
    return lines


def _choices(cluster: Cluster) -> list[str]:
    return [_choice(choice, cluster.cost.currency) for choice in cluster.choices]


def _choice(choice: Choice, currency: str | None) -> str:
    mark = "*" if choice.chosen else " "
    money = f" {currency}" if currency else ""
    hourly = choice.price_per_hour
    price = f", {shown(hourly)}{money} an hour" if hourly is not None else ""
    spare = "" if choice.spares else ", no spare"
    return (
        f" {mark}{choice.layout}: {choice.devices} devices{price}{spare}, {choice.quality},"
        f" p95 TTFT {show_seconds(choice.ttft_p95_s)}, TPOT {show_seconds(choice.tpot_p95_s)}"
    )


def _rejected(cluster: Cluster) -> list[str]:
    lines = []
    counts = Counter(rejected.rule for rejected in cluster.rejected)
    for rule, count in counts.items():
        lines.append(f"  {rule} ({count})")
        ruled = [rejected for rejected in cluster.rejected if rejected.rule == rule]
        for rejected in ruled[:MOST_REJECTED]:
            lines += _wrapped("    ", f"{rejected.layout}: {rejected.words}")
        if count > MOST_REJECTED:
            lines.append(f"    and {count - MOST_REJECTED} more, see plan.yaml")
    return lines or ["  none"]


def _wrapped(start: str, text: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=start, subsequent_indent="      ",
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip

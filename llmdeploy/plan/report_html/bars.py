"""Memory of each device as a bar: what the release takes of it, and what stays free."""

from collections.abc import Iterator
from dataclasses import dataclass

from llmdeploy.plan.cluster import PlannedPart
from llmdeploy.plan.document import Plan
from llmdeploy.plan.report_html.words import figure, key, section, text
from llmdeploy.units import show_bytes

MOST_BARS = 24
"""Bars shown; further ones are counted. Source: own choice: a page of them."""

WORDS = {
    "weights": "weights",
    "packed": "packed weights",
    "activation": "activations, workspace",
    "graph": "graphs",
    "other": "contexts, buffers",
    "kv": "KV cache",
    "free": "free",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One device, or several that hold the same."""

    name: str
    total_bytes: float
    parts: tuple[tuple[str, float], ...]
    """Keys of WORDS with their bytes."""


def memory_bars(plan: Plan) -> str:
    """The section with one bar a group of equal devices."""
    bars = list(_bars(plan))
    if not bars:
        return ""
    shown = bars[:MOST_BARS]
    used = {name for bar in shown for name, size in bar.parts if size > 0} | {"free"}
    legend = key([(name, words) for name, words in WORDS.items() if name in used])
    more = len(bars) - len(shown)
    rest = f'<p class="note">{more} more groups of devices look alike.</p>' if more else ""
    lead = "What the fullest device of each replica holds, against what the engine sees of it."
    return section("Memory per device", legend + "".join(map(_drawn, shown)) + rest, lead=lead)


def _bars(plan: Plan) -> Iterator[Bar]:
    if plan.cluster is None:
        yield from _one_host(plan)
        return
    for replica in plan.replicas:
        if replica.part is None:
            continue
        part = plan.cluster.parts[replica.part]
        spare = ", spare" if replica.spare else ""
        for member in replica.members or ():
            devices = ", ".join(str(n) for n in member.device_ids)
            yield Bar(
                name=f"{replica.name}{spare}: {member.host}, {part.device} {devices}",
                total_bytes=part.usable_bytes,
                parts=_of_part(part),
            )


def _of_part(part: PlannedPart) -> tuple[tuple[str, float], ...]:
    return (
        ("weights", part.weights_bytes),
        ("activation", part.activation_bytes),
        ("graph", part.graph_bytes),
        ("other", part.other_bytes),
        ("kv", part.kv_cache_bytes),
    )


def _one_host(plan: Plan) -> Iterator[Bar]:
    """The share of the host's memory that one release may use."""
    total = figure(plan.figures, "allowed_memory")
    per_token = figure(plan.figures, "kv_per_token")
    if total is None or per_token is None:
        return
    named = (
        ("weights", "weights"),
        ("packed", "packed_weights"),
        ("activation", "workspace"),
        ("other", "overhead_estimate"),
    )
    found = [(key, figure(plan.figures, name)) for key, name in named]
    parts = [(key, value.value) for key, value in found if value is not None]
    for replica in plan.replicas:
        kv_bytes = replica.serve.kv_cache_tokens * per_token.value
        yield Bar(
            name=f"{replica.name}: {replica.host}, {replica.serve.device} (a release's share)",
            total_bytes=total.value,
            parts=(*parts, ("kv", kv_bytes)),
        )


def _drawn(bar: Bar) -> str:
    taken = sum(size for _, size in bar.parts)
    whole = max(bar.total_bytes, taken)
    pieces = "".join(_piece(name, size, whole) for name, size in bar.parts if size > 0)
    free = max(0.0, bar.total_bytes - taken)
    sizes = ", ".join(f"{WORDS[name]} {show_bytes(size)}" for name, size in bar.parts if size > 0)
    return (
        f'<div class="device"><b>{text(bar.name)}</b>'
        f'<div class="bar" role="img" aria-label="{text(sizes)}">{pieces}</div>'
        f"<span>{text(sizes)}; {show_bytes(free)} of {show_bytes(bar.total_bytes)} free</span>"
        "</div>"
    )


def _piece(name: str, size: float, whole: float) -> str:
    words = f"{WORDS[name]}: {show_bytes(size)}"
    style = f"width: {size / whole * 100:.2f}%; background: var(--{name})"
    return f'<i style="{style}" title="{text(words)}"></i>'

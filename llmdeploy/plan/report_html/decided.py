"""What the plan decided, in rows: objectives, cost, places, notes, other engines."""

from collections.abc import Iterator

from llmdeploy.plan.cluster import Cluster
from llmdeploy.plan.document import Plan, Replica
from llmdeploy.plan.report_html.words import figure, number, rows, section, short, text
from llmdeploy.units import show_ratio, show_seconds

MOST_ROWS = 64
"""Replicas listed; further ones are counted. Source: own choice."""


def promised(plan: Plan) -> str:
    """Each objective, what is predicted, and whether it is kept."""
    heads = ("objective", "promised", "predicted", "90 % interval", "kept")
    lines = list(_expected(plan.cluster) if plan.cluster else _predicted(plan))
    return section("Objectives", rows(heads, lines, columns="repeat(5, minmax(0, 1fr))"))


def _expected(cluster: Cluster) -> Iterator[tuple[str, ...]]:
    for one in cluster.expected:
        verdict = "yes" if one.sure else "yes, not surely" if one.kept else "no"
        kind = "yes" if one.kept else "no"
        yield (
            text(one.name.replace("_", " ")),
            text(number(one.promised, one.unit)),
            text(number(one.predicted, one.unit)),
            text(f"{number(one.low, one.unit)} to {number(one.high, one.unit)}, {one.method}"),
            f'<span class="{kind}">{verdict}</span>',
        )


def _predicted(plan: Plan) -> Iterator[tuple[str, ...]]:
    objectives = plan.objectives
    for name, words, promised_value, shown in (
        ("ttft_p95", "time to first token, p95", objectives.ttft_p95_s, show_seconds),
        ("tpot", "time per token, saturated", objectives.tpot_p95_s, show_seconds),
        ("utilisation", "utilisation", objectives.utilisation_ratio, show_ratio),
    ):
        found = figure(plan.figures, name)
        if found is None:
            continue
        kept = found.value <= promised_value
        verdict = f'<span class="{"yes" if kept else "no"}">{"yes" if kept else "no"}</span>'
        yield words, text(shown(promised_value)), text(shown(found.value)), "not stated", verdict


def cost(cluster: Cluster) -> str:
    """Price, energy and whether two releases have room."""
    found = cluster.cost
    unit = found.currency or ""
    lines = [
        (name, text(value))
        for name, value in (
            ("price of the devices", _money(found.price_per_hour, f"{unit} an hour")),
            (
                "price of output",
                _money(found.price_per_million_output_tokens, f"{unit} a million tokens"),
            ),
            ("power at the devices' limits", _money(found.power_w, "W")),
            ("energy at most", _money(found.energy_per_day_kwh, "kWh a day")),
            ("the next release", f"{cluster.coresidency.kind}: {cluster.coresidency.words}"),
        )
    ]
    body = rows(("what", "value"), lines, columns="minmax(0, 1fr) minmax(0, 2fr)")
    return section("Cost and room", body)


def _money(value: float | None, unit: str) -> str:
    return "not known" if value is None else f"{short(value)} {unit}".replace("  ", " ")


def placed(plan: Plan) -> str:
    """Where each replica runs."""
    heads = ("replica", "where", "engine", "parallel", "limits")
    shown = plan.replicas[:MOST_ROWS]
    lines = [
        (
            text(replica.name + (" (spare)" if replica.spare else "")),
            text(_where(replica)),
            text(f"{replica.serve.engine}, {replica.serve.dtype}, {replica.serve.device}"),
            text(_parallel(replica)),
            text(
                f"{replica.serve.max_num_seqs} requests, {replica.serve.kv_cache_tokens:,} KV"
                f" tokens, {replica.serve.max_model_len:,} a request"
            ),
        )
        for replica in shown
    ]
    more = len(plan.replicas) - len(shown)
    rest = f'<p class="note">and {more} more replicas</p>' if more else ""
    columns = "minmax(0, 0.7fr) minmax(0, 1.6fr) minmax(0, 1.2fr) minmax(0, 1fr) minmax(0, 2fr)"
    return section("Replicas", rows(heads, lines, columns=columns) + rest)


def _where(replica: Replica) -> str:
    if not replica.members:
        return replica.host
    return "; ".join(
        f"{member.host} devices {', '.join(str(n) for n in member.device_ids)}"
        for member in replica.members
    )


def _parallel(replica: Replica) -> str:
    serve = replica.serve
    words = [f"tensor {serve.tensor_parallel}"]
    if serve.group is not None and serve.group.pipeline_parallel > 1:
        words.append(f"pipeline {serve.group.pipeline_parallel}")
    if serve.data_parallel > 1:
        words.append(f"data {serve.data_parallel}")
    if serve.group is not None and serve.group.expert_parallel:
        words.append("experts")
    return ", ".join(words)


def notes(plan: Plan) -> str:
    """Decisions in words."""
    body = "".join(f"<li>{text(note)}</li>" for note in plan.notes)
    return section("Why", f"<ul>{body}</ul>" if body else "")


def alternatives(cluster: Cluster) -> str:
    """The same layout on other engines."""
    lines = [
        (
            text(one.engine),
            f'<span class="{"yes" if one.fits else "no"}">{"fits" if one.fits else "no"}</span>',
            text(one.words),
        )
        for one in cluster.alternatives
    ]
    columns = "minmax(0, 1fr) minmax(0, 0.6fr) minmax(0, 4fr)"
    body = rows(("engine", "fits", "why"), lines, columns=columns) if lines else ""
    return section("Other engines", body)

"""The plan as a table for people: replicas, promises, figures with their origin, notes."""

import textwrap

from llmdeploy.plan.cluster_report import cluster_blocks
from llmdeploy.plan.document import Figure, Plan
from llmdeploy.units import show_bytes, show_number, show_ratio, show_seconds

WIDTH = 100


def table(plan: Plan) -> str:
    """The plan in plain text; readable without colour, at most WIDTH columns."""
    promises = plan.promises
    head = [f"plan {plan.id}  service {plan.service}  model {plan.model.id}"]
    replicas = [
        f"  {replica.name} on {replica.host}: {serve.engine} on {serve.device}, {serve.dtype}"
        f"{'' if serve.quantization == 'none' else f' {serve.quantization}'},"
        f" {serve.data_parallel} worker(s) x {serve.threads_per_worker} thread(s),"
        f" {serve.tensor_parallel} rank(s)"
        for replica in plan.replicas
        for serve in (replica.serve,)
    ]
    promised = [
        f"  {promises.max_concurrency} requests decoded together",
        f"  {promises.kv_cache_tokens} tokens of KV cache a replica",
        f"  {promises.output_tokens_per_s:g} output tokens/s when saturated (predicted)",
    ]
    figures = [line for figure in plan.figures for line in _row(figure)]
    notes = [line for note in plan.notes for line in _wrapped("  - ", note)]
    decided = (
        [("replicas", replicas)] if plan.cluster is None else cluster_blocks(plan, plan.cluster)
    )
    titled = (
        *decided,
        ("promises", promised),
        ("figures", figures),
        ("notes", notes),
    )
    blocks = [head, *([title, *lines] for title, lines in titled)]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _row(figure: Figure) -> list[str]:
    start = f"  {figure.name:21}{_value(figure):>17}  {figure.origin:9} "
    return _wrapped(start, figure.formula)


def _wrapped(start: str, text: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _value(figure: Figure) -> str:
    value = figure.value
    match figure.unit:
        case "bytes":
            return show_bytes(value)
        case "bytes/s":
            return f"{show_number(value / 1e9)} GB/s"
        case "FLOP/s":
            return f"{show_number(value / 1e9)} GFLOP/s"
        case "s":
            return show_seconds(value)
        case "ratio":
            return show_ratio(value)
        case "count":
            return f"{value:.0f}"
    return f"{value:.12g} {figure.unit}"

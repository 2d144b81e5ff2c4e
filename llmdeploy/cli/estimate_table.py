"""An estimate as a table for people: each figure with its 90 % interval, then what was assumed."""

import io
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from llmdeploy.estimate.answer import Estimated
from llmdeploy.estimate.explain_formula import Formula
from llmdeploy.estimate.write import MEMORY_KEYS, SPEED_KEYS, Result, number_of
from llmdeploy.units import show_bytes, show_number, show_ratio, show_seconds

WIDTH = 100
NAMES = {
    "weights_bytes": "weights",
    "kv_bytes_per_token": "KV cache per token",
    "activation_bytes": "activations",
    "graph_bytes": "graphs",
    "other_bytes": "contexts, buffers",
    "kv_cache_bytes": "KV cache",
    "kv_cache_tokens": "KV cache",
    "max_concurrency": "longest requests at once",
    "ttft_s": "TTFT",
    "tpot_s": "TPOT",
    "output_tokens_per_s": "output",
    "utilisation_ratio": "utilisation",
}


def table(result: Result) -> str:
    """The estimate in plain text; readable without colour, at most WIDTH columns."""
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for column, side in (("figure", "left"), ("value", "right"), ("90 % between", "right")):
        grid.add_column(column, justify="right" if side == "right" else "left", no_wrap=True)
    grid.add_column("and", justify="right", no_wrap=True)
    grid.add_column("method")
    grid.add_column("origin")
    for key in (*MEMORY_KEYS, *SPEED_KEYS):
        number = number_of(result, key)
        if number is not None:
            grid.add_row(NAMES[key], *_cells(key, number), number.method, number.origin)
    return _printed(
        *_head(result), "", grid, "", _verdict(result), *_listed("assumed", result.assumptions),
        *_listed("not answered", [f"{m.key}: {m.why}" for m in result.unanswered]),
    )  # fmt: skip


def explained(formulas: Iterable[Formula]) -> str:
    """Each formula with its numbers, unit and source."""
    blocks: list[object] = ["formulas"]
    for formula in formulas:
        blocks += ["", formula.name, *_indented(formula.text), *_indented(f"({formula.source})")]
    return _printed(*blocks)


def _head(result: Result) -> list[str]:
    case = result.case
    version = f" {'.'.join(map(str, case.engine.version))}" if case.engine.version else ""
    device = case.device.name if case.device else "a device"
    size_bytes = case.device_memory_bytes or (case.device and case.device.usable_memory_bytes)
    memory = f" with {show_bytes(size_bytes)}" if size_bytes else ""
    spread = f"TP {case.tensor_parallel} x PP {case.pipeline_parallel} x DP {case.data_parallel}"
    return [
        f"{case.shape.architecture} ({result.model_source})",
        f"{case.engine.name}{version} on {device}{memory}, {spread}, {case.hosts} host(s)",
    ]


def _verdict(result: Result) -> str:
    match result.memory.fits:
        case True:
            return "fits"
        case False:
            known = any(number_of(result, key) is not None for key in SPEED_KEYS)
            speeds = "; the speeds are as if it did" if known else ""
            return f"does not fit: {result.memory.refusal or 'no reason known'}{speeds}"
        case _:
            why = next((m.why for m in result.unanswered if m.key == "fits"), "too close to say")
            return f"not known whether it fits: {result.memory.refusal or why}"


def _listed(title: str, lines: Iterable[str]) -> list[object]:
    shown = [line for text in lines for line in _indented(f"- {text}")]
    return [title, *shown] if shown else []


def _indented(text: str) -> list[str]:
    console = Console(width=WIDTH - 4, file=io.StringIO())
    return [f"  {line.plain.rstrip()}" for line in Text(text).wrap(console, WIDTH - 4)]


def _cells(key: str, number: Estimated) -> tuple[str, str, str]:
    return _shown(key, number.value), _shown(key, number.low), _shown(key, number.high)


def _shown(key: str, value: float) -> str:
    if key.endswith(("_bytes", "bytes_per_token")):
        return show_bytes(value)
    if key.endswith("_ratio"):
        return show_ratio(value)
    if key.endswith("_tokens"):
        return f"{value:.0f} tokens"
    if key == "output_tokens_per_s":
        return f"{show_number(value)} tokens/s"
    return f"{value:.3g}" if key == "max_concurrency" else show_seconds(value)


def _printed(*parts: object) -> str:
    text = io.StringIO()
    console = Console(file=text, width=WIDTH, color_system=None, highlight=False, markup=False)
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, str))
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"

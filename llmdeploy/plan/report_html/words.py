"""Pieces of the page: escaped text, rows, keys, numbers as people read them."""

import html
from collections.abc import Sequence

from llmdeploy.plan.document import Figure
from llmdeploy.units import show_bytes, show_ratio, show_seconds


def text(value: object) -> str:
    """The value as HTML text."""
    return html.escape(str(value), quote=True)


def section(title: str, body: str, *, lead: str = "") -> str:
    """A titled card; empty where it has no body."""
    if not body:
        return ""
    led = f"<p>{text(lead)}</p>" if lead else ""
    return f"<section><h2>{text(title)}</h2>{led}{body}</section>"


def rows(heads: Sequence[str], lines: Sequence[Sequence[str]], *, columns: str) -> str:
    """Lines of cells that are HTML already, as a table on wide pages and as blocks on narrow."""
    head = "".join(f'<span role="columnheader">{text(name)}</span>' for name in heads)
    body = "".join(
        '<div class="row" role="row">'
        + "".join(
            f'<span role="cell" data-name="{text(name)}">{cell}</span>'
            for name, cell in zip(heads, line, strict=True)
        )
        + "</div>"
        for line in lines
    )
    return (
        f'<div class="rows" role="table" style="--columns: {columns}">'
        f'<div class="row head" role="row">{head}</div>{body}</div>'
    )


def key(entries: Sequence[tuple[str, str]]) -> str:
    """What each colour stands for: (variable, words)."""
    shown = "".join(
        f'<span><i style="background: var(--{variable})"></i>{text(words)}</span>'
        for variable, words in entries
    )
    return f'<div class="key">{shown}</div>'


def number(value: float, unit: str) -> str:
    """The number with its unit, for people."""
    match unit:
        case "bytes":
            return show_bytes(value)
        case "bytes/s":
            return f"{short(value / 1e9)} GB/s"
        case "FLOP/s":
            return f"{short(value / 1e12)} TFLOP/s"
        case "s":
            return show_seconds(value)
        case "ratio":
            return show_ratio(value)
        case "count":
            return f"{value:,.0f}"
    return f"{short(value)} {unit}"


def short(value: float) -> str:
    """Four digits at most, with thousands apart and without an exponent."""
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    digits = f"{value:.4g}"
    return digits if "e" not in digits else f"{value:.6f}".rstrip("0")


def figure(figures: Sequence[Figure], name: str) -> Figure | None:
    """The plan's figure of that name."""
    return next((found for found in figures if found.name == name), None)

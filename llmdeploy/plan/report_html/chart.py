"""A small chart as inline SVG: two axes, lines, points, limits; it scales with the page."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from llmdeploy.plan.report_html.words import short, text

WIDTH, HEIGHT = 400, 250
LEFT, RIGHT, TOP, BOTTOM = 56, 18, 14, 40
"""Margins that hold the axes' words."""
MOST_TICKS = 6
"""Of one axis. Source: own choice: their words stay apart at 350 px."""


LETTER = 6.6
"""Width of a digit at the charts' size, bold. Source: own measurement in Chromium 140."""

Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis: its words, its range, and whether each step multiplies."""

    words: str
    low: float
    high: float
    logarithmic: bool = False

    def at(self, value: float) -> float:
        """Where the value lies between the ends, 0 to 1."""
        if self.logarithmic:
            low, high = math.log(self.low), math.log(self.high)
            return (math.log(max(value, self.low)) - low) / (high - low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Round values inside the range."""
        return self._decades() if self.logarithmic else self._steps()

    def _decades(self) -> list[float]:
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        for multiples in ((1, 2, 5), (1, 3), (1,)):
            found = [
                m * 10.0**power
                for power in range(first, last + 1)
                for m in multiples
                if self.low <= m * 10.0**power * 1.0001 and m * 10.0**power <= self.high * 1.0001
            ]
            if len(found) <= MOST_TICKS:
                return found
        return found[:: math.ceil(len(found) / MOST_TICKS)]

    def _steps(self) -> list[float]:
        rough = (self.high - self.low) / (MOST_TICKS - 1)
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough)
        first = math.ceil(self.low / step - 1e-9)
        return [n * step for n in range(first, math.floor(self.high / step + 1e-9) + 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A curve in one of the page's colours."""

    colour: str
    points: tuple[tuple[float, float], ...]
    dashed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A point with a short label beside it."""

    colour: str
    x: float
    y: float
    label: str
    filled: bool


def axis(words: str, values: Sequence[float], *, logarithmic: bool = False) -> Axis:
    """An axis that holds the values with a little room."""
    low, high = min(values), max(values)
    if logarithmic:
        low, high = low / 1.15, high * 1.15
        return Axis(words=words, low=low, high=high * (2 if high <= low else 1), logarithmic=True)
    room = (high - low) * 0.12 or max(abs(high) * 0.5, 1e-9)
    return Axis(words=words, low=max(0.0, low - room), high=high + room)


def chart(
    label: str,
    x: Axis,
    y: Axis,
    *,
    lines: Sequence[Line] = (),
    dots: Sequence[Dot] = (),
    limit: tuple[str, float] | None = None,
    mark: tuple[str, float] | None = None,
) -> str:
    """The chart; `limit` is a level of y and `mark` one of x that the reader compares with."""
    parts = [*_grid(x, y)]
    if limit is not None and y.low <= limit[1] <= y.high:
        parts.append(_limit(limit[0], _y(y, limit[1])))
    if mark is not None and x.low <= mark[1] <= x.high:
        parts.append(_mark(mark[0], _x(x, mark[1])))
    parts += [_path(line, x, y) for line in lines]
    parts += _dots(dots, x, y)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{text(label)}">'
        + "".join(parts)
        + "</svg>"
    )


def _grid(x: Axis, y: Axis) -> list[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = []
    for value in y.ticks():
        at = _y(y, value)
        parts.append(_rule(LEFT, at, right, at, "grid"))
        parts.append(_words(LEFT - 6, at + 3.5, short(value), anchor="end"))
    for value in x.ticks():
        at = _x(x, value)
        parts.append(_rule(at, bottom, at, bottom + 4, "quiet"))
        parts.append(_words(at, bottom + 15, short(value), anchor="middle"))
    parts.append(_rule(LEFT, bottom, right, bottom, "quiet"))
    parts.append(_words((LEFT + right) / 2, HEIGHT - 8, x.words, anchor="middle"))
    middle = (TOP + bottom) / 2
    turned = f'transform="rotate(-90 11 {middle:.1f})"'
    parts.append(_words(11, middle, y.words, anchor="middle", more=turned))
    return parts


def _limit(words: str, at: float) -> str:
    line = _rule(LEFT, at, WIDTH - RIGHT, at, "bad", dashed=True)
    above = at - 4 if at > TOP + 14 else at + 12
    return line + _words(LEFT + 4, above, words, anchor="start")


def _mark(words: str, at: float) -> str:
    line = _rule(at, TOP, at, HEIGHT - BOTTOM, "quiet", dashed=True)
    left = at > WIDTH / 2
    spot = at - 4 if left else at + 4
    return line + _words(spot, HEIGHT - BOTTOM - 6, words, anchor="end" if left else "start")


def _path(line: Line, x: Axis, y: Axis) -> str:
    spots = " L".join(
        f"{_x(x, a):.1f} {_y(y, b):.1f}" for a, b in line.points if b <= y.high * 1.0001
    )
    if not spots:
        return ""
    dashes = ' stroke-dasharray="5 3"' if line.dashed else ""
    return (
        f'<path d="M{spots}" fill="none" stroke="var(--{line.colour})" stroke-width="2"'
        f' stroke-linejoin="round"{dashes}/>'
    )


def _dots(dots: Sequence[Dot], x: Axis, y: Axis) -> list[str]:
    """The dots, each label where it covers neither a dot nor a label before it."""
    spots = [(_x(x, dot.x), _y(y, dot.y)) for dot in dots]
    taken = [(across - 6, down - 6, across + 6, down + 6) for across, down in spots]
    parts = []
    for dot, (across, down) in zip(dots, spots, strict=True):
        inside = f"var(--{dot.colour})" if dot.filled else "var(--card)"
        parts.append(
            f'<circle cx="{across:.1f}" cy="{down:.1f}" r="5" fill="{inside}"'
            f' stroke="var(--{dot.colour})" stroke-width="2"/>'
        )
        box = _free(across, down, LETTER * len(dot.label) + 2, taken)
        taken.append(box)
        parts.append(_words(box[0], box[3] - 3, dot.label, anchor="start", strong=dot.filled))
    return parts


def _free(across: float, down: float, wide: float, taken: Sequence[Box]) -> Box:
    """A place for a label of that width near the dot: beside it, above, below, then further."""
    for far in (9, 22, 36, 50, 64, 80, 100):
        for left, top in (
            (across + far, down - 7),
            (across - far - wide, down - 7),
            (across - wide / 2, down - far - 13),
            (across - wide / 2, down + far),
            (across + far, down - far - 7),
            (across + far, down + far - 7),
            (across - far - wide, down - far - 7),
            (across - far - wide, down + far - 7),
        ):
            box = (left, top, left + wide, top + 14)
            inside = box[0] > LEFT and box[2] < WIDTH and box[1] > 0 and box[3] < HEIGHT - BOTTOM
            if inside and not any(_cover(box, other) for other in taken):
                return box
    return (across + 9, down - 7, across + 9 + wide, down + 7)


def _cover(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _rule(x1: float, y1: float, x2: float, y2: float, colour: str, *, dashed: bool = False) -> str:
    dashes = ' stroke-dasharray="4 3"' if dashed else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
        f' stroke="var(--{colour})"{dashes}/>'
    )


def _words(
    x: float, y: float, words: str, *, anchor: str, strong: bool = False, more: str = ""
) -> str:
    kind = ' class="strong"' if strong else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kind} {more}>{text(words)}</text>'


def _x(x: Axis, value: float) -> float:
    return LEFT + x.at(value) * (WIDTH - LEFT - RIGHT)


def _y(y: Axis, value: float) -> float:
    return HEIGHT - BOTTOM - y.at(value) * (HEIGHT - TOP - BOTTOM)

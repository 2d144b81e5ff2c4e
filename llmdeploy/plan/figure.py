"""How a number of the plan is written: exact where it is counted, rounded where it is predicted."""

from llmdeploy.plan.document import Figure, Origin

DIGITS = 4
"""Of a predicted number; more would be noise, and would differ between machines' libraries."""


def counted(
    name: str, value: int, unit: str, formula: str, *, origin: Origin = Origin.DERIVED
) -> Figure:
    """A whole number of bytes, tokens or things; its formula ends in it."""
    written = f"{formula} = {value}"
    return Figure(name=name, value=float(value), unit=unit, origin=origin, formula=written)


def predicted(name: str, value: float, unit: str, formula: str, *, origin: Origin) -> Figure:
    """A rate, time or ratio, rounded; its formula ends in it."""
    short = shown(value)
    written = f"{formula} = {short}"
    return Figure(name=name, value=float(short), unit=unit, origin=origin, formula=written)


def shown(value: float) -> str:
    """The number with DIGITS digits, without an exponent where that stays readable."""
    text = f"{value:.{DIGITS}g}"
    return f"{float(text):.0f}" if "e+" in text and value < 1e15 else text


def weaker(*origins: Origin) -> Origin:
    """The origin of what is computed: assumed if any part is, else derived."""
    return Origin.ASSUMED if Origin.ASSUMED in origins else Origin.DERIVED

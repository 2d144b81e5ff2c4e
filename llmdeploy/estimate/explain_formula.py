"""One formula with its numbers put in."""

from dataclasses import dataclass

from llmdeploy.estimate.answer import Estimated


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """`words: sum = value`; the sum can be computed as it stands (tests/estimate/test_explain.py).

    An empty sum means that the words say where the value comes from.
    """

    name: str
    words: str
    sum: str
    value: float
    unit: str
    source: str

    @property
    def text(self) -> str:
        """The formula on one line."""
        result = f"{shown(self.value)} {self.unit}"
        return f"{self.words}: {self.sum} = {result}" if self.sum else f"{self.words}: {result}"


def shown(value: float) -> str:
    """Whole and large numbers without a fraction, others with four digits."""
    return f"{value:.0f}" if float(value).is_integer() or value >= 1000 else f"{value:.4g}"


def plain(name: str, words: str, number: Estimated, *, unit: str) -> Formula:
    """A value without a sum of its own, with its 90 % interval."""
    interval = f"90 % between {shown(number.low)} and {shown(number.high)}"
    return Formula(
        name=name,
        words=f"{words}; {interval}",
        sum="",
        value=number.value,
        unit=unit,
        source=f"{number.method} ({number.origin})",
    )

"""A pace as tables, filled when asked: the simulation asks the same thing many times."""

from llmdeploy.simulate.pace import Pace


class PaceTable:
    """The same times as the pace's; linear in the context between powers of two."""

    __slots__ = ("_decode", "_pace", "_prefill")

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._decode: dict[int, tuple[float, float]] = {}
        self._prefill: dict[tuple[int, int], float] = {}

    def decode_step_s(self, batch: int, context_tokens: float) -> float:
        """Seconds of one step of that batch without prompts."""
        octave = int(context_tokens).bit_length()
        key = batch << 6 | octave
        line = self._decode.get(key)
        if line is None:
            line = self._decode[key] = self._line(batch, octave)
        return line[0] + line[1] * context_tokens

    def prefill_s(self, tokens: int, context_tokens: int) -> float:
        """Seconds of one pass over that many prompt tokens."""
        key = (tokens, context_tokens)
        found = self._prefill.get(key)
        if found is None:
            found = self._prefill[key] = self._pace.prefill_s(tokens, context_tokens)
        return found

    def _line(self, batch: int, octave: int) -> tuple[float, float]:
        low, high = (2 ** (octave - 1), 2**octave) if octave else (0, 1)
        low_s = self._pace.decode_step_s(batch, low)
        slope = (self._pace.decode_step_s(batch, high) - low_s) / (high - low)
        return low_s - slope * low, slope

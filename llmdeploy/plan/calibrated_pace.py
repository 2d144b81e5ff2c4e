"""An engine's pace corrected by how former forecasts came out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from llmdeploy.estimate.answer import Method
from llmdeploy.estimate.calibration import Calibration, Forecast, calibration
from llmdeploy.estimate.case import Case
from llmdeploy.plan.size import EnginePace


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedPace:
    """Another pace with its times divided by what former releases measured over predicted."""

    pace: EnginePace
    found: Calibration

    @property
    def method(self) -> Method:
        """How its coefficients were had: now from this site's own releases."""
        return "calibrated"

    @property
    def spread_ratio(self) -> float:
        """Half the width of the records' 90 %, over their median."""
        return (self.found.high - self.found.low) / 2 / self.found.ratio

    def decode_step_s(self, batch: float, context_tokens: float) -> float:
        """Seconds of a step, corrected."""
        return self.pace.decode_step_s(batch, context_tokens) / self.found.ratio

    def prefill_s(self, tokens: float, context_tokens: float = 0) -> float:
        """Seconds of a pass over a prompt, corrected."""
        return self.pace.prefill_s(tokens, context_tokens) / self.found.ratio


def calibrated_pace(
    pace: Callable[[Case], EnginePace], records: Sequence[Forecast], *, model: str
) -> Callable[[Case], EnginePace]:
    """The same paces, corrected for devices and engines that have records."""

    def corrected(case: Case) -> EnginePace:
        plain = pace(case)
        if case.device is None:
            return plain
        found = calibration(records, device=case.device.id, engine=case.engine.name, model=model)
        return plain if found is None else CalibratedPace(pace=plain, found=found)

    return corrected if records else pace

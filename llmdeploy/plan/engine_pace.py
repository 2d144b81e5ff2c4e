"""The pace of any engine: the embedded one's own, all others' as estimates have it.

On processors the embedded engine's stands for the others, whose coefficients are of accelerators.
"""

from llmdeploy.estimate import speed
from llmdeploy.estimate.case import Case
from llmdeploy.plan.embedded_pace import embedded_pace
from llmdeploy.plan.size import EnginePace


def engine_pace(case: Case) -> EnginePace:
    """How fast one replica of the case is.

    Source: vLLM 0.32's CPU build decodes 25, 130 and 193 tokens/s at 1, 8 and 32 requests on one
    core, the embedded engine's one-thread worker 242 at 32 (SmolLM2-135M): within its interval.
    """
    on_processors = case.device is not None and case.device.vendor == "cpu"
    embedded = case.engine.name == "embedded" or on_processors
    return embedded_pace(case) if embedded else speed.pace(case)

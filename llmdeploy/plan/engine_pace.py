"""The pace of any engine: the embedded one's own, all others' as estimates have it."""

from llmdeploy.estimate import speed
from llmdeploy.estimate.case import Case
from llmdeploy.plan.embedded_pace import embedded_pace
from llmdeploy.plan.size import EnginePace


def engine_pace(case: Case) -> EnginePace:
    """How fast one replica of the case is."""
    return embedded_pace(case) if case.engine.name == "embedded" else speed.pace(case)

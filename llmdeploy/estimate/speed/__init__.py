"""How fast one launch is: seconds of a step, time to first token, tokens per second."""

from llmdeploy.estimate.speed.estimate import estimate
from llmdeploy.estimate.speed.pace import Pace, pace

__all__ = ["Pace", "estimate", "pace"]

"""Memory of one explicit launch: weights, cache, activations, and whether the engine starts."""

from llmdeploy.estimate.memory.estimate import estimate
from llmdeploy.estimate.memory.join import joined

__all__ = ["estimate", "joined"]

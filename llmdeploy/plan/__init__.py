"""What runs where and why: memory, batch, speed, replicas, promises."""

from llmdeploy.plan.document import Figure, Origin, Plan, PlannedModel, Promises, Replica
from llmdeploy.plan.files import files
from llmdeploy.plan.make import make

__all__ = [
    "Figure", "Origin", "Plan", "PlannedModel", "Promises", "Replica", "files", "make",
]  # fmt: skip

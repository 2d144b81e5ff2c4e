"""How an engine is started: a ServeSpec and a place become argv and environment."""

from llmdeploy.backends import embedded, sglang, vllm
from llmdeploy.backends.spec import DrillSpec, EngineCommand, GroupSpec, Place, Seat, ServeSpec

__all__ = ["DrillSpec", "EngineCommand", "GroupSpec", "Place", "Seat", "ServeSpec", "command"]

COMMANDS = {"embedded": embedded.command, "vllm": vllm.command, "sglang": sglang.command}


def command(serve: ServeSpec, place: Place) -> EngineCommand:
    """How the engine that `serve` names is started at that place."""
    return COMMANDS[serve.engine](serve, place)

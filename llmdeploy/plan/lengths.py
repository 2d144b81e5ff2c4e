"""Whether the lengths that a service asks for suit its model and each other."""

from llmdeploy.errors import InputError
from llmdeploy.model import ModelShape
from llmdeploy.plan.memory import pages
from llmdeploy.service import Service


def check_lengths(service: Service, shape: ModelShape) -> None:
    """InputError where the lengths contradict the model or each other."""
    engine, load = service.engine, service.workload
    if engine.max_model_len > shape.max_positions:
        raise InputError(
            f"engine/max_model_len: found {engine.max_model_len} tokens,"
            f" needed at most the model's {shape.max_positions}",
            fix=f"set engine.max_model_len to {shape.max_positions}",
        )
    mean_tokens = load.input_tokens.mean + load.output_tokens.mean
    if mean_tokens > engine.max_model_len:
        raise InputError(
            f"engine/max_model_len: found {engine.max_model_len} tokens,"
            f" needed the workload's mean of {mean_tokens:g} (input and output)",
            fix=f"set engine.max_model_len to {pages(mean_tokens)} or more",
        )

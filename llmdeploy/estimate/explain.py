"""The formulas behind an estimate, each with its numbers put in, its unit and its source."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

from llmdeploy.estimate.explain_formula import Formula, shown
from llmdeploy.estimate.explain_memory import (
    bytes_per_weight,
    device_memory_bytes,
    memory_formulas,
)
from llmdeploy.estimate.explain_speed import speed_formulas
from llmdeploy.estimate.write import Result

DOCUMENTS = "the documents: multi-host deployment, step 1"


def formulas(result: Result) -> tuple[Formula, ...]:
    """The documents' three formulas first, then what refines them, then speed."""
    return (*_documents(result), *memory_formulas(result), *speed_formulas(result))


def formula_trees(formulas: Iterable[Formula]) -> list[dict[str, Any]]:
    """Formulas with their numbers, in order."""
    return [
        {
            "name": formula.name,
            "formula": formula.text,
            "value": formula.value,
            "unit": formula.unit,
            "source": formula.source,
        }
        for formula in formulas
    ]


def _documents(result: Result) -> Iterator[Formula]:
    """The seed documents' formulas as they stand, before anything refines them.

    Source: the documents: weights = parameters x bytes per weight; KV budget = memory of one
    device - weights - overhead; largest batch = KV budget / mean KV of a request.
    """
    case, memory = result.case, result.memory
    devices = case.tensor_parallel * case.pipeline_parallel
    if case.shape.parameters is None:
        whole_bytes = memory.weights_bytes.value * devices
    else:
        parameters, each = case.shape.parameters.total, bytes_per_weight(result)
        whole_bytes = parameters * each
        yield Formula(
            name="weights_estimate",
            words="weights = parameters x bytes per weight",
            sum=f"{parameters} x {each:g}",
            value=whole_bytes,
            unit="bytes",
            source=DOCUMENTS,
        )
    total_bytes = device_memory_bytes(result)
    if total_bytes is None:
        return
    overhead_bytes = round(memory.activation_bytes.value + memory.other_bytes.value)
    budget_bytes = total_bytes - whole_bytes / devices - overhead_bytes
    yield Formula(
        name="kv_budget_estimate",
        words="KV budget = memory of one device - weights / devices - overhead",
        sum=f"{total_bytes} - {shown(whole_bytes)} / {devices} - {overhead_bytes}",
        value=budget_bytes,
        unit="bytes",
        source=DOCUMENTS,
    )
    yield from _documents_batch(result, budget_bytes)


def _documents_batch(result: Result, budget_bytes: float) -> Iterator[Formula]:
    """The third formula; without lengths, a request is as long as the longest allowed."""
    case, per_token = result.case, result.memory.kv_bytes_per_token.value
    if case.input_tokens is None or case.output_tokens is None:
        tokens = float(case.max_model_len or case.shape.max_positions)
        request = shown(tokens)
    else:
        tokens = case.input_tokens + case.output_tokens
        request = f"({case.input_tokens:g} + {case.output_tokens:g})"
    if per_token <= 0 or tokens <= 0:
        return
    holds = budget_bytes > 0
    yield Formula(
        name="max_batch_estimate",
        words="largest batch = KV budget / (tokens of a request x KV bytes per token)"
        if holds
        else "largest batch: there is no KV budget",
        sum=f"floor({budget_bytes:.0f} / ({request} x {shown(per_token)}))" if holds else "",
        value=math.floor(round(budget_bytes) / (tokens * per_token)) if holds else 0,
        unit="requests",
        source=DOCUMENTS,
    )

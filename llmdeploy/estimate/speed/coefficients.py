"""How far engines stay behind data sheets: coefficients of an engine, version, device, format."""

import functools
import importlib.resources
import math
from dataclasses import dataclass, fields
from typing import Any

import yaml

from llmdeploy.estimate.answer import Method
from llmdeploy.estimate.case import Case
from llmdeploy.model import ModelShape


@dataclass(slots=True, kw_only=True)
class Coefficients:
    """Factors on data-sheet times (1: as fast as the sheet) and seconds of overhead.

    Fields are floats, or arrays of many launches where coefficients are fitted.
    """

    step_s: float
    """Host work of a step."""
    request_s: float
    """Host work of a step per request in it."""
    layer_s: float
    """Starting a layer's kernels while decoding."""
    expert_layer_s: float
    """More of it where a layer routes to experts."""
    state_layer_s: float
    """More of it where a layer keeps a recurrent state."""
    latent_layer_s: float
    """More of it where a layer keeps latent vectors (MLA)."""
    indexer_layer_s: float
    """More of it where an indexer picks the tokens that a layer attends to."""
    dense_read: float
    dense_compute: float
    expert_read: float
    expert_compute: float
    expert_evenness: float
    """Tokens that route by themselves, of all in a step: alike ones visit the same experts."""
    kv_read: float
    attention_compute: float
    collective: float
    prompt_layer_s: float
    prompt_dense_compute: float
    prompt_expert_compute: float
    prompt_attention_compute: float
    mix: float
    """Share of a prompt's time by which it holds up those that decode."""
    first_s: float
    """From request to the first kernel and from the first token to the client."""
    first_steps: float
    """Decoding steps that a new prompt waits for."""
    cohort: float
    """Prompts of others computed with one's own: clients answered in one step ask in one step."""
    burst: float
    """Prompts waited for, of those at once: clients that start together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """The coefficients of a case and how well such cases were foretold."""

    coefficients: Coefficients
    method: Method
    kind: str
    """Key of its residuals: engine and whether it has experts."""
    seen: bool
    """This engine ran this model family on this device among the fitted launches."""


VARIED_TOKENS = 1024
"""Answers from here on are taken to end each on its own; shorter ones to be cut at one length for
all requests, so that clients who were answered together ask together again. No key tells which.
Source: assumed. InferenceX recipes pass --random-range-ratio at 1,024 output tokens and more; that
shorter public loops have one length is our reading of their TTFT, stated by none of them.
Fitted: clients of SGLang with short answers
wait for 0.65 of all prompts, of TensorRT-LLM for 1.6 prompts beside their own, with long ones 0.4.
"""


def classes(case: Case) -> dict[str, str]:
    """What a case shares its coefficients by."""
    architecture = case.device.architecture if case.device is not None else "none"
    engine = case.engine.name
    lengths = "varied" if (case.output_tokens or VARIED_TOKENS) >= VARIED_TOKENS else "equal"
    return {
        "engine": engine,
        "architecture": architecture,
        "format": _format(case),
        "version": _version(case),
        "pair": f"{engine}/{architecture}",
        "kernels": f"{engine}/{_format(case)}",
        "lengths": lengths,
        "rhythm": f"{engine}/{lengths}",
    }


def _format(case: Case) -> str:
    """Which kernels multiply the weights."""
    held = case.weight_format
    if held is None:
        return "plain"
    if held.method.startswith("mxfp4"):
        return "mxfp4"
    if held.method.startswith("gguf") or case.engine.name in ("llama.cpp", "mlc", "exllama"):
        return "gguf"
    if held.activation_bits <= 4:
        return "fp4"
    if held.activation_bits <= 8:
        return "8bit-blocks" if held.method == "fp8_block" else "8bit"
    return "weight-only"


_VERSIONS: dict[str, tuple[tuple[tuple[int, ...], str], ...]] = {
    "vllm": (
        ((0, 19), "vllm-0.19"), ((0, 16), "vllm-0.16"), ((0, 11), "vllm-0.11"), ((0,), "vllm-0"),
    ),
    "sglang": (((0, 5, 8), "sglang-0.5.8"), ((0,), "sglang-0")),
    "tensorrt-llm": (
        ((1, 2), "trtllm-1.2"), ((1, 1), "trtllm-1.1"), ((1,), "trtllm-1.0"), ((0,), "trtllm-0"),
    ),
}  # fmt: skip
"""First version of each class, newest first."""


def _version(case: Case) -> str:
    engine, version = case.engine.name, case.engine.version
    if version is None:
        return f"{engine}-unknown"
    for first, name in _VERSIONS.get(engine, ()):
        if version >= first:
            return name
    return f"{engine}-unknown"


@functools.cache
def table() -> dict[str, Any]:
    """The fitted table: logarithms by class, spreads by kind, launches behind them."""
    text = (importlib.resources.files("llmdeploy.estimate.speed") / "coefficients.yaml").read_text()
    loaded: dict[str, Any] = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return loaded


NAMES = tuple(field.name for field in fields(Coefficients))


def coefficients(case: Case) -> Fitted:
    """Base and the factors of the case's classes, multiplied.

    Calibrated where this engine was measured on this device family, interpolated where one of
    the two was, roofline where neither was.
    """
    shared = classes(case)
    found = _multiplied(tuple(shared.items()))
    rows = table()["launches"]
    if rows.get(f"pair={shared['pair']}", 0):
        method: Method = "calibrated"
    elif rows.get(f"engine={shared['engine']}", 0) or rows.get(
        f"architecture={shared['architecture']}", 0
    ):
        method = "interpolated"
    else:
        method = "roofline"
    kind = f"{shared['engine']}/{'experts' if case.shape.experts else 'dense'}"
    return Fitted(coefficients=found, method=method, kind=kind, seen=_cell(case) in _seen())


def family(shape: ModelShape) -> str:
    """Models that differ in their weights' values alone: architecture, width and depth."""
    return f"{shape.architecture.split('For')[0]}-{shape.hidden_size}x{shape.layers}"


def _cell(case: Case) -> str:
    device = case.device.id if case.device is not None else "none"
    return f"{case.engine.name}/{device}/{family(case.shape)}"


@functools.cache
def _seen() -> frozenset[str]:
    return frozenset(
        f"{engine}/{device}/{name}"
        for engine, devices in table()["seen"].items()
        for device, names in devices.items()
        for name in names
    )


@functools.lru_cache(maxsize=4096)
def _multiplied(shared: tuple[tuple[str, str], ...]) -> Coefficients:
    factors = table()["factors"]
    logs = dict(factors["base"])
    for group, name in shared:
        for key, value in factors.get(f"{group}={name}", {}).items():
            logs[key] += value
    return from_logs(logs)


def from_logs(logs: dict[str, float]) -> Coefficients:
    """Coefficients of their logarithms."""
    return Coefficients(**{name: math.exp(logs[name]) for name in NAMES})


def spread(figure: str, fitted: Fitted) -> tuple[float, float]:
    """log(measured / foretold) of a figure (tpot, ttft, tokens): 5th and 95th percentile.

    What fitted points show where this very launch's kind was among them, else what models and
    devices show that the fit never saw.
    """
    spreads = table()["spreads"][figure]
    known = "seen" if fitted.seen and fitted.method == "calibrated" else fitted.method
    low, high = spreads.get(f"{fitted.kind}/{known}", spreads[known])
    return low, high

"""The formulas of speed: the data sheet's floor under each figure, then the figure itself."""

from collections.abc import Iterator

from llmdeploy.catalog.types import DeviceSpec
from llmdeploy.estimate.answer import SpeedEstimate
from llmdeploy.estimate.explain_formula import Formula, plain, shown
from llmdeploy.estimate.write import Result
from llmdeploy.model import ModelShape

CLOSE_RATIO = 0.05
"""A closed loop's sum this near to the figure is shown as the figure's own."""


def speed_formulas(result: Result) -> Iterator[Formula]:
    """TPOT, TTFT and output tokens/s, the first two under the floor that they cannot beat."""
    speed, device = result.speed, result.case.device
    if speed is None or device is None:
        return
    yield from _decode_floor(result, speed, device)
    yield plain("tpot_s", _at(speed, "time between two tokens"), speed.tpot_s, unit="s")
    yield from _prefill_floor(result, device)
    yield plain("ttft_s", _at(speed, "time to the first token"), speed.ttft_s, unit="s")
    yield from _throughput(result, speed)
    words = "share of what the saturated server gives"
    yield plain("utilisation_ratio", words, speed.utilisation_ratio, unit="ratio")


def _decode_floor(result: Result, speed: SpeedEstimate, device: DeviceSpec) -> Iterator[Formula]:
    """(Weights read in a step + KV read in a step) / memory rate of one device.

    Of routed experts only those are read that some request visits: 1 - (1 - k / E)^requests.

    Source: Williams et al. 2009, the roofline; the data sheet's memory rate.
    """
    case, memory = result.case, result.memory
    requests = max(1.0, speed.concurrency / case.data_parallel)
    weights = f"{memory.weights_bytes.value:.0f}"
    read_bytes = float(round(memory.weights_bytes.value))
    routed_ratio = _routed_ratio(case.shape)
    if case.shape.experts is not None and routed_ratio:
        experts = case.shape.experts
        unread = (1 - experts.active / experts.count) ** requests * routed_ratio
        read_bytes *= 1 - unread
        weights += (
            f" x (1 - {routed_ratio:.4f} x (1 - {experts.active} / {experts.count})**{requests:g})"
        )
    context = (case.input_tokens or 0) + (case.output_tokens or 0) / 2
    each = memory.kv_bytes_per_token.value
    read_bytes += requests * context * each
    yield Formula(
        name="tpot_floor_s",
        words="(weights read + requests x mean context x KV bytes per token) / memory rate",
        sum=f"({weights} + {requests:g} x {context:g} x {shown(each)})"
        f" / {device.memory_bytes_per_s:.4g}",
        value=read_bytes / device.memory_bytes_per_s,
        unit="s",
        source=f"roofline; {device.source}",
    )


def _prefill_floor(result: Result, device: DeviceSpec) -> Iterator[Formula]:
    """2 products a weight and token, spread over the devices of one replica.

    Source: Kaplan et al. 2020, section 2.1; the data sheet's dense bf16 rate.
    """
    case, parts = result.case, result.case.shape.parameters
    if parts is None or case.input_tokens is None:
        return
    active = parts.total - parts.embedding - parts.vision
    if case.shape.experts is not None:
        experts = case.shape.experts
        active -= round(parts.routed_experts * (1 - experts.active / experts.count))
    devices = case.tensor_parallel * case.pipeline_parallel
    yield Formula(
        name="ttft_floor_s",
        words="2 x weights visited by a token x input tokens / (devices x bf16 rate)",
        sum=f"2 x {active} x {case.input_tokens:g} / ({devices} x {device.bf16_flops_per_s:.4g})",
        value=2 * active * case.input_tokens / (devices * device.bf16_flops_per_s),
        unit="s",
        source=f"roofline; {device.source}",
    )


def _throughput(result: Result, speed: SpeedEstimate) -> Iterator[Formula]:
    """Requests x output tokens / (TTFT + later tokens x TPOT), where that is what it is."""
    output = result.case.output_tokens
    number = speed.output_tokens_per_s
    if output is not None and output > 1:
        whole_s = speed.ttft_s.value + (output - 1) * speed.tpot_s.value
        closed = speed.concurrency * output / whole_s
        if abs(closed - number.value) <= CLOSE_RATIO * number.value:
            yield Formula(
                name="output_tokens_per_s",
                words="requests at once x output tokens / (TTFT + (output tokens - 1) x TPOT)",
                sum=f"{speed.concurrency:.6g} x {output:g} / ({speed.ttft_s.value:.4g}"
                f" + ({output:g} - 1) x {speed.tpot_s.value:.4g})",
                value=closed,
                unit="tokens/s",
                source=f"{number.method} ({number.origin})",
            )
            return
    words = _at(speed, "output tokens of all devices together")
    yield plain("output_tokens_per_s", words, number, unit="tokens/s")


def _routed_ratio(shape: ModelShape) -> float:
    """Share of the weights that lies in routed experts, four digits as it is written."""
    parts = shape.parameters
    return round(parts.routed_experts / parts.total, 4) if parts is not None else 0.0


def _at(speed: SpeedEstimate, words: str) -> str:
    return f"{words}, {speed.concurrency:.4g} requests at once"

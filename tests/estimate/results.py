"""Results with plain numbers, to test how they are written and explained."""

from llmdeploy.catalog import devices, engines
from llmdeploy.estimate.answer import Estimated, MemoryEstimate, SpeedEstimate
from llmdeploy.estimate.case import Case
from llmdeploy.estimate.write import Result, Unanswered
from llmdeploy.model import from_config

from .configs import LLAMA_8B, LLAMA_8B_PARAMETERS

GIB = 2**30


def number(value, *, spread=0.1, origin="derived", method="calibrated"):
    return Estimated(
        value=value, low=value * (1 - spread), high=value * (1 + spread), origin=origin,
        method=method,
    )  # fmt: skip


def case(config=LLAMA_8B, **changes):
    given = {
        "shape": from_config(config, place="config.json"), "weight_format": None,
        "engine": engines.find("vllm", "0.11.0"), "device": devices.find("h100-sxm"),
        "device_memory_bytes": 80 * GIB, "max_model_len": 8192, "input_tokens": 1000,
        "output_tokens": 200, "concurrency": 8,
    } | changes  # fmt: skip
    return Case(**given)


def memory(**changes):
    # 80 GiB x 0.9 - 16,060,522,496 - 2 GiB - 0.2 GiB = 58,884,923,003 bytes of KV cache
    kv_bytes = 58_884_923_003
    given = {
        "weights_bytes": number(2 * LLAMA_8B_PARAMETERS, method="counted"),
        "kv_bytes_per_token": number(131_072, spread=0, method="counted"),
        "activation_bytes": number(2 * GIB),
        "graph_bytes": number(GIB // 2),
        "other_bytes": number(GIB // 5),
        "kv_cache_bytes": number(kv_bytes),
        "kv_cache_tokens": number(kv_bytes // 131_072 // 16 * 16),
        "max_concurrency": number(kv_bytes / 131_072 / 8192),
        "fits": True,
        "refusal": None,
    } | changes
    return MemoryEstimate(**given)


def speed(**changes):
    # closed loop: 8 x 200 / (0.05 + 199 x 0.008) = 974.4 output tokens/s
    given = {
        "ttft_s": number(0.05), "tpot_s": number(0.008), "output_tokens_per_s": number(974.4),
        "utilisation_ratio": number(0.3), "concurrency": 8.0, "load": "concurrency",
    } | changes  # fmt: skip
    return SpeedEstimate(**given)


def result(**changes):
    given = {
        "case": case(), "model_source": "config.json", "memory": memory(), "speed": speed(),
        "assumptions": ("engine is not given: vllm",), "unanswered": (),
    } | changes  # fmt: skip
    return Result(**given)


def without_device():
    """Weights and KV per token alone: neither the device nor its memory is known."""
    reason = "gpu is not given: name the device"
    return result(
        case=case(device=None, device_memory_bytes=None),
        memory=memory(kv_cache_bytes=None, kv_cache_tokens=None, max_concurrency=None, fits=None),
        speed=None,
        unanswered=tuple(Unanswered(key=key, why=reason) for key in ("ttft_s", "tpot_s")),
    )

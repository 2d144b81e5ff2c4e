"""The terms every engine's accounting shares: device total, weights, contexts, graphs."""

from llmdeploy.estimate.case import Case
from llmdeploy.estimate.memory.draft import draft_weights
from llmdeploy.estimate.memory.layers import attention_parallel, dtype_bytes
from llmdeploy.estimate.memory.spread import Term
from llmdeploy.model import Part, weights_bytes

GIB = 2**30
TABLE_DEVIATION_RATIO = 0.002
"""Of a device's usable total between hosts and drivers. Source: 43 logged totals of 12 devices."""
FOUR_BIT_DEVIATION_RATIO = 0.06
EIGHT_BIT_DEVIATION_RATIO = 0.025
ASCEND_DEVIATION_RATIO = 0.12
COMPRESSED_DEVIATION_RATIO = 0.12
"""Of DeepSeek V4's kind with SGLang, whose builds hold 4-bit experts in several ways.
Source: its sources of 2026: Marlin's, FlashInfer's and DeepGEMM's layouts of scales."""
STALE_SCALE_BITS = 1.0
"""Per weight of 4-bit experts, where Marlin multiplies them: scales are loaded as one 32-bit number
for 32 weights and stay beside the 8-bit ones that Marlin reads.

Source: SGLang 2026 `Mxfp4MarlinMoEMethod.create_weights`, `prepare_moe_mxfp4_layer_for_marlin`
(reads `w13_weight_scale_inv`, sets `w13_weight_scale`); DeepSeek-V4-Pro on 8 H200 logs 125.65 GiB
a device, with the stale scales we count 124.4, without 101.9."""
MARLIN_CAPABILITY = "9.0"
"""Where SGLang has no products of 4 bits but Marlin's. Source: as above; others refuse or have
kernels of their own."""
EXPERT_BUFFERS_BYTES = 1.6 * GIB
EXPERT_BUFFERS_DEVIATION_BYTES = 0.8 * GIB
"""With the weights on Ascend where experts are spread: buffers to exchange tokens.

Source: 7 public launch logs of SGLang on Atlas 800 (0.6 to 2.9 GiB beyond the weights)."""
UNIFIED = ("gb10", "apple", "strix", "jetson")


def is_unified(case: Case) -> bool:
    """Whether processor and accelerator share the memory."""
    device = case.device
    if device is None:
        return False
    return device.vendor == "apple" or any(
        word in f"{device.id} {device.name}".lower() for word in UNIFIED
    )


def has_nvlink(case: Case) -> bool:
    """Whether the devices of a host are joined by NVLink, as far as it is known."""
    link = case.link.id if case.link else case.device.link if case.device else ""
    return link.startswith("nvlink")


def total(case: Case) -> Term | None:
    """The device's memory as engines see it; None where it is not known."""
    if case.device_memory_bytes is not None:
        return Term(float(case.device_memory_bytes), 0.0005 * case.device_memory_bytes)
    if case.device is None:
        return None
    size = float(case.device.usable_memory_bytes)
    return Term(size, TABLE_DEVIATION_RATIO * size)


def weights(case: Case) -> Term:
    """Weights on the fullest rank. Data parallel attention shards attention less, and experts
    are spread over the replicas too where the engine joins them."""
    size = float(
        weights_bytes(
            case.shape,
            case.weight_format,
            dtype=case.dtype,
            tp=case.tensor_parallel,
            pp=case.pipeline_parallel,
            ep=case.expert_parallel,
            compute_capability=case.device.compute_capability if case.device else None,
        )
    )
    size += (_moved_bytes(case) + _stale_scale_bytes(case)) / case.pipeline_parallel
    loaded = Term(size, size * _weights_deviation_ratio(case))
    return loaded + draft_weights(case) + _expert_buffers(case)


def _expert_buffers(case: Case) -> Term:
    ascend = case.device is not None and case.device.vendor == "ascend"
    if ascend and case.expert_parallel and case.attention_data_parallel:
        return Term(EXPERT_BUFFERS_BYTES, EXPERT_BUFFERS_DEVIATION_BYTES)
    return Term(0.0)


def _moved_bytes(case: Case) -> float:
    """What the rank holds more, or less, than under TP alone.

    Source: vLLM 0.11 `FusedMoEParallelConfig` (EP over TP x DP); SGLang 0.5.9
    `--enable-dp-attention`: `VocabParallelEmbedding(enable_tp=not is_dp_attention_enabled())`,
    `enable_dp_lm_head` off.
    """
    parameters, tp = case.shape.parameters, case.tensor_parallel
    if parameters is None or case.data_parallel == 1:
        return 0.0
    inner = attention_parallel(case)
    split = parameters.attention - parameters.attention_whole
    moved = split * _weight_bytes(case, "attention") * (1 / inner - 1 / tp)
    if case.attention_data_parallel:  # the embedding whole on every rank, the head over all
        moved += parameters.embedding * _weight_bytes(case, "embedding") * (1 - 1 / tp)
    if case.expert_parallel and not case.attention_data_parallel:
        spread = 1 / (tp * case.data_parallel) - 1 / tp
        moved += parameters.routed_experts * _weight_bytes(case, "routed_experts") * spread
    return moved


def _stale_scale_bytes(case: Case) -> float:
    """Scales of the experts that SGLang no longer reads once they are packed for Marlin."""
    parameters = case.shape.parameters
    if parameters is None or not _packs_for_marlin(case):
        return 0.0
    return parameters.routed_experts * STALE_SCALE_BITS / 8 / case.tensor_parallel


def _packs_for_marlin(case: Case) -> bool:
    """Whether SGLang loads 4-bit experts of an FP8 checkpoint, and packs them for Marlin."""
    held, device = case.weight_format, case.device
    if case.engine.name != "sglang" or held is None or device is None:
        return False
    mixed = held.method == "fp8_block" and (held.expert_bits or 8.0) < 5.0
    return mixed and device.compute_capability == MARLIN_CAPABILITY


def _weight_bytes(case: Case, part: Part) -> float:
    bits = case.weight_format.stored_bits(part) if case.weight_format else None
    return dtype_bytes(case) if bits is None else bits / 8


def _weights_deviation_ratio(case: Case) -> float:
    """Deviation of the count, by how much of the checkpoint its format leaves open.

    Source: our count against 121 logged sizes: plain 0.2 % off, FP8 2 %, 4-bit to 14 % (what
    stays unquantised differs by publisher), on Ascend to 25 % (ModelSlim mixes widths).
    """
    held = case.weight_format
    ratio = 0.004
    if held is not None:
        ratio = FOUR_BIT_DEVIATION_RATIO if held.bits < 8 else EIGHT_BIT_DEVIATION_RATIO
        if case.device is not None and case.device.vendor == "ascend":
            ratio = ASCEND_DEVIATION_RATIO
    if case.shape.multimodal:
        ratio = max(ratio, 0.02)
    if case.attention_data_parallel:
        ratio = max(ratio, 0.08)
    compressed = any(part.compression > 1 for part in case.shape.cache)
    if case.engine.name == "sglang" and compressed and not _packs_for_marlin(case):
        ratio = max(ratio, COMPRESSED_DEVIATION_RATIO)
    return ratio

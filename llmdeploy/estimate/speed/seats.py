"""How many requests one replica decodes at once at most: cache and scheduler."""

from llmdeploy.catalog.types import EngineName
from llmdeploy.estimate import memory
from llmdeploy.estimate.case import Case
from llmdeploy.estimate.memory.vllm_rules import default_sequences
from llmdeploy.estimate.speed.spread import Groups, groups
from llmdeploy.estimate.speed.work import kv_element_bytes

SLOTS = {"llama.cpp": 1, "exllama": 1, "tgi": 128, "lmdeploy": 256, "mlc": 80, "mindie": 200,
         "tensorrt-llm": 2048, "sglang": 2048, "embedded": 64}  # fmt: skip
"""Requests that an engine's scheduler takes by default.
Source: llama.cpp 2024 `-np`, LMDeploy 0.7 `max_batch_size`, MLC-LLM `max_num_sequence`, MindIE
`maxBatchSize`, TensorRT-LLM 1.0 `max_batch_size`, SGLang 0.5 `max_running_requests`, TGI 3."""


RESERVING: tuple[EngineName, ...] = ("tensorrt-llm",)
"""Engines that admit a request when its longest answer has room.
Source: TensorRT-LLM 0.8 to 1.2 `CapacitySchedulerPolicy.GUARANTEED_NO_EVICT`, its default."""
BURST_REQUESTS = 500.0
"""Requests at a saturated server whose load is not said, of all replicas together.
Source: our reading of 120 runs of the GPUStack performance lab with all prompts at once: TTFT is
half the time of 450 to 500 requests. TensorRT-LLM's own benchmark fills every slot instead."""


def seats(case: Case) -> float:
    """Requests of one replica at once: the scheduler's limit, and the cache over a mean request.

    A request holds its prompt and, on average, half its output; of an engine that keeps room for
    all of it from the start, its whole output.
    """
    spread = groups(case)
    room = _room(case, spread)
    unsaid = case.concurrency is None and case.request_rate_per_s is None
    if unsaid and case.engine.name != "tensorrt-llm":
        return max(1.0, min(room, BURST_REQUESTS / spread.replicas))
    return room


def _room(case: Case, spread: Groups) -> float:
    limit = float(case.max_num_seqs or _slots(case)) * spread.attention_workers
    cached = memory.estimate(case).kv_cache_tokens
    if cached is None or cached.value <= 0:
        return limit
    kept = 1.0 if case.engine.name in RESERVING else 0.5
    held = (case.input_tokens or 512.0) + kept * (case.output_tokens or 256.0)
    tokens = cached.value * spread.attention_workers * _more_by_width(case)
    return max(1.0, min(limit, tokens / held))


def _slots(case: Case) -> int:
    """Of one attention worker, as the engine is started by default."""
    if case.engine.name != "vllm":
        return SLOTS[case.engine.name]
    size_bytes = case.device.memory_bytes if case.device is not None else 0
    ranks = case.tensor_parallel * case.pipeline_parallel
    return default_sequences(case.engine.version, case.device, size_bytes, ranks=ranks)


def _more_by_width(case: Case) -> float:
    """The cache estimate takes 16 bits where nothing is said; recipes may take 8."""
    held = case.weight_format
    if case.kv_cache_dtype is not None or (held is not None and held.kv_cache_dtype is not None):
        return 1.0
    return 2.0 / kv_element_bytes(case)

"""One explicit launch, names already resolved: what an estimate is made of."""

from dataclasses import dataclass

from llmdeploy.catalog.types import DeviceSpec, Engine, LinkSpec
from llmdeploy.model import ModelShape, WeightFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A launch and its load. None means unknown: the interval widens."""

    shape: ModelShape
    weight_format: WeightFormat | None
    """As asked or as the checkpoint is; None: plain weights in the dtype."""
    engine: Engine
    device: DeviceSpec | None
    """None where only the memory is known: memory is answered, speed is not."""
    device_memory_bytes: int | None
    """Total as the engine sees it; None: the device's usable memory."""
    hosts: int = 1
    link: LinkSpec | None = None
    """Between devices of a host, where it is not the device's own."""
    network: LinkSpec | None = None
    """Between hosts."""
    all_reduce: tuple[tuple[int, float], ...] = ()
    """Measured on these hosts: message bytes and seconds to sum them over one tensor group."""
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    expert_parallel: bool = False
    attention_data_parallel: bool = False
    memory_ratio: float | None = None
    """The engine's own memory fraction; None: its default at that version."""
    max_model_len: int | None = None
    kv_cache_dtype: str | None = None
    """Our word: bf16, fp16, fp32, fp8, int8; None: auto."""
    dtype: str | None = None
    """Of activations and unquantised weights: bf16, fp16, fp32; None: the checkpoint's."""
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    enforce_eager: bool | None = None
    speculative_tokens: int | None = None
    """Drafted a step by the model's own MTP layers; None: they are not loaded."""
    input_tokens: float | None = None
    output_tokens: float | None = None
    concurrency: float | None = None
    request_rate_per_s: float | None = None

"""What an engine process must serve and where it runs, independent of which engine it is."""

from dataclasses import dataclass
from typing import Literal

from llmdeploy.document import Document


class DrillSpec(Document):
    """A deliberate fault; see `service.Drill`."""

    slowdown: float = 1.0
    error_ratio: float = 0.0
    garbage_ratio: float = 0.0
    after_requests: int = 0


class GroupSpec(Document):
    """What vLLM and SGLang need beyond a ServeSpec: a replica is a group of one rank a device."""

    version: str
    """Of the engine; decides which flags are written."""
    vendor: Literal["nvidia", "amd", "ascend", "other"]
    hosts: int
    """Hosts of one replica; each has the same number of its ranks."""
    pipeline_parallel: int
    expert_parallel: bool
    attention_data_parallel: bool
    """Attention is copied rather than split: each device serves its own requests."""
    kv_cache_dtype: Literal["auto", "fp8"]
    memory_ratio: float
    """Share of a device's memory, by the engine's own meaning of its fraction."""
    start_timeout_s: float
    """How long ranks may wait for each other while the group forms."""
    kv_cache_bytes: int | None = None
    """Of one rank, on processors: their memory is shared with all else, so a share of it says
    nothing. None: the engine takes what `memory_ratio` leaves."""


class ServeSpec(Document):
    """One engine replica as the plan wants it; ports and paths come at launch (`Place`)."""

    engine: Literal["embedded", "vllm", "sglang"]
    served_name: str
    """The `model` that clients ask for."""
    device: Literal["cpu", "cuda", "rocm", "npu", "xpu"]
    dtype: Literal["bfloat16", "float16", "float32"]
    quantization: Literal["none", "int8", "nf4", "fp8"]
    """What the engine converts weights to while it loads them; `none` keeps the checkpoint's."""
    tensor_parallel: int
    data_parallel: int
    """Engine workers behind the replica's one endpoint (one-thread workers on CPU)."""
    threads_per_worker: int
    max_model_len: int
    max_num_seqs: int
    """Most requests decoded together, over all workers of the replica."""
    max_num_batched_tokens: int
    max_queue: int
    """Requests the engine lets wait; more are answered 429."""
    kv_cache_tokens: int
    """KV capacity over all workers of the replica, a multiple of the 32-token page."""
    batch_window_s: float
    request_timeout_s: float
    drain_timeout_s: float
    log_level: Literal["debug", "info", "warning"]
    drill: DrillSpec | None = None
    group: GroupSpec | None = None
    """None for the embedded engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """One host's part in a replica of vLLM or SGLang."""

    position: int
    """0 is the head, which serves HTTP."""
    head_address: str
    group_port: int
    """Where the head's rendezvous listens."""
    interface: str | None
    """Network interface of `Place.address`; None: the libraries choose."""
    device_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one replica runs: what only launch knows."""

    python: str
    model_folder: str
    address: str
    port: int
    cores: tuple[int, ...]
    """CPU cores the replica is pinned to; empty means all."""
    seat: Seat | None = None
    """None for the embedded engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCommand:
    """How the engine process is started: no secret is ever in it."""

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    """The whole environment besides PATH, HOME and LANG, sorted by name."""

"""What a version of vLLM does with memory: defaults and accounting, by version."""

from dataclasses import dataclass, replace

from llmdeploy.catalog.types import DeviceSpec
from llmdeploy.estimate.case import Case
from llmdeploy.estimate.memory.activation import (
    BUILT_LOGIT_BYTES,
    PLAIN_LOGIT_BYTES,
    SORTED_LOGIT_BYTES,
    UNSAID_LOGIT_BYTES,
)

Version = tuple[int, ...]
NEWEST: Version = (99, 0, 0)
"""Stands for a version that is not known: images and source builds are recent."""
KEPT_RATIO = 0.8
"""To 0.6.3 the peak was what the allocator had reserved: blocks that the forward pass gave back
count, and the sampler, whose tensors have other sizes, finds little room in them.

Source: vLLM 0.5 to 0.6.3 `determine_num_available_blocks`; our fit over 6 public launch logs, of
which the 3 where both peaks are large kept 0.54, 0.83 and 0.96 of the smaller one."""
LARGE_DEVICE_BYTES = 70 * 2**30
LARGEST_DEVICE_BYTES = 160 * 2**30
PROCESSORS = (128, 2048)
"""max_num_seqs and max_num_batched_tokens of a server on processors, a rank.

Source: vLLM 0.32 `EngineArgs.get_batch_defaults`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmRules:
    """One version's rules."""

    v1: bool
    """The second engine core, default since 0.8."""
    memory_ratio: float
    """gpu_memory_utilization where it is not given."""
    groups: bool
    """Sliding and state layers have blocks of their own; before, all were kept as full."""
    chunked_groups: bool
    """Chunked layers too; first they were left out for their latency."""
    padding_ratio: float
    """Groups are padded to the larger count where it is less than this over the smaller."""
    prints_concurrency: bool
    """Printed tokens are concurrency x max_model_len."""
    state_blocks: int
    """Blocks a request's state takes in a group."""
    logit_bytes: float
    """Of one logit at the sampler's peak, which the profile run pays for."""
    logit_deviation_ratio: float
    """More where the engine's build decides how it samples."""
    shares_expert_buffers: bool
    """A mixture's first and last product lie in one buffer."""
    early_amd: bool
    """ROCm builds that keep more back."""
    graphs_in_budget: bool
    """CUDA graphs are estimated and taken off before the cache is sized."""
    expanded_latent: bool
    """MLA is kept as full heads."""
    obeys_checkpoint: bool
    """kv_cache_dtype auto follows what the checkpoint asks for."""
    kept_ratio: float = 0.0
    """Share of the smaller of two peaks that this version counts beside the larger one."""
    whole_prompts: bool = False
    """The profile run computes the longest prompt at once, not in chunks."""


def vllm_rules(version: Version | None) -> VllmRules:
    """The rules of a version; the newest where it is not known.

    Source: vLLM release sources; versions read off our 149 launch logs where the change is between
    releases: fraction 0.92 and graphs in the budget from 0.21, printed concurrency from 0.20,
    two state blocks (prefix caching of states on) from 0.26, no sort in the sampler from 0.16.
    """
    at = version or NEWEST
    return VllmRules(
        v1=at >= (0, 8),
        memory_ratio=0.92 if at >= (0, 21) else 0.90,
        groups=at >= (0, 9, 2),
        chunked_groups=at >= (0, 13),
        padding_ratio=1.5 if at >= (0, 14) else 1.25,
        prints_concurrency=at >= (0, 20),
        state_blocks=2 if at >= (0, 26) else 1,
        logit_bytes=_logit_bytes(version),
        logit_deviation_ratio=_logit_deviation_ratio(version),
        shares_expert_buffers=at >= (0, 10),
        early_amd=(0, 8) <= at < (0, 12),
        graphs_in_budget=at >= (0, 21),
        expanded_latent=at < (0, 7, 1),
        obeys_checkpoint=at >= (0, 10),
        kept_ratio=KEPT_RATIO if at < (0, 6, 4) else 0.0,
    )


def on_rocm(rules: VllmRules, version: Version | None) -> VllmRules:
    """The same on AMD's devices: the first core to 0.9, without chunks of prompts.

    Source: vLLM 0.9 `_set_default_args_v0`, chunked prefill by default on CUDA alone; one public
    launch log on MI300X whose peak of 14.6 GiB is that of 131,072 tokens.
    """
    if version is None or version >= (0, 10):
        return rules
    return replace(rules, v1=False, whole_prompts=True)


def on_first_core(rules: VllmRules) -> VllmRules:
    """The same on the first core, where the second, its version's default, cannot run."""
    return replace(
        rules,
        v1=False,
        memory_ratio=0.90,
        groups=False,
        prints_concurrency=False,
        graphs_in_budget=False,
        logit_bytes=SORTED_LOGIT_BYTES,
        logit_deviation_ratio=0.1,
    )


def needs_first_core(case: Case) -> bool:
    """Whether the second core cannot run a case: cards before compute capability 8.0 until 0.10.2,
    an FP8 cache on others than Hopper until 0.10, and Mllama, which later versions dropped.

    Source: vLLM 0.9 `_is_v1_supported_oracle`; 0.10.2 release notes.
    """
    version, device = case.engine.version, case.device
    early = version is not None and (0, 8) <= version < (0, 10, 2)
    if case.shape.architecture.startswith("Mllama"):
        return early or version is None
    capability = device.compute_capability if device else None
    if not early or capability is None or version is None:
        return False
    fp8_cache = (case.kv_cache_dtype or "").startswith("fp8") and version < (0, 10)
    return float(capability) < 8.0 or (fp8_cache and capability != "9.0")


def _logit_bytes(version: Version | None) -> float:
    if version is None:
        return UNSAID_LOGIT_BYTES
    if (0, 9) <= version < (0, 11, 1):
        return BUILT_LOGIT_BYTES
    return SORTED_LOGIT_BYTES if version < (0, 16) else PLAIN_LOGIT_BYTES


def _logit_deviation_ratio(version: Version | None) -> float:
    """FlashInfer, which images had and package installs had not, did not sort from 0.9 to 0.11.0;
    0.8 has both cores.

    Source: of 7 public launches of 0.9 to 0.11.0, 4 paid for the sort.
    """
    if version is not None and (0, 8) <= version < (0, 8, 4):
        return 2.0
    if version is None or (0, 8) <= version < (0, 11, 1):
        return 0.4
    return 0.1 if version < (0, 16) else 0.4


def default_sequences(
    version: Version | None,
    device: DeviceSpec | None,
    total_bytes: int,
    *,
    v1: bool = True,
    ranks: int = 1,
) -> int:
    """max_num_seqs where it is not given; of `ranks` on processors.

    Source: vLLM 0.8 to 0.22 `_set_default_args_v1`: 1024 on large devices but A100, 256 elsewhere;
    V0 256. 0.8.0 to 0.8.3 took 1024 everywhere in V1, and fell back to V0 as often as not.
    """
    at = version or NEWEST
    if _is_processor(device):
        return PROCESSORS[0] * ranks
    return 1024 if v1 and at >= (0, 8) and _large(at, device, total_bytes) else 256


def default_batched_tokens(
    version: Version | None,
    device: DeviceSpec | None,
    *,
    total_bytes: int,
    length_tokens: int,
    v1: bool = True,
    ranks: int = 1,
) -> int:
    """max_num_batched_tokens of a server where it is not given: what the profile run computes.

    Source: vLLM 0.5.4 to 0.7 `SchedulerConfig` (a whole prompt, in chunks of 512 and later 2048
    beyond 32k tokens); 0.8 to 0.22 `_set_default_args_v1`, OPENAI_API_SERVER; 0.28 and 0.32
    `get_batch_defaults`: 16384 from 160 GiB.
    """
    at = version or NEWEST
    if _is_processor(device):
        return PROCESSORS[1] * ranks
    if at >= (0, 28) and total_bytes >= LARGEST_DEVICE_BYTES:
        return 16384
    if v1 and at >= (0, 8):
        return 8192 if _large(at, device, total_bytes) else 2048
    if length_tokens > 32768 and at >= (0, 5, 4):
        return 512 if at < (0, 7) else 2048
    return max(length_tokens, 2048)


def _is_processor(device: DeviceSpec | None) -> bool:
    return device is not None and device.vendor == "cpu"


def _large(at: Version, device: DeviceSpec | None, total_bytes: int) -> bool:
    name = f"{device.id} {device.name}".lower() if device else ""
    if "gb10" in name:  # shares the host's memory, which is not counted
        return False
    if at < (0, 9):
        return "h100" in name or "h200" in name or "mi300" in name
    return total_bytes >= LARGE_DEVICE_BYTES and "a100" not in name

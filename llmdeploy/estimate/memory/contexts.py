"""What vLLM keeps beside torch's allocator: contexts, communication buffers, other programs."""

from llmdeploy.estimate.case import Case
from llmdeploy.estimate.memory.spread import Term
from llmdeploy.estimate.memory.terms import GIB, has_nvlink, is_unified
from llmdeploy.estimate.memory.vllm_rules import VllmRules

ONE = Term(0.17 * GIB, 0.08 * GIB)
GROUP = Term(0.22 * GIB, 0.12 * GIB)
NVLINK_GROUP = Term(0.5 * GIB, 0.25 * GIB)
V0_DEVIATION_FACTOR = 4.0
"""Of one device, of a group, of a group over NVLink.

Source: our fit over 22 public launch logs that print them and 40 that leave them over. V0 varied
more: 0 to 1.8 GiB on one device, 0.3 to 5.7 in groups."""
MANY_RANKS = 8
MANY_FACTOR = 2.0
"""NCCL's buffers over NVLink from 8 ranks.

Source: 3 public launch logs of SGLang on 8 and 16 ranks: 1.6 to 2.1 GiB before the weights."""
AMD = Term(0.35 * GIB, 0.25 * GIB)
EARLY_AMD = Term(2.4 * GIB, 0.5 * GIB)
"""More on ROCm; before 0.12 also the workspace of the library that multiplies 16-bit layers.

Source: our fit over 15 public launch logs on MI300X and R9700: 0 to 0.5 GiB; before 0.12, 2.3 to
3.0 in the four whose attention is in 16 bits and 0.2 to 0.5 in the three where all is quantised."""
PROCESS = Term(1.0 * GIB, 0.6 * GIB)
"""What a worker on processors holds beside the weights: interpreter, libraries, warm-up.

Source: vLLM 0.32 `CPUWorker.determine_available_memory` takes off the process's resident bytes;
three processes with 0.25 GiB of weights and 1 GiB of cache were 3.5 GiB, our measurement."""
UNIFIED = Term(1.4 * GIB, 1.0 * GIB)
"""Host programs in memory that processor and accelerator share.

Source: our fit over 10 public launch logs on GB10: 0.3 to 2.9 GiB."""


def beside_torch(case: Case, rules: VllmRules) -> Term:
    """Bytes of one device that are neither weights, activations, graphs nor cache."""
    if case.device is not None and case.device.vendor == "cpu":
        return PROCESS
    term = _contexts(case)
    if not rules.v1:
        term = Term(term.value_bytes, V0_DEVIATION_FACTOR * term.deviation_bytes)
    if case.device is not None and case.device.vendor == "amd":
        term = term + (EARLY_AMD if rules.early_amd and _in_16_bits(case) else AMD)
    if is_unified(case):
        term = term + UNIFIED
    return term


def _in_16_bits(case: Case) -> bool:
    held = case.weight_format
    return held is None or held.stored_bits("attention") is None


def _contexts(case: Case) -> Term:
    ranks = case.tensor_parallel * case.pipeline_parallel
    if ranks == 1:
        return ONE
    if not has_nvlink(case):
        return GROUP
    return NVLINK_GROUP.scaled(MANY_FACTOR) if ranks >= MANY_RANKS else NVLINK_GROUP

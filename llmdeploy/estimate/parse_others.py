"""What else a case line may mean, where that decides whether the launch fits."""

from dataclasses import replace

from llmdeploy.catalog.types import EngineName
from llmdeploy.estimate.case import Case
from llmdeploy.estimate.parse import CaseLine
from llmdeploy.model import weight_format

MODELSLIM = "modelslim"
DEFAULT_ONE: tuple[EngineName, ...] = ("vllm", "sglang")
"""Engines that use one device unless told."""


def other_cases(line: CaseLine, case: Case) -> tuple[Case, ...]:
    """The launch on one device a replica, where devices but no TP are given and the case assumes
    more, unless it serves requests: then it had room. And the launch in 4 bits, where ModelSlim's
    word does not say the width.

    Source: vLLM 0.11 and SGLang 0.5 `--tensor-parallel-size`, 1 where it is not given; Ascend's
    checkpoints of DeepSeek, published in W8A8 and W4A8.
    """
    others = []
    serves = line.concurrency is not None or line.request_rate_per_s is not None
    unsaid_tp = line.tensor_parallel is None and line.gpus is not None and not serves
    if unsaid_tp and case.tensor_parallel > 1 and case.engine.name in DEFAULT_ONE:
        others.append(replace(case, tensor_parallel=1, attention_data_parallel=False))
    held = case.weight_format
    latent = any(part.kind == "latent" for part in case.shape.cache)
    if held is not None and held.method == MODELSLIM and latent:
        others.append(replace(case, weight_format=weight_format("w4a8")))
    return tuple(others)


def other_words(case: Case, others: tuple[Case, ...]) -> list[str]:
    """A word for each of the other cases."""
    words = []
    for other in others:
        if other.tensor_parallel != case.tensor_parallel:
            default = "the engine's own default is 1"
            words.append(f"{default}: memory's intervals and fits hold for that too")
        else:
            words.append("ModelSlim weights in 8 or 4 bits: memory's intervals and fits hold both")
    return words

"""Accounts of engines that give the cache a share of what is free or of the total:
TensorRT-LLM, LMDeploy, TGI, MLC, MindIE and the embedded engine."""

from dataclasses import dataclass

from llmdeploy.catalog.types import EngineName
from llmdeploy.estimate.case import Case
from llmdeploy.estimate.memory import llama_cpp
from llmdeploy.estimate.memory.account import Account
from llmdeploy.estimate.memory.activation import PLAIN_LOGIT_BYTES, forward_bytes, sampler_bytes
from llmdeploy.estimate.memory.layers import (
    CacheAsk,
    LayerCache,
    attention_parallel,
    dtype_bytes,
    kv_element_bytes,
    layer_caches,
    length_tokens,
)
from llmdeploy.estimate.memory.pool import Pool
from llmdeploy.estimate.memory.spread import Term
from llmdeploy.estimate.memory.terms import GIB, total, weights


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareRules:
    """How one engine sizes its cache."""

    shown: str
    share_name: str
    share_ratio: float
    """Its default."""
    of_free: bool
    """The share is of what weights and activations leave, else of the total."""
    page_tokens: int
    step_tokens: int
    """Of a prefill step, where it is not given."""
    sequences: int
    slack_ratio: float = 1.0
    """Of what is left, what the cache gets."""
    refuses_long: bool = False
    all_logits: bool = False
    """The largest prefill computes the logits of every token, not of each request's last."""


RULES: dict[EngineName, ShareRules] = {
    "tensorrt-llm": ShareRules(
        shown="TensorRT-LLM",
        share_name="kv_cache_free_gpu_memory_fraction",
        share_ratio=0.9,
        of_free=True,
        page_tokens=32,
        step_tokens=8192,
        sequences=256,
    ),
    "lmdeploy": ShareRules(
        shown="LMDeploy",
        share_name="cache_max_entry_count",
        share_ratio=0.8,
        of_free=True,
        page_tokens=64,
        step_tokens=8192,
        sequences=128,
    ),
    "tgi": ShareRules(
        shown="TGI",
        share_name="cuda_memory_fraction",
        share_ratio=1.0,
        of_free=False,
        page_tokens=1,
        step_tokens=4096,
        sequences=128,
        slack_ratio=0.85,
        refuses_long=True,
        all_logits=True,
    ),
    "mlc": ShareRules(
        shown="MLC-LLM",
        share_name="gpu_memory_utilization",
        share_ratio=0.85,
        of_free=False,
        page_tokens=16,
        step_tokens=2048,
        sequences=80,
    ),
    "mindie": ShareRules(
        shown="MindIE",
        share_name="NPU_MEMORY_FRACTION",
        share_ratio=0.8,
        of_free=False,
        page_tokens=128,
        step_tokens=8192,
        sequences=200,
        refuses_long=True,
    ),
    "embedded": ShareRules(
        shown="embedded",
        share_name="memory share",
        share_ratio=0.8,
        of_free=False,
        page_tokens=32,
        step_tokens=512,
        sequences=32,
        refuses_long=True,
    ),
}
"""Source: TensorRT-LLM 1.0 `KvCacheConfig`; LMDeploy 0.7 `TurbomindEngineConfig`; TGI 3.0
`TGI_WIGGLE_ROOM` (0.95, later 0.90) of the total less the warm-up's peak, which asks for the log
probabilities of the whole prompt (two public logs: 0.68 and 0.95 of what is left); MLC-LLM 0.1
`engine_config.gpu_memory_utilization`; MindIE 1.0 `NPU_MEMORY_FRACTION`; our engine."""
OTHER_BYTES = 0.6 * GIB
OTHER_DEVIATION_BYTES = 0.4 * GIB
"""Contexts and communication; assumed, as on SGLang."""
ACTIVATION_DEVIATION_RATIO = 0.6
LOG_PROBABILITY_BYTES = 6.0
"""Of a logit: 16 bits and its logarithm in float32. Source: TGI's warm-up, as above."""
SPREAD_RATIO = 0.08
"""Of the total: what these engines' own buffers differ by. Source: 5 public launch logs of TGI,
TensorRT-LLM and LMDeploy: too few to fit."""


def account(case: Case) -> Account:
    """The engine's memory on the fullest rank."""
    rules = RULES.get(case.engine.name)
    if rules is None:  # llama.cpp and ExLlama
        return llama_cpp.account(case)
    device = total(case)
    loaded, activation = weights(case), _activation(case, rules)
    other = Term(OTHER_BYTES, OTHER_DEVIATION_BYTES)
    share = case.memory_ratio if case.memory_ratio is not None else rules.share_ratio
    available = None
    if device is not None:
        base = device if rules.of_free else device.scaled(share)
        free = base - loaded - activation - other
        available = free.scaled(share if rules.of_free else rules.slack_ratio)
        available = available + Term(0.0, SPREAD_RATIO * device.value_bytes)
    cell, bounds = _cell(case, rules)
    return Account(
        engine=rules.shown,
        share_name=rules.share_name,
        share_ratio=share,
        total=device,
        weights=loaded,
        activation=activation,
        graphs=Term(0.0),
        other=other,
        available=available,
        left=None,
        cache=Pool(cell_bytes=cell, page_tokens=rules.page_tokens) if cell else None,
        cell_ratio=bounds,
        length_tokens=length_tokens(case),
        length_given=case.max_model_len is not None,
        refuses_long=rules.refuses_long,
        method="interpolated",
    )


def _activation(case: Case, rules: ShareRules) -> Term:
    tokens = case.max_num_batched_tokens or rules.step_tokens
    rows = tokens if rules.all_logits else case.max_num_seqs or rules.sequences
    width = LOG_PROBABILITY_BYTES if rules.all_logits else PLAIN_LOGIT_BYTES
    peak = forward_bytes(case, tokens) + sampler_bytes(case.shape, rows, logit_bytes=width)
    return Term(peak, ACTIVATION_DEVIATION_RATIO * peak)


def _cell(case: Case, rules: ShareRules) -> tuple[float, tuple[float, float]]:
    """Bytes of a token in all layers of a stage, and their bounds."""
    ask = CacheAsk(
        element_bytes=kv_element_bytes(case, obeys_checkpoint=True),
        dtype_bytes=dtype_bytes(case),
        tensor_parallel=attention_parallel(case),
        pipeline_parallel=case.pipeline_parallel,
    )
    layers = layer_caches(case.shape, ask)
    cell = _sum(layers)
    sliding = _sum(tuple(x for x in layers if x.kind == "sliding"))
    low = 1.0 - 0.9 * sliding / cell if cell and sliding < cell else 1.0
    return cell, (low, 1.0)


def _sum(layers: tuple[LayerCache, ...]) -> float:
    return sum(layer.stage_layers * layer.bytes_per_token for layer in layers)

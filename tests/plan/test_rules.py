"""Each rule that rejects a layout, with its words; and the layouts it must leave alone."""

from dataclasses import replace

import pytest

from llmdeploy.catalog.types import Engine
from llmdeploy.model import weight_format
from llmdeploy.plan.proposal import Proposal
from llmdeploy.plan.rules import RULES, first_broken
from llmdeploy.plan.weights import Weights

from .stand_ins import (
    DEEPSEEK_671B,
    LLAMA_8B,
    LLAMA_70B,
    QWEN_14B,
    QWEN_30B_MOE,
    VLLM,
    pool,
    shape,
)  # fmt: skip


def held(method: str, convert: str = "none") -> Weights:
    format = weight_format(method)
    return Weights(name=method, format=format, convert=convert, needs_checkpoint=False, loss=0)


PLAIN = held("bf16")


def proposal(device: str = "h100-sxm", counts: tuple[int, ...] = (8,), **changes) -> Proposal:
    link = {key: changes.pop(key) for key in ("network",) if key in changes}
    made = Proposal(
        pool=pool(device, *counts, **link), engine=VLLM, weights=PLAIN, dtype="bf16",
        kv_cache_dtype=None, tensor_parallel=1,
    )  # fmt: skip
    return replace(made, **changes)


BROKEN = [
    ("engine-device", proposal("gaudi2", engine=Engine(name="sglang", version=None)), LLAMA_8B,
     "sglang does not run on Gaudi"),
    ("engine-device", proposal("p40"), LLAMA_8B, "vllm needs compute capability 7.0"),
    ("engine-device", proposal("h100-sxm", (8, 8), engine=Engine(name="embedded", version=None),
     pipeline_parallel=2), LLAMA_8B, "by tensors only"),
    ("engine-model", proposal(engine=Engine(name="embedded", version=None)), DEEPSEEK_671B,
     "keeps no latent cache"),
    ("engine-model", proposal(engine=Engine(name="embedded", version=None), weights=held("awq")),
     LLAMA_8B, "holds no awq weights"),
    ("tp-link-domain", proposal("rtx4090", (4, 4), tensor_parallel=8), LLAMA_70B,
     "tp 8 crosses hosts: two all-reduces a layer over ethernet-25g; a host has 4 devices"),
    ("ep-link-domain", proposal("h200-sxm", (8, 8), data_parallel=16, expert_parallel=True),
     DEEPSEEK_671B, "all-to-all each layer over the network"),
    ("host-room", proposal("rtx4090", (3, 1), tensor_parallel=3, pipeline_parallel=2), LLAMA_70B,
     "needs 2 host(s) with 3 rtx4090 each, there are (hosts x devices): 1 x 3, 1 x 1"),
    ("host-room", proposal("h100-sxm", (8, 8), network=None, tensor_parallel=8,
     pipeline_parallel=3), LLAMA_70B, "the inventory names no network"),
    ("one-host", proposal("h100-sxm", (8, 8), tensor_parallel=8, pipeline_parallel=2), LLAMA_70B,
     "one host is enough: weights take"),
    ("heads", proposal(tensor_parallel=3), QWEN_14B,
     "tp 3 does not divide 40 attention heads: possible are 1, 2, 4, 8, 40"),
    ("kv-heads", proposal(tensor_parallel=5), QWEN_14B, "tp 5 and 8 KV heads"),
    ("pp-layers", proposal("rtx4090", (8,) * 8, pipeline_parallel=64), LLAMA_8B,
     "pp 64 is more stages than 32 layers"),
    ("experts", proposal(tensor_parallel=2, expert_parallel=True), LLAMA_8B, "the model is dense"),
    ("experts", proposal(tensor_parallel=3, expert_parallel=True),
     QWEN_30B_MOE | {"num_attention_heads": 24, "num_key_value_heads": 24},
     "128 experts do not divide over 3 ranks"),
    ("format-device", proposal("ascend910b2", weights=held("awq")), LLAMA_8B, "runs no awq"),
    ("format-device", proposal("mi250x", weights=held("fp8")), LLAMA_8B, "is cdna2"),
    ("format-device", proposal("a100", weights=held("fp8_block")), DEEPSEEK_671B,
     "fp8_block needs compute capability 8.9"),
    ("kv-cache-dtype", proposal("ascend910b2", kv_cache_dtype="fp8"), LLAMA_8B, "no fp8 KV cache"),
    ("kv-cache-dtype", proposal("t4", kv_cache_dtype="fp8"), LLAMA_8B, "found 7.5"),
    ("quantisation-groups", proposal(tensor_parallel=8, weights=held("awq")), QWEN_14B,
     "intermediate size of 13824 over 8 ranks is 1728, not whole groups of 128"),
    ("quantisation-groups", proposal(tensor_parallel=4, weights=held("awq")), QWEN_30B_MOE,
     "experts' intermediate size of 768 over 4 ranks is 192"),
    ("fp8-blocks", proposal(tensor_parallel=4, weights=held("fp8_block")), QWEN_30B_MOE,
     "over 4 ranks is 192, not whole FP8 blocks of 128"),
    ("converted-ranks", proposal(tensor_parallel=2, weights=held("nf4", "nf4"),
     engine=Engine(name="embedded", version=None)), LLAMA_8B, "cannot split nf4"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "made", "config", "words"), BROKEN)
def test_a_layout_is_rejected_by_its_rule_in_words(rule, made, config, words):
    broken = first_broken(made, shape(config))
    assert broken is not None
    assert broken.rule == rule
    assert words in broken.words


def test_every_rule_has_a_case():
    assert {rule for rule, *_ in BROKEN} == set(RULES)


@pytest.mark.parametrize(
    ("made", "config"),
    [
        (proposal(tensor_parallel=8), LLAMA_70B),
        (proposal("rtx4090", (4, 4), tensor_parallel=4, pipeline_parallel=2), LLAMA_70B),
        (proposal(tensor_parallel=8, weights=held("fp8_block"), expert_parallel=True),
         DEEPSEEK_671B),
        (proposal(tensor_parallel=4, weights=held("fp8_block"), expert_parallel=True),
         QWEN_30B_MOE),
        (proposal("rtx4090", (4, 2), tensor_parallel=2, weights=held("fp8", "fp8")), QWEN_14B),
        (proposal("rtx3090", weights=held("fp8", "fp8")), LLAMA_8B),
        (proposal("mi300x", tensor_parallel=8, weights=held("fp8"), kv_cache_dtype="fp8"),
         LLAMA_70B),
        (proposal("ascend910b2", tensor_parallel=8), LLAMA_70B),
        (proposal("t4", dtype="fp16"), LLAMA_8B),
        (proposal(tensor_parallel=8), QWEN_30B_MOE),
    ],
)  # fmt: skip
def test_what_engines_run_is_not_rejected(made, config):
    assert first_broken(made, shape(config)) is None

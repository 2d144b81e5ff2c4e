"""Simple models of memory and speed, and pools and shapes to plan with: the search is tested on
these, so that its decisions do not move with the calibration of the real ones."""

from dataclasses import dataclass
from typing import Any

from llmdeploy.catalog import devices, links
from llmdeploy.catalog.types import Engine
from llmdeploy.estimate.answer import Estimated, MemoryEstimate
from llmdeploy.estimate.case import Case
from llmdeploy.model import ModelShape, from_config, weights_bytes
from llmdeploy.plan.pool import Pool, PoolHost
from llmdeploy.plan.refusal import changed
from llmdeploy.plan.size import Estimators
from llmdeploy.service import Lengths, ModelSource, Service

GIB = 2**30
VLLM = Engine(name="vllm", version=(0, 33, 0))
LLAMA_70B = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8192,
    "intermediate_size": 28672, "num_attention_heads": 64, "num_key_value_heads": 8,
    "num_hidden_layers": 80, "vocab_size": 128256, "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16", "tie_word_embeddings": False,
}  # fmt: skip
LLAMA_8B = LLAMA_70B | {
    "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "num_hidden_layers": 32,
}  # fmt: skip
QWEN_14B = LLAMA_70B | {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 5120,
    "intermediate_size": 13824, "num_attention_heads": 40, "num_hidden_layers": 48,
    "vocab_size": 152064, "max_position_embeddings": 32768,
}  # fmt: skip
QWEN_30B_MOE = LLAMA_70B | {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 2048,
    "intermediate_size": 6144, "num_attention_heads": 32, "num_key_value_heads": 4,
    "num_hidden_layers": 48, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8,
    "moe_intermediate_size": 768, "decoder_sparse_step": 1, "vocab_size": 151936,
}  # fmt: skip
DEEPSEEK_671B = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": 7168,
    "intermediate_size": 18432, "num_attention_heads": 128, "num_key_value_heads": 128,
    "num_hidden_layers": 61, "vocab_size": 129280, "max_position_embeddings": 163840,
    "torch_dtype": "bfloat16", "tie_word_embeddings": False, "kv_lora_rank": 512,
    "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
    "n_shared_experts": 1, "first_k_dense_replace": 3, "moe_layer_freq": 1,
    "quantization_config": {
        "quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
        "weight_block_size": [128, 128],
    },
}  # fmt: skip
"""Sizes as the makers publish them in config.json."""


def shape(config: dict[str, Any], **changes: Any) -> ModelShape:
    return from_config(config | changes, place="config.json")


def pool(
    device: str,
    *counts: int,
    link: str | None = None,
    network: str | None = "ethernet-25g",
    price: float | None = None,
) -> Pool:
    """Hosts with that many devices each."""
    spec = devices.find(device)
    return Pool(
        device=spec,
        memory_bytes=None,
        link=links.find(link or spec.link),
        network=links.find(network) if network else None,
        price_per_hour=price,
        hosts=tuple(
            PoolHost(name=f"h{n}", devices=count, first_device=0, data_address=f"10.0.0.{n}")
            for n, count in enumerate(counts, 1)
        ),
    )


def service(**parts: dict[str, Any]) -> Service:
    """100,000 requests a day of 512 tokens in and 128 out."""
    made = Service(schema=1, cluster="cluster.yaml", model=ModelSource(id="model"))
    lengths = {
        "input_tokens": Lengths(mean=512, p95=1024),
        "output_tokens": Lengths(mean=128, p95=256),
    }
    made = changed(made, "workload", **lengths)
    made = changed(made, "engine", max_model_len=4096)
    for part, values in parts.items():
        made = changed(made, part, **values)
    return made


def exactly(value: float) -> Estimated:
    return Estimated(value=value, low=value, high=value, origin="derived", method="roofline")


def memory(case: Case) -> MemoryEstimate:
    """Total x share - weights - 1 GiB; KV of plain or latent layers divided over the ranks."""
    assert case.device_memory_bytes is not None
    assert case.memory_ratio is not None
    assert case.max_model_len is not None
    shape = case.shape
    ranks = case.tensor_parallel * (case.data_parallel if case.expert_parallel else 1)
    weights = weights_bytes(
        shape, case.weight_format, dtype=case.dtype, tp=ranks, pp=case.pipeline_parallel,
        ep=case.expert_parallel,
    )  # fmt: skip
    width = 1 if case.kv_cache_dtype == "fp8" else 2
    latent = sum(layers.latent_dim * layers.layers for layers in shape.cache) * width
    heads = max(1, shape.kv_heads // case.tensor_parallel)
    plain = 2 * shape.layers * heads * shape.head_dim * width
    per_token = (latent or plain) / case.pipeline_parallel
    left = case.device_memory_bytes * case.memory_ratio - weights - GIB
    tokens = int(left / per_token)
    fits = left > 0 and tokens >= case.max_model_len
    refusal = None
    if not fits:
        refusal = f"max_model_len {case.max_model_len} is more than {max(0, tokens)} KV tokens"
    return MemoryEstimate(
        weights_bytes=exactly(weights), kv_bytes_per_token=exactly(per_token),
        activation_bytes=exactly(GIB), graph_bytes=exactly(0), other_bytes=exactly(0),
        kv_cache_bytes=exactly(max(0.0, left)), kv_cache_tokens=exactly(max(0, tokens)),
        max_concurrency=exactly(max(0.0, tokens / case.max_model_len)), fits=fits, refusal=refusal,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflinePace:
    """Weights and KV read at the devices' rates, products at half of theirs, a fixed overhead."""

    read_s: float
    kv_s_per_token: float
    flop_s_per_token: float
    exchange_s: float
    method: str = "roofline"
    spread_ratio: float = 0.3

    def decode_step_s(self, batch: float, context_tokens: float) -> float:
        busy = batch * (self.flop_s_per_token + context_tokens * self.kv_s_per_token)
        return 0.002 + self.read_s + busy + self.exchange_s

    def prefill_s(self, tokens: float, context_tokens: float = 0) -> float:
        return tokens * self.flop_s_per_token + self.exchange_s


def pace(case: Case) -> RooflinePace:
    assert case.device is not None
    shape, spec = case.shape, case.device
    ranks = case.tensor_parallel * case.data_parallel
    link = case.link or links.find(spec.link)
    weights = weights_bytes(
        shape, case.weight_format, dtype=case.dtype, tp=ranks, ep=case.expert_parallel
    )
    per_token = 4 * shape.layers * shape.kv_heads * shape.head_dim / ranks
    parameters = shape.parameters.total if shape.parameters else 0
    small = 0.0 if ranks == 1 else 2e-5 + 1e9 / link.bytes_per_s * 1e-5
    return RooflinePace(
        read_s=weights / spec.memory_bytes_per_s,
        kv_s_per_token=per_token / spec.memory_bytes_per_s,
        flop_s_per_token=2 * parameters / ranks / spec.bf16_flops_per_s / 0.5,
        exchange_s=2 * shape.layers * small,
    )


USING = Estimators(memory=memory, pace=pace)

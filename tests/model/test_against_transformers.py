"""Counted weights against models built from the configuration classes of transformers."""

import pytest

from llmdeploy.model import from_config

BASE = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 128, "max_position_embeddings": 256, "pad_token_id": 0,
}  # fmt: skip
WIDE = {"head_dim": 32}
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
LOCAL = {"num_local_experts": 8, "num_experts_per_tok": 2}
ROUTED = {
    "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48,
    "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
}  # fmt: skip
LATENT = {"kv_lora_rank": 32, "q_lora_rank": 48, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
          "v_head_dim": 24}  # fmt: skip
INDEXED = {"index_n_heads": 4, "index_head_dim": 16, "index_topk": 8}
DELTA = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
         "linear_value_head_dim": 16}  # fmt: skip
MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16, "mamba_n_groups": 1}
CASES = {
    "llama": {}, "mistral": {}, "qwen2": {}, "qwen3": WIDE, "gemma": WIDE, "gemma2": WIDE,
    "gemma3_text": WIDE, "phi": {}, "phi3": {}, "glm": WIDE, "glm4": WIDE, "cohere": {},
    "cohere2": {"head_dim": 16}, "starcoder2": {}, "stablelm": {}, "olmo2": {}, "olmo3": {},
    "granite": {}, "smollm3": {}, "seed_oss": WIDE, "exaone4": {}, "ernie4_5": WIDE,
    "nemotron": {}, "jais2": {}, "internlm3": {}, "ministral3": WIDE, "hunyuan_v1_dense": WIDE,
    "mixtral": LOCAL, "olmoe": {"num_experts": 8, "num_experts_per_tok": 2}, "granitemoe": LOCAL,
    "granitemoehybrid": {**LOCAL, **MAMBA, "shared_intermediate_size": 48, "mamba_expand": 2,
                         "layer_types": ["mamba", "mamba", "attention", "mamba"]},
    "gpt_oss": {**LOCAL, **WIDE}, "minimax_m2": {**LOCAL, **WIDE},
    "qwen2_moe": {**EXPERTS, "shared_expert_intermediate_size": 80},
    "qwen3_moe": {**EXPERTS, **WIDE},
    "qwen3_next": {**EXPERTS, **WIDE, **DELTA, "shared_expert_intermediate_size": 48},
    "qwen3_5_text": {**WIDE, **DELTA}, "glm4_moe": {**WIDE, **ROUTED},
    "dots1": {**WIDE, **ROUTED}, "deepseek_v2": {**ROUTED, **LATENT},
    "deepseek_v3": {**ROUTED, **LATENT}, "deepseek_v32": {**ROUTED, **LATENT, **INDEXED},
    "glm_moe_dsa": {**ROUTED, **LATENT, **INDEXED},
    "jamba": {"num_experts": 4, "num_experts_per_tok": 2, "attn_layer_period": 4,
              "attn_layer_offset": 2, "mamba_dt_rank": 8},
    "bamba": {**MAMBA, "attn_layer_indices": [1]},
    "lfm2": {"layer_types": ["conv", "conv", "full_attention", "conv"]},
    "mamba2": {"num_heads": 8, "head_dim": 16, "n_groups": 1, "state_size": 16},
    "nemotron_h": {"layers_block_type": ["mamba", "moe", "attention", "moe"], "head_dim": 16,
                   "mamba_num_heads": 8, "mamba_head_dim": 16, "ssm_state_size": 16,
                   "n_groups": 2, "n_routed_experts": 8, "moe_intermediate_size": 48,
                   "moe_shared_expert_intermediate_size": 64, "num_experts_per_tok": 2},
}  # fmt: skip
"""Model type and what its smallest config changes of BASE."""


@pytest.mark.parametrize(("kind", "changes"), CASES.items())
def test_every_weight_of_a_small_model_is_counted(kind, changes):
    torch = pytest.importorskip("torch", reason="the engine's packages are not installed")
    transformers = pytest.importorskip("transformers", reason="no transformers here")
    config = transformers.AutoConfig.for_model(kind, **{**BASE, **changes})
    with torch.device("meta"):
        built = transformers.AutoModelForCausalLM.from_config(config)
    counted = from_config(config.to_dict(), place=kind).parameters
    assert counted.total == sum(weight.numel() for weight in built.parameters())

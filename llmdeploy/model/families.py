"""What a model type's code does that its config.json does not say: biases, norms, gates, tying."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from llmdeploy.model.keys import Keys

QkNorm = Literal["none", "head", "full"]
"""No norm of queries and keys; one vector for all heads; one over the whole width."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Traits of a model type; the defaults are llama's."""

    gated: bool = True
    """The MLP has three matrices."""
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    qk_norm: QkNorm = "none"
    norms: int = 2
    """Of the model's width, per layer."""
    norm_bias: bool = False
    tied: bool = False
    """Where the config does not say."""
    learned_positions: bool = False
    gated_query: bool = False
    """The query projection is twice as wide; its half gates the output."""
    defaults: dict[str, Any] = field(default_factory=dict)
    """Keys that published configs of this family leave out."""


LLAMA = Family()
QWEN2 = Family(qkv_bias=True)
QWEN3 = Family(qk_norm="head")
GPT = Family(
    gated=False, qkv_bias=True, out_bias=True, mlp_bias=True, norm_bias=True, tied=True,
    learned_positions=True,
)  # fmt: skip
GEMMA = Family(tied=True, defaults={"head_dim": 256})
GEMMA3 = Family(
    tied=True, qk_norm="head", norms=4,
    defaults={
        "head_dim": 256, "vocab_size": 262208, "max_position_embeddings": 131072,
        "num_attention_heads": 8, "num_key_value_heads": 4, "sliding_window": 4096,
        "sliding_window_pattern": 6,
    },
)  # fmt: skip
GDN = Family(
    qk_norm="head", gated_query=True,
    defaults={
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "full_attention_interval": 4,
        "max_position_embeddings": 262144, "head_dim": 256, "partial_rotary_factor": 0.25,
    },
)  # fmt: skip
MAMBA2 = Family(norms=1)
FAMILIES: dict[str, Family] = {
    "arcee": Family(gated=False),
    "apertus": Family(gated=False, qk_norm="head"),
    "baichuan": LLAMA,
    "bailing_moe": LLAMA,
    "bailing_moe_v2": QWEN3,
    "bamba": Family(defaults={"mamba_n_groups": 1, "mamba_d_conv": 4}),
    "bloom": replace(GPT, learned_positions=False),
    "chatglm": QWEN2,
    "codegen": replace(GPT, qkv_bias=False, out_bias=False, norms=1, tied=False, head_bias=True,
                       learned_positions=False),
    "cohere": Family(norms=1, tied=True),
    "cohere2": Family(norms=1, tied=True, defaults={"sliding_window_pattern": 4}),
    "cohere2_moe": Family(norms=1, tied=True),
    "dbrx": Family(),
    "deepseek_v4": Family(),
    "dots1": QWEN3,
    "dots_ocr": QWEN2,
    "ernie4_5": Family(tied=True),
    "ernie4_5_moe": Family(tied=True),
    "exaone4": QWEN3,
    "exaone_moe": QWEN3,
    "falcon": Family(gated=False, norm_bias=True, norms=1, tied=True),
    "flex_olmo": Family(qk_norm="full"),
    "gemma": GEMMA,
    "gemma2": Family(tied=True, norms=4, defaults={"head_dim": 256, "sliding_window": 4096,
                                                   "sliding_window_pattern": 2}),
    "gemma3": GEMMA3,
    "gemma3_text": GEMMA3,
    "gemma3n": Family(tied=True, qk_norm="head", norms=4),
    "gemma3n_text": Family(tied=True, qk_norm="head", norms=4),
    "gemma4": Family(tied=True, qk_norm="head", norms=4),
    "gemma4_text": Family(tied=True, qk_norm="head", norms=4),
    "gemma4_unified": Family(tied=True, qk_norm="head", norms=4),
    "gemma4_unified_text": Family(tied=True, qk_norm="head", norms=4),
    "glm4": Family(norms=4),
    "glm4v": Family(norms=4, qkv_bias=True),
    "glm4v_text": Family(norms=4, qkv_bias=True),
    "gpt2": GPT,
    "gpt_bigcode": GPT,
    "gpt_neo": replace(GPT, qkv_bias=False),
    "gpt_neox": replace(GPT, tied=False, learned_positions=False),
    "gpt_oss": Family(qkv_bias=True, out_bias=True),
    "gptj": replace(GPT, qkv_bias=False, out_bias=False, norms=1, tied=False, head_bias=True,
                    learned_positions=False),
    "hunyuan": QWEN3,
    "hunyuan_v1_dense": QWEN3,
    "hunyuan_v1_moe": QWEN3,
    "internlm": Family(qkv_bias=True, out_bias=True),
    "jais2": Family(gated=False, qkv_bias=True, out_bias=True, mlp_bias=True, norm_bias=True),
    "jamba": Family(defaults={"mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2,
                              "expert_layer_offset": 1, "expert_layer_period": 2,
                              "attn_layer_offset": 4, "attn_layer_period": 8}),
    "lfm2": Family(qk_norm="head", tied=True),
    "lfm2_moe": Family(qk_norm="head", tied=True),
    "lfm3": Family(qk_norm="head", tied=True, norms=4),
    "llama4": Family(defaults={"attention_chunk_size": 8192}),
    "llama4_text": Family(defaults={"attention_chunk_size": 8192}),
    "mamba": Family(norms=1, tied=True),
    "falcon_mamba": Family(norms=1, tied=True),
    "mamba2": Family(norms=1),
    "minimax_m2": Family(qk_norm="full"),
    "mllama": LLAMA,
    "mpt": Family(gated=False, tied=True),
    "nanochat": Family(gated=False, norms=0),
    "nemotron": Family(gated=False, norm_bias=True),
    "nemotron_h": Family(gated=False, norms=1),
    "olmo": Family(norms=0),
    "olmo2": Family(qk_norm="full"),
    "olmo3": Family(qk_norm="full"),
    "olmoe": Family(qk_norm="full"),
    "opt": Family(gated=False, qkv_bias=True, out_bias=True, mlp_bias=True, norm_bias=True,
                  tied=True, learned_positions=True),
    "persimmon": Family(gated=False, qkv_bias=True, out_bias=True, mlp_bias=True, norm_bias=True),
    "phi": replace(GPT, norms=1, tied=False, head_bias=True, learned_positions=False),
    "phimoe": Family(qkv_bias=True, out_bias=True, norm_bias=True, head_bias=True),
    "qwen": QWEN2,
    "qwen2": QWEN2,
    "qwen2_5_vl": QWEN2,
    "qwen2_5_vl_text": QWEN2,
    "qwen2_audio": QWEN2,
    "qwen2_moe": QWEN2,
    "qwen2_vl": QWEN2,
    "qwen2_vl_text": QWEN2,
    "qwen3": QWEN3,
    "qwen3_5": GDN,
    "qwen3_5_moe": GDN,
    "qwen3_5_moe_text": GDN,
    "qwen3_5_text": GDN,
    "qwen3_moe": QWEN3,
    "qwen3_next": GDN,
    "qwen3_omni_moe": QWEN3,
    "qwen3_vl": QWEN3,
    "qwen3_vl_moe": QWEN3,
    "qwen3_vl_moe_text": QWEN3,
    "qwen3_vl_text": QWEN3,
    "seed_oss": Family(qkv_bias=True),
    "smollm3": Family(tied=True),
    "stablelm": Family(norm_bias=True),
    "starcoder2": Family(gated=False, qkv_bias=True, out_bias=True, mlp_bias=True, norm_bias=True,
                         tied=True),
}  # fmt: skip
"""By `model_type`; a type not listed counts as llama's kind.
Source: modelling and configuration classes of transformers 5.24; tests/model compares the counts
with models built from those classes. ChatGLM, Qwen 1, Baichuan, InternLM: the models' own code."""
BY_ARCHITECTURE = {
    "GraniteForCausalLM": "granite",
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Olmo2ForCausalLM": "olmo2",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen2MoeForCausalLM": "qwen2_moe",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3_moe",
    "Qwen3NextForCausalLM": "qwen3_next",
    "SmolLM3ForCausalLM": "smollm3",
    "MixtralForCausalLM": "mixtral",
    "GptOssForCausalLM": "gpt_oss",
    "GPT2LMHeadModel": "gpt2",
    "FalconForCausalLM": "falcon",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3_text",
    "GemmaForCausalLM": "gemma",
    "CohereForCausalLM": "cohere",
    "JambaForCausalLM": "jamba",
    "PhiForCausalLM": "phi",
    "Starcoder2ForCausalLM": "starcoder2",
    "Llama4ForConditionalGeneration": "llama4",
    "MllamaForConditionalGeneration": "mllama",
    "MiniMaxM2ForCausalLM": "minimax_m2",
    "DeepseekV4ForCausalLM": "deepseek_v4",
    "BaichuanForCausalLM": "baichuan",
    "ChatGLMModel": "chatglm",
    "ChatGLMForConditionalGeneration": "chatglm",
    "DeciLMForCausalLM": "nemotron-nas",
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "DeepseekV3ForCausalLM": "deepseek_v3",
    "Gemma3ForConditionalGeneration": "gemma3",
    "Gemma4ForConditionalGeneration": "gemma4",
    "Glm4MoeForCausalLM": "glm4_moe",
    "Glm4MoeLiteForCausalLM": "glm4_moe_lite",
    "LlavaLlamaForCausalLM": "llama",
    "Mistral3ForConditionalGeneration": "mistral",
    "NemotronHForCausalLM": "nemotron_h",
    "OPTForCausalLM": "opt",
    "Phi3ForCausalLM": "phi3",
    "QWenLMHeadModel": "qwen",
    "Qwen3_5ForConditionalGeneration": "qwen3_5",
    "Qwen3_5MoeForConditionalGeneration": "qwen3_5_moe",
}
"""For configs without `model_type`."""


def model_type(keys: Keys) -> str:
    """The type that says how layers are built: the text model's, not the wrapper's."""
    named = keys.text("text_model_type") or keys.text("model_type")
    architecture = str((keys.items("architectures") or ("",))[0])
    if named in ("", "kimi_k2"):
        return BY_ARCHITECTURE.get(architecture, named)
    return named


def family(keys: Keys) -> Family:
    """Traits by the config's type, changed by the flags that a config may set itself."""
    kind = model_type(keys)
    found = FAMILIES.get(kind) or FAMILIES.get(kind.removesuffix("_text"), LLAMA)
    return replace(
        found,
        qkv_bias=_any(keys, found.qkv_bias, "attention_bias", "qkv_bias", "add_qkv_bias",
                      "use_qkv_bias", "use_bias" if kind != "nemotron_h" else "attention_bias"),
        out_bias=_out_bias(keys, kind, found),
        mlp_bias=_any(keys, found.mlp_bias, "mlp_bias"),
        qk_norm=_qk_norm(keys, found.qk_norm),
    )  # fmt: skip


def _any(keys: Keys, default: bool, *names: str) -> bool:
    stated = [keys.flag(name) for name in names if keys.has(name)]
    return any(stated) if stated else default


def _out_bias(keys: Keys, kind: str, found: Family) -> bool:
    if keys.has("attention_out_bias"):  # Seed-OSS
        return keys.flag("attention_out_bias")
    if kind in ("llama", "granite", "internlm", "mistral", "phimoe", "olmo", "olmo2"):
        return keys.flag("attention_bias") or keys.flag("bias") or found.out_bias
    return found.out_bias


def _qk_norm(keys: Keys, default: QkNorm) -> QkNorm:
    if keys.has("use_qk_norm", "qk_layernorm", "use_query_key_norm"):
        used = any(keys.flag(k) for k in ("use_qk_norm", "qk_layernorm", "use_query_key_norm"))
        if not used:
            return "none"
        return "head" if default == "none" else default
    return default

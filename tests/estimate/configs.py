"""config.json contents of small and of known models, as their makers publish them."""

LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 32,
    "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
"""Source: meta-llama/Llama-3.1-8B config.json."""
LLAMA_8B_PARAMETERS = 8_030_261_248
"""2 x 128256 x 4096 + 32 x (2 x 4096 x 4096 + 2 x 4096 x 1024 + 3 x 4096 x 14336 + 2 x 4096) +
4096."""

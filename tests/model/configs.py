"""Small published-like configs that tests change one key of."""

from llmdeploy.model import from_config

LLAMA_3_1_8B = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
    "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip


def shape(base=LLAMA_3_1_8B, **changes):
    """The shape of a config with some keys changed; "left out" drops the key."""
    merged = {**base, **changes}
    config = {key: value for key, value in merged.items() if value != "left out"}
    return from_config(config, place="config.json")

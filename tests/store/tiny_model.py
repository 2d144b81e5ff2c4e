"""Writes a tiny llama model's files with any damage a test wants; no torch needed."""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 32,
    "max_position_embeddings": 128,
    "tie_word_embeddings": True,
}


def tensor_shapes(layers: int = 2) -> dict[str, tuple[int, ...]]:
    """Names and shapes of all tensors of a model with CONFIG."""
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (32, 8)}
    for layer in range(layers):
        start = f"model.layers.{layer}"
        shapes |= {
            f"{start}.input_layernorm.weight": (8,),
            f"{start}.self_attn.q_proj.weight": (8, 8),
            f"{start}.self_attn.k_proj.weight": (4, 8),
            f"{start}.self_attn.v_proj.weight": (4, 8),
            f"{start}.self_attn.o_proj.weight": (8, 8),
            f"{start}.mlp.gate_proj.weight": (16, 8),
            f"{start}.mlp.up_proj.weight": (16, 8),
            f"{start}.mlp.down_proj.weight": (8, 16),
        }
    return shapes | {"model.norm.weight": (8,)}


def safetensors(shapes: Mapping[str, tuple[int, ...]], dtype: str = "BF16") -> bytes:
    """A safetensors file of zeros."""
    width = {"BF16": 2, "F32": 4, "I8": 1}[dtype]
    header, at = {}, 0
    for name, shape in shapes.items():
        size = width
        for side in shape:
            size *= side
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(at)


def write_model(folder: pathlib.Path, **changes: Any) -> pathlib.Path:
    """A whole model in `folder`; `changes` are keys of config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | changes))
    (folder / "model.safetensors").write_bytes(safetensors(tensor_shapes()))
    (folder / "tokenizer.json").write_text("{}")
    return folder

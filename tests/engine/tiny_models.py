"""Random models of a few kilobytes, and settings for them."""

import pathlib
from dataclasses import replace

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from llmdeploy.engine.settings import EngineSettings, parse

VOCABULARY = 128


def make_tiny(folder: pathlib.Path, *, kind: str = "llama", heads: int = 4, **more: object) -> str:
    """The folder, now with a random two-layer model of `kind` with distinct answers."""
    config = AutoConfig.for_model(
        kind,
        hidden_size=16 * heads,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=heads,
        num_key_value_heads=2,
        head_dim=16,
        vocab_size=VOCABULARY,
        max_position_embeddings=512,
        initializer_range=0.3,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
        **more,
    )
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.save_pretrained(folder)
    return str(folder)


def settings(model: str, **changes: object) -> EngineSettings:
    """fp32 settings of one worker for the model, with changes."""
    argv = ["--model", model, "--served-name", "m", "--port", "1", "--kv-cache-tokens", "4096"]
    base = replace(parse(argv), dtype="float32", max_model_len=512)
    return replace(base, **changes)  # type: ignore[arg-type]

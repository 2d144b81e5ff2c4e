"""A model whose heads two ranks can share: SmolLM2-135M with a KV group of zeros.

Its 9 attention and 3 KV heads become 12 and 4. The new heads' outputs are multiplied by zeros, so
the text is the same.

python -m tests.lab.padded SOURCE_FOLDER TARGET_FOLDER
"""

import json
import pathlib
import shutil
import sys

HEAD_DIM = 64
NEW_KV_HEADS = 1
QUERIES_PER_KV_HEAD = 3
KEPT = ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja")


def pad(source: pathlib.Path, target: pathlib.Path) -> None:
    """Writes the padded copy."""
    import torch
    from safetensors.torch import load_file, save_file

    target.mkdir(parents=True, exist_ok=True)
    padded = {}
    for name, tensor in load_file(source / "model.safetensors").items():
        rows = NEW_KV_HEADS * HEAD_DIM
        if name.endswith("q_proj.weight"):
            rows *= QUERIES_PER_KV_HEAD
        if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight")):
            tensor = torch.cat([tensor, tensor.new_zeros(rows, tensor.shape[1])], 0)
        if name.endswith("o_proj.weight"):
            columns = rows * QUERIES_PER_KV_HEAD
            tensor = torch.cat([tensor, tensor.new_zeros(tensor.shape[0], columns)], 1)
        padded[name] = tensor.contiguous()
    save_file(padded, target / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((source / "config.json").read_text())
    config |= {"num_attention_heads": 12, "num_key_value_heads": 4, "head_dim": HEAD_DIM}
    (target / "config.json").write_text(json.dumps(config, indent=2))
    for name in KEPT:
        if (source / name).exists():
            shutil.copy(source / name, target / name)


if __name__ == "__main__":
    pad(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))

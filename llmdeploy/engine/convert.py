"""`python -m llmdeploy.engine.convert`: a GGUF file becomes a folder of plain bf16 safetensors."""

import argparse
import json
import pathlib
import sys
from typing import Any

import torch
from gguf import GGUFReader
from transformers import AutoModelForCausalLM, AutoTokenizer, logging

from llmdeploy.errors import InputError, LlmDeployError

_TOKENIZER_CLASS = "PreTrainedTokenizerFast"
"""Known to all versions of transformers 4 and 5 and to other engines; what 5 writes is not."""


def main(argv: list[str]) -> int:
    """The exit code: 0 written, 2 for a file that cannot be converted."""
    parser = argparse.ArgumentParser(prog="python -m llmdeploy.engine.convert", description=__doc__)
    parser.add_argument("--gguf", required=True, type=pathlib.Path, help="the GGUF file")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder to write to")
    options = parser.parse_args(argv)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        convert(options.gguf, options.out)
    except LlmDeployError as error:
        sys.stderr.write(f"error: {error}\n\nhint: {error.fix}\n")
        return error.exit_code
    return 0


def convert(gguf: pathlib.Path, out: pathlib.Path) -> None:
    """Writes weights, config, generation config, tokenizer and chat template to `out`.

    Any architecture that transformers loads from GGUF. InputError when the file is missing, damaged
    or of another architecture.
    """
    architecture = _check(gguf)
    try:
        loaded = AutoModelForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name, dtype=torch.float32
        )
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    except (ValueError, KeyError, NotImplementedError) as error:
        raise InputError(
            f"{gguf}: transformers does not load the architecture {architecture!r}: {error}",
            fix="use a GGUF file of the Llama family, or the model's own safetensors",
        ) from error
    out.mkdir(parents=True, exist_ok=True)
    _plain(loaded).save_pretrained(out)
    tokenizer.save_pretrained(out)
    _name_tokenizer_class(out / "tokenizer_config.json")


def _check(gguf: pathlib.Path) -> str:
    """The file's architecture; reading its tensors' places finds a file that was cut off."""
    try:
        field = GGUFReader(gguf).get_field("general.architecture")
    except (OSError, ValueError, IndexError, KeyError, OverflowError, MemoryError) as error:
        raise InputError(
            f"{gguf}: found no whole GGUF file: {error}", fix="fetch the file again"
        ) from error
    if field is None:
        raise InputError(
            f"{gguf}: found no general.architecture in its header", fix="fetch the file again"
        )
    return str(field.contents())


def _plain(loaded: Any) -> Any:
    """The same model in bf16 without a trace of GGUF.

    transformers 5.24 refuses to save a model that came from GGUF, so the class is built anew,
    without memory of its own, around the weights.
    """
    settings = loaded.config.to_dict()
    settings.pop("quantization_config", None)
    config = type(loaded.config)(**settings)
    config.dtype = torch.bfloat16
    weights = {name: tensor.to(torch.bfloat16) for name, tensor in loaded.state_dict().items()}
    with torch.device("meta"):
        model = type(loaded)(config)
    model.load_state_dict(weights, assign=True, strict=True)
    model.tie_weights()
    model.generation_config = loaded.generation_config
    return model


def _name_tokenizer_class(path: pathlib.Path) -> None:
    settings = json.loads(path.read_text())
    settings["tokenizer_class"] = _TOKENIZER_CLASS
    path.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

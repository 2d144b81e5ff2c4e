"""Words and quantisation configs to weight formats."""

import pytest

from llmdeploy.errors import InputError
from llmdeploy.model import suited, weight_format

from .configs import shape


@pytest.mark.parametrize("word", ["bf16", "FP16", "none", "float32", "FP16/BF16", "auto"])
def test_plain_weights_are_no_format(word):
    assert weight_format(word) is None


@pytest.mark.parametrize(
    ("word", "method", "bits", "stored"),
    [
        ("fp8", "fp8", 8, 8),
        ("FP8-dynamic", "fp8", 8, 8),
        ("fbgemm_fp8", "fp8", 8, 8),
        ("modelopt", "fp8", 8, 8),
        ("fp8_block", "fp8_block", 8, 8 + 32 / 128**2),
        ("awq", "awq", 4, 4 + (16 + 4) / 128),
        ("awq_marlin", "awq", 4, 4 + (16 + 4) / 128),
        ("AWQ-4bit", "awq", 4, 4 + (16 + 4) / 128),
        ("gptq_marlin", "gptq", 4, 4 + (16 + 4) / 128),
        ("GPTQ-Int8", "gptq", 8, 8 + (16 + 8) / 128),
        ("modelopt_fp4", "nvfp4", 4, 4 + 8 / 16),
        ("NVFP4", "nvfp4", 4, 4 + 8 / 16),
        ("mxfp4", "mxfp4", 4, 4 + 8 / 32),
        ("w4a16", "w4a16", 4, 4 + 16 / 128),
        ("w8a8", "w8a8", 8, 8),
        ("int8", "int8", 8, 8),
        ("4-bit", "w4a16", 4, 4 + 16 / 128),
        ("int4", "w4a16", 4, 4 + 16 / 128),
        ("bitsandbytes", "nf4", 4, 4 + (8 + 32 / 256) / 64),
        ("Q4_K_M", "gguf", 4.85, 4.85),
        ("Q8_0", "gguf", 8.5, 8.5),
        ("q4f16_1", "mlc", 4, 4 + 16 / 32),
        ("compressed-tensors", "w4a16", 4, 4 + 16 / 128),
    ],
)
def test_words_of_configs_and_logs_mean_a_format(word, method, bits, stored):
    found = weight_format(word)
    assert (found.method, found.bits) == (method, bits)
    assert found.stored_bits("routed_experts") == pytest.approx(stored)


def test_an_unknown_word_is_refused_with_known_ones():
    with pytest.raises(InputError, match="found 'rot13'") as error:
        weight_format("rot13")
    assert "nvfp4" in error.value.fix


def test_head_and_embedding_stay_unquantised_but_in_gguf():
    assert weight_format("awq").stored_bits("head") is None
    assert weight_format("q4_k_m").stored_bits("head") == 4.85


def quantized(**section):
    return shape(quantization_config=section).weight_format


def test_fp8_in_blocks_is_read_from_the_config():
    found = quantized(quant_method="fp8", weight_block_size=[128, 128])
    assert (found.method, found.group_size) == ("fp8_block", 128)


def test_compressed_tensors_state_bits_groups_and_what_they_leave_alone():
    group = {"weights": {"num_bits": 4, "type": "int", "group_size": 32, "symmetric": True}}
    found = quantized(
        quant_method="compressed-tensors", config_groups={"group_0": group},
        ignore=["lm_head", "re:.*self_attn.*"],
    )  # fmt: skip
    assert (found.method, found.bits, found.scale_bits) == ("w4a16", 4, 0.5)
    assert found.stored_bits("attention") is None
    assert found.stored_bits("dense_mlp") == 4.5


def test_compressed_tensors_in_fp8_and_int8():
    fp8 = {"weights": {"num_bits": 8, "type": "float"}, "input_activations": {"num_bits": 8}}
    int8 = {"weights": {"num_bits": 8, "type": "int"}, "input_activations": {"num_bits": 8}}
    made = [quantized(quant_method="compressed-tensors", config_groups={"g": g})
            for g in (fp8, int8)]  # fmt: skip
    assert [m.method for m in made] == ["fp8", "w8a8"]


def test_modelopt_states_its_kv_cache_and_excluded_modules():
    found = quantized(
        quant_method="modelopt", quant_algo="NVFP4", kv_cache_quant_algo="FP8",
        exclude_modules=["lm_head", "model.layers.0.self_attn*"],
    )  # fmt: skip
    assert (found.method, found.kv_cache_dtype) == ("nvfp4", "fp8")
    assert "attention" in found.kept


def test_mixed_precision_keeps_each_parts_own_bits():
    found = quantized(
        quant_method="modelopt", quant_algo="MIXED_PRECISION",
        quantized_layers={
            "model.layers.0.linear_attn.out_proj": {"quant_algo": "FP8"},
            "model.layers.0.mlp.experts": {"quant_algo": "W4A16_NVFP4"},
        },
        kv_cache_scheme={"num_bits": 8, "type": "float"},
    )  # fmt: skip
    assert found.stored_bits("attention_state") == 8
    assert found.stored_bits("routed_experts") == found.expert_bits == 4.5
    assert found.stored_bits("attention") is None
    assert found.kv_cache_dtype == "fp8"


def test_gpt_oss_quantises_its_experts_only():
    found = quantized(quant_method="mxfp4")
    assert found.stored_bits("routed_experts") == 4.25
    assert found.stored_bits("attention") is None


def test_awq_gptq_and_bitsandbytes_configs():
    awq = quantized(quant_method="awq", bits=4, group_size=64)
    assert awq.scale_bits == (16 + 4) / 64
    assert quantized(quant_method="gptq", bits=8, group_size=-1).group_size == 0
    assert quantized(quant_method="bitsandbytes", load_in_8bit=True).method == "int8"
    assert quantized(quant_method="bitsandbytes", load_in_4bit=True).method == "nf4"


def test_latent_attention_stays_unquantised_in_nvfp4():
    latent = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128}
    held = suited(shape(**latent), weight_format("nvfp4"))
    assert "attention" in held.kept
    assert "attention" not in suited(shape(), weight_format("nvfp4")).kept

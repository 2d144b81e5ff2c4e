"""Names of a case are looked up: models, devices, engines, formats, links."""

import json

import pytest

from llmdeploy.edge.local import LocalShell
from llmdeploy.errors import InputError
from llmdeploy.estimate.parse import case_line
from llmdeploy.estimate.parse_case import resolve
from llmdeploy.estimate.parse_model import Models

from ..release.made import manifest
from .configs import LLAMA_8B
from .test_parse_gguf import LLAMA, write

PLACE = "cases.jsonl:7"


def resolved(store="/nowhere", **keys):
    given = {"gpu": "h100-sxm", "engine": "vllm", "engine_version": "0.11.0"} | keys
    if "model" not in keys:
        given.setdefault("model_config", LLAMA_8B)
    line = case_line(json.dumps(given), place=PLACE)
    return resolve(line, place=PLACE, models=Models(store=str(store), shell=LocalShell()))


def case(**keys):
    return resolved(**keys).case


def refused(**keys):
    with pytest.raises(InputError) as error:
        resolved(**keys)
    return str(error.value), error.value.fix


def quantised(**config):
    return LLAMA_8B | {"quantization_config": config}


def test_a_built_in_shape_is_found_by_its_hugging_face_id():
    found = resolved(model="meta-llama/Llama-3.1-8B-Instruct")
    assert found.case.shape.layers == 32
    assert found.model_source == "built-in shape of meta-llama/Llama-3.1-8B-Instruct"


def test_a_config_in_the_case_wins_over_the_name():
    assert case(model="Qwen/Qwen3-8B", model_config=LLAMA_8B).shape.layers == 32


def test_a_model_may_be_a_config_file_or_its_folder_or_in_the_store(tmp_path):
    folder = tmp_path / "models" / "mine"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(LLAMA_8B))
    for name in (str(folder), str(folder / "config.json"), "mine"):
        found = resolved(model=name, store=tmp_path / "models")
        assert found.case.shape.layers == 32
        assert found.model_source == str(folder / "config.json")


def test_of_a_sealed_model_the_manifest_tells_the_shape(tmp_path):
    made = manifest()
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json.sealed").write_bytes(b"LDSEAL01")
    (folder / "manifest.json").write_text(made.model_dump_json(by_alias=True))
    found = resolved(model="mine", store=tmp_path)
    assert found.case.shape == made.shape
    assert found.model_source == f"manifest of {folder}"


def test_a_gguf_file_is_a_model_with_its_own_format(tmp_path):
    path = write(tmp_path / "m.gguf", LLAMA)
    found = case(model=path, engine="llama.cpp")
    assert found.shape.layers == 32
    assert found.weight_format.method == "gguf"
    assert 4 < found.weight_format.bits < 5


def test_an_unknown_model_is_told_what_else_may_be_given():
    what, fix = refused(model="Qwen/Qwen3-8Z")
    assert what.startswith(f"{PLACE}: model: ")
    assert "Qwen/Qwen3-8Z" in what
    assert "config.json" in fix


def test_a_missing_file_is_named(tmp_path):
    what, _ = refused(model=f"{tmp_path}/config.json")
    assert what == f"{tmp_path}/config.json: found no such file, needed the model's config.json"


@pytest.mark.parametrize("key", ["num_hidden_layers", "hidden_size", "vocab_size"])
def test_a_config_without_a_needed_field_names_it(key):
    config = {name: value for name, value in LLAMA_8B.items() if name != key}
    what, fix = refused(model_config=config)
    assert what.startswith(f"{PLACE}: model_config")
    assert key in what
    assert fix


def test_a_broken_config_file_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("{")
    assert "cannot be read as JSON" in refused(model=f"{tmp_path}/config.json")[0]
    (tmp_path / "config.json").write_text("[]")
    assert "needed an object of settings" in refused(model=f"{tmp_path}/config.json")[0]


@pytest.mark.parametrize(
    ("name", "id"),
    [("NVIDIA GeForce RTX 4090", "rtx4090"), ("H100-SXM", "h100-sxm"),
     ("AMD Instinct MI300X", "mi300x")],
)  # fmt: skip
def test_a_device_is_found_by_what_drivers_print(name, id):
    assert case(gpu=name).device.id == id


def test_an_unknown_device_is_told_near_ones():
    what, fix = refused(gpu="RTX 4091")
    assert what.startswith(f"{PLACE}: gpu: ")
    assert "RTX 4091" in what
    assert "rtx4090" in fix
    assert "gpu_memory_bytes" in fix


def test_an_unknown_device_with_its_memory_answers_memory_only():
    found = resolved(gpu="RTX 4091", gpu_memory_bytes=24 * 2**30)
    assert found.case.device is None
    assert found.case.device_memory_bytes == 24 * 2**30
    assert "RTX 4091" in found.no_device


def test_without_a_device_speed_has_a_reason():
    assert resolved(gpu=None).no_device == "gpu is not given: name the device"


def test_engines_in_any_spelling_and_a_missing_one_is_assumed():
    assert case(engine="TensorRT-LLM", engine_version="1.0.0").engine.name == "tensorrt-llm"
    found = resolved(engine=None, engine_version=None)
    assert found.case.engine.name == "vllm"
    assert found.assumptions[0] == "engine is not given: vllm"
    assert found.assumptions[1] == "engine_version is not given: the newest known rules"


def test_a_version_that_names_no_release_is_said():
    found = resolved(engine_version="nightly")
    assert found.case.engine.version is None
    assert "engine_version 'nightly' says no release: the newest known rules" in found.assumptions


def test_an_unknown_engine_is_told_near_ones():
    what, fix = refused(engine="vlm")
    assert what.startswith(f"{PLACE}: engine: ")
    assert "vllm" in fix


def test_without_a_word_the_checkpoints_own_format_holds():
    assert case().weight_format is None
    own = case(model_config=quantised(quant_method="awq", bits=4, group_size=64))
    assert (own.weight_format.bits, own.weight_format.group_size) == (4, 64)


def test_a_word_that_says_no_more_than_the_checkpoint_leaves_its_groups():
    config = quantised(quant_method="awq", bits=4, group_size=64)
    for word in ("awq", "awq_marlin", "int4", "compressed-tensors"):
        assert case(model_config=config, quantization=word).weight_format.group_size == 64


def test_an_asked_format_wins_over_the_checkpoints():
    config = quantised(quant_method="fp8", weight_block_size=[128, 128])
    assert case(model_config=config, quantization="nvfp4").weight_format.bits == 4
    plain = case(model_config=config, quantization="bf16")
    assert (plain.weight_format, plain.dtype) == (None, "bf16")


def test_a_format_where_benchmarks_print_it_is_understood():
    found = resolved(dtype="FP8")
    assert found.case.weight_format.bits == 8
    assert found.case.dtype is None
    assert found.assumptions[0] == "dtype 'FP8' is a weight format: taken as quantization"
    assert case(dtype="fp8", quantization="nvfp4").weight_format.bits == 4


def test_a_format_by_word_leaves_what_makers_leave_unquantised():
    """Latent attention stays in 16 bits in NVFP4 checkpoints."""
    found = case(model="deepseek-ai/DeepSeek-V3", quantization="nvfp4").weight_format
    assert found.stored_bits("attention") is None
    assert found.stored_bits("routed_experts") == 4.5


def test_4_bit_floats_of_a_model_published_in_4_bit_integers_are_another_checkpoint():
    asked = {"model": "moonshotai/Kimi-K2.5", "engine": "vllm"}
    found = case(**asked, quantization="fp4").weight_format
    assert (found.method, found.activation_bits) == ("nvfp4", 4)
    assert found.stored_bits("attention") is None
    assert case(**asked, quantization="int4").weight_format.method == "w4a16"
    assert case(**asked).weight_format.method == "w4a16"
    own = case(model="openai/gpt-oss-120b", quantization="fp4").weight_format
    assert own.method == "mxfp4"


def test_modelslim_is_in_8_bits_unless_the_name_says_4():
    found = case(model="Qwen/Qwen3-32B", quantization="modelslim", engine="sglang").weight_format
    assert found.stored_bits("attention") == 8
    assert found.stored_bits("dense_mlp") == pytest.approx(32 / 3)
    named = case(
        model="DeepSeek-R1-w4a8", model_config=LLAMA_8B, quantization="modelslim", engine="sglang"
    )
    assert named.weight_format.bits == 4


def test_modelslim_on_latent_attention_may_be_in_4_bits_too():
    found = resolved(model="deepseek-ai/DeepSeek-R1", quantization="modelslim", engine="sglang")
    assert [other.weight_format.bits for other in found.other_cases] == [4]


def test_an_embedding_model_has_no_head():
    found = case(model="Qwen/Qwen3-Embedding-8B").shape
    assert found.architecture == "Qwen3ForEmbedding"
    assert case(model="mine/some-embedding", model_config=LLAMA_8B).shape.parameters.head == 0


def test_devices_without_tp_may_mean_one_device():
    found = resolved(model="meta-llama/Llama-3.1-70B-Instruct", gpus=8)
    assert found.case.tensor_parallel > 1
    assert [other.tensor_parallel for other in found.other_cases] == [1]
    assert any("the engine's own default is 1" in word for word in found.assumptions)
    given = resolved(model="meta-llama/Llama-3.1-70B-Instruct", gpus=8, tensor_parallel=8)
    assert given.other_cases == ()


def test_devices_that_serve_requests_hold_the_model():
    """Measured loads say that the launch ran: on one device it could not have."""
    found = resolved(model="meta-llama/Llama-3.1-70B-Instruct", gpus=8, concurrency=16)
    assert found.other_cases == ()


def test_a_config_that_lacks_keys_is_told_by_the_models_name():
    found = resolved(model="Qwen/Qwen3-8B", model_config={"num_hidden_layers": 36})
    assert found.case.shape.hidden_size == 4096
    assert "hidden_size: found nothing" in found.assumptions[0]


def test_a_config_that_lacks_keys_is_told_by_its_sizes_where_only_one_model_has_them():
    stated = {
        "architectures": ["Phi3ForCausalLM"], "num_hidden_layers": 32, "hidden_size": 3072,
        "num_attention_heads": 24, "num_key_value_heads": 8,
    }  # fmt: skip
    assert case(model_config=stated).shape.vocabulary_size == 200064
    assert (
        "intermediate_size: found nothing"
        in refused(model_config=stated | {"model_type": "phi3"})[0]
    )
    both = {key: value for key, value in stated.items() if key != "num_key_value_heads"}
    assert "intermediate_size: found nothing" in refused(model_config=both)[0]


def test_an_unknown_format_or_dtype_is_refused():
    what, fix = refused(quantization="q17")
    assert what.startswith(f"{PLACE}: quantization: ")
    assert "awq" in fix
    assert refused(dtype="posit")[0].startswith(f"{PLACE}: dtype: found 'posit', needed one of")
    assert refused(kv_cache_dtype="x")[0].startswith(f"{PLACE}: kv_cache_dtype: found 'x'")


def test_an_unknown_format_leaves_a_quantised_checkpoint_its_own():
    config = quantised(quant_method="awq", bits=4, group_size=64)
    found = resolved(model_config=config, quantization="something new")
    assert found.case.weight_format.method == "awq"
    assert "quantization 'something new' is not known" in found.assumptions[0]


def test_a_link_is_that_of_the_host_or_of_the_network():
    assert case(gpus=2, tensor_parallel=2, interconnect="PCIe Gen4, no NVLink").link.id == "pcie4"
    two_hosts = {"gpus": 16, "hosts": 2, "tensor_parallel": 8, "pipeline_parallel": 2}
    found = case(interconnect="100 Gbit Ethernet", **two_hosts)
    assert found.link is None
    assert found.network.id == "ethernet-100g"


def test_a_link_that_cannot_be_used_is_said():
    assert (
        "interconnect 'string' is not known: the device's own link"
        in resolved(interconnect="string").assumptions
    )
    assert (
        "joins hosts: not used on one host" in resolved(interconnect="ethernet-25g").assumptions[0]
    )


def test_every_other_value_reaches_the_case():
    found = case(
        memory_fraction=0.8, max_model_len=4096, kv_cache_dtype="fp8_e5m2", dtype="half",
        max_num_seqs=64, max_num_batched_tokens=2048, enforce_eager=True, input_tokens=100,
        output_tokens=20, concurrency=4, request_rate_per_s=2, gpu_memory_bytes=79 * 2**30,
    )  # fmt: skip
    assert (found.memory_ratio, found.max_model_len, found.kv_cache_dtype) == (0.8, 4096, "fp8")
    assert (found.dtype, found.max_num_seqs, found.max_num_batched_tokens) == ("fp16", 64, 2048)
    assert (found.enforce_eager, found.input_tokens, found.output_tokens) == (True, 100, 20)
    assert (found.concurrency, found.request_rate_per_s) == (4, 2)
    assert found.device_memory_bytes == 79 * 2**30


def test_a_link_that_is_not_known_names_near_ones():
    words = " ".join(resolved(interconnect="nvlnk4").assumptions)
    assert "interconnect 'nvlnk4' is not known (did you mean nvlink4" in words

"""config.json to shape: weights by part with the sums written out, caches, errors."""

import pytest

from llmdeploy.catalog import models
from llmdeploy.errors import InputError
from llmdeploy.model import from_config

from .configs import LLAMA_3_1_8B, shape


def test_llama_counts_its_weights_to_the_last_one():
    found = shape().parameters
    assert found.embedding == found.head == 128256 * 4096
    assert found.attention == 32 * (4096 * 4096 * 2 + 2 * 4096 * 8 * 128)
    assert found.attention_kv == 32 * 2 * 4096 * 8 * 128
    assert found.dense_mlp == 32 * 3 * 4096 * 14336
    assert found.other == 32 * 2 * 4096 + 4096
    assert found.total == 8_030_261_248


PUBLISHED = {
    "meta-llama/Llama-3.1-8B": 8_030_261_248,
    "meta-llama/Llama-3.1-70B": 70_553_706_496,
    "meta-llama/Llama-3.1-405B": 405_853_388_800,
    "Qwen/Qwen2.5-7B": 7_615_616_512,
    "Qwen/Qwen2.5-0.5B": 494_032_768,
    "Qwen/Qwen2.5-VL-7B-Instruct": 8_292_166_656,
    "Qwen/Qwen3-0.6B": 596_049_920,
    "Qwen/Qwen3-30B-A3B": 30_532_122_624,
    "Qwen/Qwen3-Next-80B-A3B-Instruct": 79_674_391_296,
    "mistralai/Mistral-7B-Instruct-v0.2": 7_241_732_096,
    "mistralai/Mistral-7B-Instruct-v0.3": 7_248_023_552,
    "mistralai/Mixtral-8x7B-v0.1": 46_702_792_704,
    "deepseek-ai/DeepSeek-V3": 671_026_419_200,
    "deepseek-ai/DeepSeek-V2-Lite": 15_706_484_224,
    "google/gemma-2-9b": 9_241_705_984,
    "google/gemma-3-1b-it": 999_885_952,
    "openai/gpt-oss-20b": 20_914_757_184,
    "microsoft/phi-2": 2_779_683_840,
    "tiiuae/falcon-7b": 6_921_720_704,
    "ai21labs/AI21-Jamba-1.5-Mini": 51_570_323_328,
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4": 120_668_687_360,
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": 1_100_048_384,
}
"""Source: sizes that the models' pages state, or models built from transformers 5.24 classes."""


@pytest.mark.parametrize(("name", "total"), PUBLISHED.items())
def test_published_models_have_their_published_size(name, total):
    assert models.find(name).parameters.total == total


STATED_BILLIONS = {
    "mistralai/Mistral-Large-3-675B-Instruct-2512": 675, "nvidia/Nemotron-4-340B-Instruct": 340,
    "mistralai/Devstral-2-123B-Instruct-2512": 125,
    "mistralai/Ministral-3-14B-Reasoning-2512": 13.9,
    "mistralai/Ministral-3-8B-Reasoning-2512": 8.9, "mistralai/Ministral-3-3B-Reasoning-2512": 3.85,
    "moonshotai/Kimi-VL-A3B-Instruct": 16.4, "rednote-hilab/dots.llm1.inst": 142.8,
    "inclusionAI/Ling-mini-2.0": 16.26, "inclusionAI/Ling-flash-2.0": 102.9,
    "inclusionAI/Ling-1T": 1000, "zai-org/GLM-4.5V": 107.7, "zai-org/GLM-4.1V-9B-Thinking": 10.3,
    "ibm-granite/granite-4.0-h-small": 32.2, "ibm-granite/granite-4.0-h-tiny": 6.94,
    "ibm-granite/granite-4.0-h-micro": 3.19, "ibm-granite/granite-4.0-micro": 3.40,
    "ibm-granite/granite-3.1-3b-a800m-instruct": 3.30, "allenai/Olmo-3-7B-Instruct": 7.30,
    "allenai/Olmo-3-32B-Think": 32.2, "baidu/ERNIE-4.5-21B-A3B-PT": 21.8,
    "baidu/ERNIE-4.5-300B-A47B-PT": 300, "tencent/Hunyuan-A13B-Instruct": 80.4,
    "LGAI-EXAONE/EXAONE-4.0-32B": 32.0, "xai-org/grok-1": 314, "tiiuae/Falcon-H1-7B-Instruct": 7.59,
    "tiiuae/Falcon-H1-34B-Instruct": 33.6, "LiquidAI/LFM2-1.2B": 1.17,
    "LiquidAI/LFM2-8B-A1B": 8.34, "nvidia/NVIDIA-Nemotron-Nano-12B-v2": 12.3,
    "nvidia/Nemotron-H-8B-Base-8K": 8.1, "MiniMaxAI/MiniMax-M1-80k": 456,
    "MiniMaxAI/MiniMax-M2": 229, "OpenGVLab/InternVL3-8B": 7.94, "OpenGVLab/InternVL3-78B": 78.4,
    "OpenGVLab/InternVL3_5-38B": 38.4, "swiss-ai/Apertus-70B-Instruct-2509": 70.6,
    "openbmb/MiniCPM3-4B": 4.07, "mistralai/Voxtral-Mini-3B-2507": 4.68, "tiiuae/falcon-11B": 11.1,
    "stepfun-ai/Step-3.5-Flash": 196, "moonshotai/Kimi-Linear-48B-A3B-Instruct": 49.1,
    "zai-org/GLM-4.6": 353, "databricks/dbrx-instruct": 131.6, "google/gemma-3-27b-it": 27.4,
    "CohereForAI/c4ai-command-a-03-2025": 111,
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct": 401.6, "microsoft/Phi-3.5-MoE-instruct": 41.9,
    "meituan-longcat/LongCat-Flash-Chat": 560, "stepfun-ai/step3": 321, "xai-org/grok-2": 270,
    "microsoft/Phi-4-multimodal-instruct": 5.57, "google/gemma-3n-E4B-it": 7.85,
    "google/gemma-3n-E2B-it": 5.44,
}  # fmt: skip
"""Billions of weights that the models' pages round to, encoders included."""


@pytest.mark.parametrize(("name", "billions"), STATED_BILLIONS.items())
def test_sizes_are_those_that_the_models_pages_state(name, billions):
    assert models.find(name).parameters.total / 1e9 == pytest.approx(billions, rel=0.01)


def test_the_longest_length_is_what_engines_make_of_the_config():
    """vLLM 0.11 `_get_and_verify_max_len`: linear and dynamic stretch, yarn its original length;
    Llama 3's scaling does not."""
    linear = {"type": "linear", "factor": 4.0}
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    llama3 = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}
    assert shape(max_position_embeddings=4096, rope_scaling=linear).max_positions == 4 * 4096
    assert shape(max_position_embeddings=131072, rope_scaling=yarn).max_positions == 4 * 32768
    assert shape(max_position_embeddings=32768, rope_scaling=yarn).max_positions == 4 * 32768
    assert shape(max_position_embeddings=131072, rope_scaling=llama3).max_positions == 131072


@pytest.mark.parametrize(
    ("name", "positions"),
    [
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", 262144),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct-FP8", 262144),
        ("cpatonn/Qwen3-30B-A3B-Thinking-2507-AWQ-4bit", 262144),
        ("NousResearch/Meta-Llama-3-8B-Instruct", 8192),
        ("Qwen/Qwen2.5-14B-Instruct-AWQ", 32768),
        ("zai-org/GLM-4.7-FP8", 202752),
        ("cyankiwi/Kimi-Linear-48B-A3B-Instruct-AWQ-4bit", 1048576),
        ("CohereForAI/c4ai-command-r-v01", 131072),
        ("CohereForAI/aya-23-8B", 8192),
        ("deepseek-ai/deepseek-coder-6.7b-instruct", 65536),
        ("deepseek-ai/DeepSeek-V3", 163840),
        ("openai/gpt-oss-120b", 131072),
        ("moonshotai/Kimi-K2-Instruct", 131072),
    ],
)
def test_built_in_shapes_know_the_longest_length_of_their_own_config(name, positions):
    assert models.find(name).max_positions == positions


@pytest.mark.parametrize("name", ["OpenGVLab/InternVL3-8B", "Qwen/Qwen2.5-Omni-7B"])
def test_chat_models_of_images_and_sound_have_a_head(name):
    """Their classes end in Model as those of embeddings do."""
    assert models.find(name).parameters.head > 0


def test_a_wrapper_that_states_no_sizes_has_those_of_its_language_models_class():
    """LLaVA's published config: the section names the type and the vocabulary alone."""
    text = {"model_type": "llama", "vocab_size": 32064, "max_position_embeddings": 4096}
    tower = {"model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096,
             "num_hidden_layers": 24, "image_size": 336, "patch_size": 14}  # fmt: skip
    config = {"model_type": "llava", "architectures": ["LlavaForConditionalGeneration"],
              "text_config": text, "vision_config": tower}  # fmt: skip
    found = from_config(config, place="config.json")
    assert (found.layers, found.hidden_size, found.max_positions) == (32, 4096, 4096)
    assert found.parameters.total / 1e9 == pytest.approx(7.06, rel=0.01)


def test_one_head_of_keys_for_all_groups_of_queries():
    """Step 3's num_attention_groups: K and V are one head of 256."""
    (kind,) = models.find("stepfun-ai/step3").cache
    assert (kind.kv_heads, kind.head_dim, kind.layers) == (1, 256, 61)


def test_gemma_4s_full_layers_are_wider_also_where_the_config_does_not_say():
    windows = {"sliding_window": 512, "sliding_window_pattern": 6, "num_hidden_layers": 6}
    found = shape(model_type="gemma4_text", head_dim=256, **windows)
    assert {kind.kind: kind.head_dim for kind in found.cache} == {"sliding": 256, "full": 512}


def test_ernies_experts_for_images_are_loaded_too():
    """28B: 64 experts of 1,536 for text and 64 of 512 for images in each of 27 layers."""
    config = {
        "model_type": "ernie4_5_moe_vl", "hidden_size": 2560, "intermediate_size": 12288,
        "moe_intermediate_size": [1536, 512], "num_hidden_layers": 28, "num_attention_heads": 20,
        "num_key_value_heads": 4, "moe_num_experts": [64, 64], "moe_k": 6,
        "moe_num_shared_experts": 2, "moe_layer_start_index": 1, "vocab_size": 103424,
        "tie_word_embeddings": True,
    }  # fmt: skip
    found = from_config(config, place="config.json").parameters
    assert found.routed_experts == 27 * 64 * 3 * 2560 * (1536 + 512)


@pytest.mark.parametrize("kind", ["camembert", "electra", "modernbert", "nomic_bert"])
def test_encoders_generate_no_text(kind):
    with pytest.raises(InputError, match="needed a model that generates text"):
        shape(model_type=kind)


def test_models_of_shared_blocks_are_refused():
    with pytest.raises(InputError, match="found zamba2, whose layers share blocks"):
        shape(model_type="zamba2")


def test_experts_are_counted_apart_from_what_every_token_reads():
    found = models.find("deepseek-ai/DeepSeek-V3")
    expert = 3 * 7168 * 2048
    assert found.experts.layers == 61 - 3
    assert found.experts.dense_first_layers == 3
    assert found.parameters.routed_experts == 58 * 256 * expert
    assert found.parameters.shared_experts == 58 * expert
    assert found.parameters.dense_mlp == 3 * 3 * 7168 * 18432
    assert found.parameters.draft == 11_610_101_760 or found.parameters.draft > 11e9


def test_latent_attention_keeps_one_vector_a_token():
    (kind,) = models.find("deepseek-ai/DeepSeek-R1").cache
    assert (kind.kind, kind.layers, kind.latent_dim) == ("latent", 61, 512 + 64)


def test_the_sparse_indexer_keeps_an_fp8_key_with_its_scale():
    (kind,) = models.find("deepseek-ai/DeepSeek-V3.2").cache
    assert kind.indexer_bytes == 128 + 4


def test_gemma_3_slides_in_five_of_six_layers():
    sliding, full = models.find("google/gemma-3-27b-it").cache
    assert (sliding.kind, sliding.layers, sliding.window_tokens) == ("sliding", 52, 1024)
    assert (full.kind, full.layers) == ("full", 10)


def test_gemma_4_has_other_heads_in_its_full_layers():
    sliding, full = models.find("google/gemma-4-26B-A4B").cache
    assert (sliding.kv_heads, sliding.head_dim) == (8, 256)
    assert (full.kv_heads, full.head_dim) == (2, 512)


def test_layers_that_read_an_earlier_cache_keep_none():
    kinds = {kind.kind: kind.layers for kind in models.find("google/gemma-4-E4B-it").cache}
    assert kinds["none"] == 18
    assert sum(kinds.values()) == 42


def test_gated_delta_nets_keep_a_matrix_a_head_and_the_convolution():
    state, full = models.find("Qwen/Qwen3-Next-80B-A3B-Instruct").cache
    convolved = 2 * 16 * 128 + 32 * 128
    assert (state.kind, state.layers) == ("state", 36)
    assert state.convolution_elements == 3 * convolved
    assert state.state_elements == 32 * 128 * 128 + 3 * convolved
    assert (full.layers, full.kv_heads, full.head_dim) == (12, 2, 256)


def test_mamba_layers_keep_their_state_and_the_pattern_says_which_they_are():
    kinds = {k.kind: k for k in models.find("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16").cache}
    assert (kinds["state"].layers, kinds["full"].layers, kinds["none"].layers) == (23, 6, 23)
    convolved = 64 * 64 + 2 * 8 * 128
    assert kinds["state"].state_elements == 64 * 64 * 128 + 3 * convolved
    assert kinds["state"].state_dtype == "float32"


def test_llama_4_attends_in_chunks_in_three_of_four_layers():
    kinds = models.find("meta-llama/Llama-4-Scout-17B-16E-Instruct").cache
    assert [(k.kind, k.layers, k.window_tokens) for k in kinds] == [
        ("chunked", 36, 8192), ("full", 12, 0),
    ]  # fmt: skip


def test_searched_blocks_keep_their_own_attention_or_none():
    kinds = {k.kind: k.layers for k in models.find("nvidia/Llama-3_3-Nemotron-Super-49B-v1").cache}
    assert kinds == {"full": 49, "none": 31}


def test_old_keys_of_chatglm_are_understood():
    found = models.find("THUDM/glm-4-9b-chat")
    assert (found.layers, found.kv_heads, found.vocabulary_size) == (40, 2, 151552)
    assert found.max_positions == 131072


def test_a_wrapper_of_images_is_read_through_to_its_text_model():
    inner = {k: v for k, v in LLAMA_3_1_8B.items() if k != "architectures"}
    vision = {"model_type": "pixtral", "hidden_size": 1024, "intermediate_size": 4096,
              "num_hidden_layers": 24, "patch_size": 14}  # fmt: skip
    found = from_config(
        {"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava",
         "text_config": inner, "vision_config": vision}, place="config.json",
    )  # fmt: skip
    assert found.architecture == "LlavaForConditionalGeneration"
    assert found.multimodal
    assert found.parameters.total - found.parameters.vision == 8_030_261_248
    assert found.parameters.vision > 24 * (4 + 3 * 4) * 1024**2


def test_an_embedding_model_has_no_head():
    assert shape(architectures=["MistralModel"]).parameters.head == 0


def test_windows_as_long_as_the_context_are_no_windows():
    assert shape(sliding_window=131072).cache[0].kind == "full"
    assert shape(sliding_window=4096).cache[0].kind == "sliding"
    assert shape(sliding_window=4096, use_sliding_window=False).cache[0].kind == "full"


@pytest.mark.parametrize(
    "key", ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
            "vocab_size"],
)  # fmt: skip
def test_a_config_without_a_needed_key_is_refused_by_its_name(key):
    with pytest.raises(InputError, match=rf"config\.json: {key}: found nothing") as error:
        shape(**{key: "left out"})
    assert key in error.value.fix


@pytest.mark.parametrize("value", ["many", -1, 0, True, 2.5, 10**9])
def test_a_count_that_is_none_is_refused(value):
    with pytest.raises(InputError, match="num_hidden_layers: found"):
        shape(num_hidden_layers=value)


def test_heads_that_do_not_divide_the_width_need_their_size():
    with pytest.raises(InputError, match="head_dim: found nothing") as error:
        shape(num_attention_heads=30)
    assert "head_dim" in error.value.fix


def test_a_model_that_only_encodes_is_refused():
    with pytest.raises(InputError, match="found bert"):
        from_config({"model_type": "bert", "hidden_size": 768}, place="config.json")


def test_a_config_without_a_longest_length_takes_the_engines_default():
    assert shape(max_position_embeddings="left out").max_positions == 2048

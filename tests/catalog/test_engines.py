"""Engine names in any spelling; versions as logs and benches print them."""

import pytest

from llmdeploy.catalog import engines
from llmdeploy.errors import InputError

NAMES = {
    "vLLM": "vllm",
    "VLLM": "vllm",
    "vllm-ascend": "vllm",
    "vLLM (XPU)": "vllm",
    "SGLang": "sglang",
    "TensorRT-LLM": "tensorrt-llm",
    "TRT-LLM": "tensorrt-llm",
    "tensorrt_llm": "tensorrt-llm",
    "Llama.cpp": "llama.cpp",
    "llama-cpp": "llama.cpp",
    "MLC LLM": "mlc",
    "Exllama V2": "exllama",
    "LMDeploy": "lmdeploy",
    "TGI": "tgi",
    "text-generation-inference": "tgi",
    "MindIE": "mindie",
    "embedded": "embedded",
}
VERSIONS = [
    ("vllm", "v0.17.1", (0, 17, 1)),
    ("vllm", "0.11.1rc3.dev29+g3fa2c1218", (0, 11, 1)),
    ("vllm", "0.10.1.1", (0, 10, 1)),
    ("vllm", "- vLLM v0.17.1; - SGLang v0.5.9", (0, 17, 1)),
    ("sglang", "- vLLM v0.17.1; - SGLang v0.5.9", (0, 5, 9)),
    ("sglang", "0.5.8.post1", (0, 5, 8)),
    ("tensorrt-llm", "1.0 (docs era; perf page says NEW for v1.0)", (1, 0)),
    ("mindie", "- vLLM-Ascend: v0.9.1; - MindIE: 2.1RC1", (2, 1)),
    ("vllm", "nightly-5b8c30d62b754b57", None),
    ("vllm", "0.1.dev18496+gd4e0675a7", None),
    ("llama.cpp", "May 2024", None),
    ("vllm", None, None),
]


@pytest.mark.parametrize(("name", "expected"), NAMES.items())
def test_a_name_in_any_spelling_finds_its_engine(name, expected):
    assert engines.find(name).name == expected


@pytest.mark.parametrize(("name", "printed", "expected"), VERSIONS)
def test_a_printed_version_becomes_numbers(name, printed, expected):
    assert engines.find(name, printed).version == expected


def test_a_version_may_stand_in_the_name():
    assert engines.find("vLLM 0.4.3+rocm614, PyTorch 2.3.0, ROCm 6.1.2").version == (0, 4, 3)
    assert engines.find("TensorRT 10.2.0, CUDA 12.4").version is None
    assert engines.find("vllm/vllm-openai:v0.8.5").version == (0, 8, 5)


def test_an_unknown_engine_is_refused_with_a_near_one():
    with pytest.raises(InputError) as refused:
        engines.find("vlm")
    assert refused.value.fix == "did you mean vllm?"

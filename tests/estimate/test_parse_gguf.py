"""A GGUF header becomes the words of a config.json; what lacks metadata is refused."""

import struct

import pytest

from llmdeploy.edge.local import LocalShell
from llmdeploy.errors import InputError
from llmdeploy.estimate.parse_gguf import gguf

LLAMA = {
    "general.architecture": "llama",
    "general.file_type": 15,
    "llama.block_count": 32,
    "llama.embedding_length": 4096,
    "llama.feed_forward_length": 14336,
    "llama.attention.head_count": 32,
    "llama.attention.head_count_kv": 8,
    "llama.context_length": 8192,
    "tokenizer.ggml.tokens": ["<s>", "a", "b"],
}


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def typed(value) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", 8) + text(value)
    if isinstance(value, list):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(text(word) for word in value)
    return struct.pack("<II", 4, value)


def write(path, values, tensors=("token_embd.weight", "output.weight")):
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values))
    header += b"".join(text(key) + typed(value) for key, value in values.items())
    for name in tensors:
        header += text(name) + struct.pack("<IQQIQ", 2, 4096, 3, 12, 0)
    path.write_bytes(header)
    return str(path)


def refused(path):
    with pytest.raises(InputError) as error:
        gguf(path, shell=LocalShell())
    return str(error.value), error.value.fix


def test_the_header_says_the_models_shape_and_its_quantisation(tmp_path):
    found = gguf(write(tmp_path / "m.gguf", LLAMA), shell=LocalShell())
    assert found.quantization == "q4_k_m"
    assert found.config == {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 32,
        "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
        "num_key_value_heads": 8, "max_position_embeddings": 8192, "vocab_size": 3,
        "tie_word_embeddings": False, "torch_dtype": "float16",
    }  # fmt: skip


def test_without_an_output_matrix_the_embedding_is_shared(tmp_path):
    path = write(tmp_path / "m.gguf", LLAMA, tensors=("token_embd.weight",))
    assert gguf(path, shell=LocalShell()).config["tie_word_embeddings"] is True


@pytest.mark.parametrize(
    "key", ["general.architecture", "llama.block_count", "llama.attention.head_count",
            "tokenizer.ggml.tokens"],
)  # fmt: skip
def test_missing_metadata_is_named_with_two_ways_out(tmp_path, key):
    values = {name: value for name, value in LLAMA.items() if name != key}
    what, fix = refused(write(tmp_path / "m.gguf", values))
    assert what.endswith(f"m.gguf: {key}: is missing from the file's metadata, needed a value")
    assert "convert_hf_to_gguf.py" in fix
    assert "config.json" in fix


def test_an_unknown_architecture_is_told_the_known_ones(tmp_path):
    what, _ = refused(write(tmp_path / "m.gguf", LLAMA | {"general.architecture": "clip"}))
    assert "general.architecture: found clip, needed one of llama, qwen2" in what


def test_what_is_no_gguf_is_refused(tmp_path):
    (tmp_path / "m.gguf").write_bytes(b"version https://git-lfs")
    assert (
        "found b'vers', needed a file that starts with b'GGUF'"
        in refused(str(tmp_path / "m.gguf"))[0]
    )
    assert "no file, or an empty one" in refused(str(tmp_path / "other.gguf"))[0]


def test_a_header_that_breaks_off_is_refused(tmp_path):
    path = write(tmp_path / "m.gguf", LLAMA)
    whole = (tmp_path / "m.gguf").read_bytes()
    for end in (10, 30, 200, len(whole) // 2):
        (tmp_path / "m.gguf").write_bytes(whole[:end])
        assert "its header ends or breaks within the metadata" in refused(path)[0]


def test_arrays_of_arrays_without_end_are_refused(tmp_path):
    key = struct.pack("<Q", 1) + b"a"
    header = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + key + struct.pack("<I", 9)
    (tmp_path / "m.gguf").write_bytes(header + struct.pack("<IQ", 9, 1) * 5000)
    assert "its header ends or breaks" in refused(str(tmp_path / "m.gguf"))[0]

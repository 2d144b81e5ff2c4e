"""Memory and shape checks before anything is loaded, on files made by the tests."""

import json
import pathlib
import struct
from dataclasses import replace

import pytest

from llmdeploy.engine.limits import (
    MemoryNeed,
    ModelFiles,
    check_memory,
    check_parallel,
    free_memory_bytes,
    memory_need,
    read_model,
)
from llmdeploy.engine.settings import parse
from llmdeploy.errors import InputError, Refused

GIB = 2**30
MODEL = ModelFiles(
    parameters=100_000_000,
    linear_parameters=80_000_000,
    kv_bytes_per_token=23040,
    kv_heads=3,
    heads=9,
)
SETTINGS = parse(
    ["--model", "m", "--served-name", "m", "--port", "1", "--kv-cache-tokens", "10000"]
)


def write_model(folder: pathlib.Path, *, cut_bytes: int = 0) -> None:
    config = {"num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 576}
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 30}))
    header = {
        "__metadata__": {"format": "pt"},
        "model.embed_tokens.weight": {"dtype": "BF16", "shape": [10, 20], "data_offsets": [0, 400]},
        "model.layers.0.mlp.up_proj.weight": {
            "dtype": "BF16",
            "shape": [5],
            "data_offsets": [400, 410],
        },
    }
    text = json.dumps(header).encode()
    content = struct.pack("<Q", len(text)) + text + bytes(410)
    (folder / "model.safetensors").write_bytes(content[: len(content) - cut_bytes])


def machine(root: pathlib.Path, *, available_kib: int, cgroup: str) -> None:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(
        f"MemTotal: 99999999 kB\nMemAvailable: {available_kib} kB\nHugePages_Total: 0\n"
    )
    (root / "proc/self/cgroup").write_text(cgroup)


def group(folder: pathlib.Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")


def test_a_models_size_is_read_from_its_files(tmp_path):
    write_model(tmp_path)
    model = read_model(str(tmp_path), dtype="bfloat16")
    assert model.parameters == 10 * 20 + 5
    assert model.linear_parameters == 5
    assert model.kv_bytes_per_token == 2 * 30 * 3 * 64 * 2  # K and V, layers, heads, 576/9, bf16
    assert read_model(str(tmp_path), dtype="float32").kv_bytes_per_token == 2 * 23040


def test_a_cut_off_shard_is_named_with_both_sizes(tmp_path):
    write_model(tmp_path, cut_bytes=100)
    size = (tmp_path / "model.safetensors").stat().st_size
    with pytest.raises(InputError, match=f"{size} bytes, its header says {size + 100}"):
        read_model(str(tmp_path), dtype="bfloat16")


@pytest.mark.parametrize("content", [b"", b"abc", b"\xff" * 64])
def test_a_shard_without_a_header_is_an_input_error(tmp_path, content):
    write_model(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(InputError, match="no safetensors header"):
        read_model(str(tmp_path), dtype="bfloat16")


def test_a_folder_without_weights_or_config_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match=r"config\.json"):
        read_model(str(tmp_path), dtype="bfloat16")
    (tmp_path / "config.json").write_text('{"num_attention_heads": 4, "hidden_size": 64,'
                                          ' "num_hidden_layers": 2}')  # fmt: skip
    with pytest.raises(InputError, match="safetensors"):
        read_model(str(tmp_path), dtype="bfloat16")


def test_weights_count_twice_on_cpu_and_once_a_worker():
    one = memory_need(MODEL, SETTINGS)
    assert one.weights_bytes == 200_000_000
    assert one.packed_bytes == 200_000_000
    assert one.kv_bytes == 10000 * 23040
    two = memory_need(MODEL, replace(SETTINGS, data_parallel=2))
    assert two.kv_bytes == one.kv_bytes
    assert two.total_bytes - two.kv_bytes == 2 * (one.total_bytes - one.kv_bytes)


def test_quantised_weights_count_the_embedding_in_full():
    int8 = memory_need(MODEL, replace(SETTINGS, quantization="int8"))
    assert int8.weights_bytes == 20_000_000 * 2 + 80_000_000
    nf4 = memory_need(MODEL, replace(SETTINGS, quantization="nf4"))
    assert nf4.weights_bytes == 20_000_000 * 2 + 80_000_000 * (0.5 + 4 / 64)
    assert int8.packed_bytes == nf4.packed_bytes == 0
    assert int8.total_bytes > int8.weights_bytes + int8.kv_bytes + 10**9  # while quantising


def test_what_fits_passes_and_what_does_not_names_both_numbers_and_the_fix():
    need = MemoryNeed(weights_bytes=0, packed_bytes=0, kv_bytes=2 * GIB, total_bytes=3 * GIB)
    check_memory(need, free_bytes=3 * GIB, model=MODEL)
    with pytest.raises(Refused) as refused:
        check_memory(need, free_bytes=2 * GIB, model=MODEL)
    assert str(3 * GIB) in str(refused.value)
    assert str(2 * GIB) in str(refused.value)
    assert refused.value.fix == f"set --kv-cache-tokens to at most {GIB // 23040}"
    with pytest.raises(Refused) as refused:
        check_memory(need, free_bytes=GIB // 2, model=MODEL)
    assert "more memory" in refused.value.fix


def test_free_memory_is_the_machines_without_a_cgroup_limit(tmp_path):
    machine(tmp_path, available_kib=1000, cgroup="0::/\n")
    group(tmp_path / "sys/fs/cgroup", memory__max="max", memory__current="5")
    assert free_memory_bytes(root=tmp_path) == 1000 * 1024


def test_a_v2_group_or_one_above_it_lowers_free_memory(tmp_path):
    machine(tmp_path, available_kib=10**7, cgroup="0::/system.slice/engine\n")
    top = tmp_path / "sys/fs/cgroup"
    group(top / "system.slice/engine", memory__max="max", memory__current="100")
    group(
        top / "system.slice",
        memory__max="5000000",
        memory__current="2000000",
        memory__stat="anon 5\ninactive_file 300000",
    )
    assert free_memory_bytes(root=tmp_path) == 5000000 - 2000000 + 300000


def test_a_v1_group_lowers_free_memory(tmp_path):
    machine(tmp_path, available_kib=10**7, cgroup="9:cpu,cpuacct:/x\n4:memory:/docker/a\n")
    folder = tmp_path / "sys/fs/cgroup/memory/docker/a"
    group(folder, memory__limit_in_bytes="7000000", memory__usage_in_bytes="1000000")
    group(
        tmp_path / "sys/fs/cgroup/memory",
        memory__limit_in_bytes="9223372036854771712",
        memory__usage_in_bytes="1",
    )
    assert free_memory_bytes(root=tmp_path) == 6000000


def test_this_machine_has_free_memory():
    assert free_memory_bytes() > 0


def test_heads_must_divide_by_the_ranks():
    check_parallel(MODEL, SETTINGS)
    check_parallel(MODEL, replace(SETTINGS, tensor_parallel=3))
    with pytest.raises(Refused, match="9 attention heads do not divide") as refused:
        check_parallel(MODEL, replace(SETTINGS, tensor_parallel=2))
    assert refused.value.fix == "use --tensor-parallel 1"
    with pytest.raises(Refused, match="2 KV heads do not divide"):
        check_parallel(replace(MODEL, heads=8, kv_heads=2), replace(SETTINGS, tensor_parallel=4))


@pytest.mark.parametrize("quantization", ["int8", "nf4"])
def test_quantized_weights_cannot_be_split(quantization):
    settings = replace(SETTINGS, tensor_parallel=3, quantization=quantization)
    with pytest.raises(Refused, match=f"{quantization} with --tensor-parallel 3"):
        check_parallel(MODEL, settings)

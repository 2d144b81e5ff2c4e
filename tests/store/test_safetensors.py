"""Headers of safetensors files: what is read from them and which damage is named."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmdeploy.errors import InputError
from llmdeploy.store.safetensors import check_index, header_bytes, parse_header

from .tiny_model import safetensors

shapes = st.dictionaries(
    st.text("abc.", min_size=1, max_size=6),
    st.lists(st.integers(0, 5), max_size=3).map(tuple),
    max_size=6,
)


def read(content: bytes, size_bytes: int | None = None):
    size_bytes = len(content) if size_bytes is None else size_bytes
    length_bytes = header_bytes(content[:40], size_bytes=size_bytes, place="m/a.safetensors")
    header = content[8 : 8 + length_bytes]
    return parse_header(header, size_bytes=size_bytes, place="m/a.safetensors")


@given(shapes)
def test_every_tensor_is_read_back_with_its_shape_and_bytes(written):
    found = {tensor.name: tensor for tensor in read(safetensors(written))}
    assert {name: tensor.shape for name, tensor in found.items()} == written
    assert all(tensor.data_bytes == 2 * tensor.elements for tensor in found.values())


def test_a_truncated_shard_is_named_with_both_sizes():
    content = safetensors({"a": (4, 4)})
    with pytest.raises(InputError) as error:
        read(content, len(content) - 5)
    message = str(error.value)
    assert message.startswith("m/a.safetensors: truncated")
    assert f"found {len(content) - 5} bytes, needed {len(content)}" in message
    assert "copy that file again" in error.value.fix


def test_a_file_cut_inside_its_header_is_truncated_too():
    content = safetensors({"a": (4, 4)})
    with pytest.raises(InputError, match="truncated: found 20 bytes, needed"):
        read(content, 20)


def test_a_git_lfs_pointer_is_called_what_it_is():
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 269060552\n"
    with pytest.raises(InputError, match=f"Git LFS pointer of {len(pointer)} bytes") as error:
        read(pointer)
    assert "git lfs pull" in error.value.fix


@pytest.mark.parametrize("content", [b"", b"short", b"\x80\x02pickled data, not tensors"])
def test_what_is_no_safetensors_file_is_refused(content):
    with pytest.raises(InputError, match=r"a\.safetensors"):
        read(content)


def test_bytes_after_the_last_tensor_are_refused():
    content = safetensors({"a": (2, 2)}) + b"xx"
    with pytest.raises(InputError, match=f"found {len(content)} bytes, needed {len(content) - 2}"):
        read(content)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"dtype": "BF16", "shape": [2], "data_offsets": [2, 6]}, "lies at 2 to 6"),
        ({"dtype": "BF16", "shape": [3], "data_offsets": [0, 4]}, "needed 6 bytes from 0 on"),
        ({"dtype": "BF17", "shape": [2], "data_offsets": [0, 4]}, "unknown dtype BF17"),
        ({"dtype": "BF16", "shape": [2]}, "cannot be read"),
    ],
)
def test_a_header_that_does_not_add_up_is_refused(entry, words):
    text = json.dumps({"a": entry}).encode()
    content = len(text).to_bytes(8, "little") + text + bytes(6)
    with pytest.raises(InputError, match=words):
        read(content)


def test_an_index_that_lists_the_same_tensors_passes():
    listed = {"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}
    there = {"1.safetensors": ("a",), "2.safetensors": ("b",)}
    assert check_index(json.dumps(listed), there, place="i") is None


def test_a_shard_that_is_not_there_is_named():
    listed = {"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}
    with pytest.raises(InputError, match=r"found 1 of 2 shards, needed also 2\.safetensors"):
        check_index(json.dumps(listed), {"1.safetensors": ("a",)}, place="i")


def test_a_tensor_in_another_shard_than_the_index_says_is_named():
    listed = {"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}
    there = {"1.safetensors": ("a", "b"), "2.safetensors": ()}
    with pytest.raises(InputError, match=r"b is in 1\.safetensors, needed it in 2\.safetensors"):
        check_index(json.dumps(listed), there, place="i")


def test_an_index_without_weight_map_is_refused():
    with pytest.raises(InputError, match="weight_map"):
        check_index("{}", {}, place="i")

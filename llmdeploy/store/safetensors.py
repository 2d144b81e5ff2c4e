"""What a safetensors file says in its header: tensors, their types, shapes and places."""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from llmdeploy.errors import InputError

LENGTH_BYTES = 8
MAX_HEADER_BYTES = 100_000_000
"""Source: safetensors 0.6 `MAX_HEADER_SIZE`."""
ELEMENT_BITS = {
    "C64": 64, "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "F8_E4M3": 8, "F8_E5M2": 8,
    "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
    "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U64": 64, "U32": 32, "U16": 16, "U8": 8, "BOOL": 8,
}  # fmt: skip
"""Bits of one element. Source: safetensors 0.7 `Dtype`."""
LFS_POINTER = b"version https://git-lfs.github.com/spec/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One tensor of a file; `shape` as stored, (rows, columns) for a linear layer."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data_bytes: int

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


def header_bytes(start: bytes, *, size_bytes: int, place: str) -> int:
    """Length of the JSON header in bytes, from a file's first bytes and its size."""
    if start.startswith(LFS_POINTER):
        raise InputError(
            f"{place}: found a Git LFS pointer of {size_bytes} bytes, needed the weights",
            fix="run `git lfs pull` in the model's repository, then add it again",
        )
    length_bytes = int.from_bytes(start[:LENGTH_BYTES], "little")
    if len(start) < LENGTH_BYTES or not 2 <= length_bytes <= MAX_HEADER_BYTES:
        raise _damaged(place, f"found a header of {length_bytes} bytes", "a safetensors file")
    if LENGTH_BYTES + length_bytes > size_bytes:
        raise _truncated(place, size_bytes, needed_bytes=LENGTH_BYTES + length_bytes)
    return length_bytes


def parse_header(header: bytes, *, size_bytes: int, place: str) -> tuple[Tensor, ...]:
    """The tensors that a file's JSON header lists; InputError where its data is not all there."""
    try:
        entries = json.loads(header)
        entries.pop("__metadata__", None)
        placed = [(*entry["data_offsets"], _tensor(name, entry)) for name, entry in entries.items()]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(
            place, f"its header cannot be read ({error})", "a safetensors file"
        ) from error
    end = 0
    for begin, stop, tensor in sorted(placed, key=lambda item: (item[0], item[1])):
        if begin != end or stop - begin != tensor.data_bytes:
            needed = f"{tensor.data_bytes} bytes from {end} on"
            raise _damaged(place, f"{tensor.name} lies at {begin} to {stop}", needed)
        end = stop
    needed_bytes = LENGTH_BYTES + len(header) + end
    if size_bytes < needed_bytes:
        raise _truncated(place, size_bytes, needed_bytes=needed_bytes)
    if size_bytes > needed_bytes:
        raise _damaged(place, f"found {size_bytes} bytes", f"{needed_bytes} by its header")
    return tuple(tensor for _, _, tensor in placed)


def check_index(text: str, tensors: dict[str, tuple[str, ...]], *, place: str) -> None:
    """Holds `*.index.json` against the tensor names of each file; InputError where they differ."""
    try:
        listed = dict(json.loads(text)["weight_map"])
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(place, f"its weight_map cannot be read ({error})", "an index") from error
    missing = sorted(set(listed.values()) - set(tensors))
    if missing:
        raise InputError(
            f"{place}: found {len(tensors)} of {len(set(listed.values()))} shards,"
            f" needed also {', '.join(missing)}",
            fix="copy the missing files into the folder, then add the model again",
        )
    there = {name: file for file, names in tensors.items() for name in names}
    for name in _first_difference(listed, there):
        raise _damaged(
            place,
            f"{name} is in {there.get(name, 'no shard')}",
            f"it in {listed.get(name, 'no shard')}",
        )


def _first_difference(listed: dict[str, str], there: dict[str, str]) -> Iterable[str]:
    return sorted(n for n in listed.keys() | there.keys() if listed.get(n) != there.get(n))[:1]


def _tensor(name: str, entry: dict[str, Any]) -> Tensor:
    shape = tuple(int(size) for size in entry["shape"])
    dtype = str(entry["dtype"])
    if dtype not in ELEMENT_BITS:
        raise ValueError(f"{name}: unknown dtype {dtype}")
    data_bytes = math.prod(shape) * ELEMENT_BITS[dtype] // 8
    return Tensor(name=name, dtype=dtype, shape=shape, data_bytes=data_bytes)


def _truncated(place: str, size_bytes: int, *, needed_bytes: int) -> InputError:
    return InputError(
        f"{place}: truncated: found {size_bytes} bytes, needed {needed_bytes} by its header",
        fix="copy that file again from where the model was published",
    )


def _damaged(place: str, found: str, needed: str) -> InputError:
    return InputError(
        f"{place}: {found}, needed {needed}",
        fix="copy that file again from where the model was published",
    )

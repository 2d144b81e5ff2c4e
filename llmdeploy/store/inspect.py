"""Reads a model's folder on a host: which files count, their headers, hashes and sum."""

from collections.abc import Sequence
from fnmatch import fnmatch

from llmdeploy.edge import Shell
from llmdeploy.errors import InputError
from llmdeploy.model import ModelShape
from llmdeploy.store import coherence
from llmdeploy.store.manifest import Manifest, ModelFile, Source
from llmdeploy.store.safetensors import (
    LENGTH_BYTES,
    LFS_POINTER,
    Tensor,
    check_index,
    header_bytes,
    parse_header,
)
from llmdeploy.store.shape import parse_shape, quantization, read_config, unfit

TAKEN = (
    "config.json", "generation_config.json", "*.safetensors", "*.safetensors.index.json",
    "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "merges.txt", "chat_template.jinja", "chat_template.json",
    "tekken.json", "tiktoken.model", "preprocessor_config.json", "processor_config.json",
    "video_preprocessor_config.json", "quantize_config.json", "hf_quant_config.json",
)  # fmt: skip
"""What the engines read; anything else in a folder stays outside the store."""
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tekken.json", "tiktoken.model", "vocab.json")
"""One of them is needed; the embedded engine needs the first."""
SMALL_BYTES = 64 * 2**20
"""Longest config, index or tokenizer that is read whole."""
HASH_TIMEOUT_S = 3600.0


def choose(names: Sequence[str], *, place: str) -> tuple[str, ...]:
    """The names that belong to the model; InputError where something it needs is missing."""
    taken = tuple(n for n in sorted(names) if any(fnmatch(n, pattern) for pattern in TAKEN))
    weights = [n for n in taken if n.endswith(".safetensors")]
    pickles = sorted(n for n in names if any(fnmatch(n, pattern) for pattern in PICKLES))
    if not names:
        raise InputError(f"{place}: no such folder, or it is empty", fix=f"correct {place}")
    if not weights and pickles:
        raise InputError(
            f"{place}: found {pickles[0]}, needed *.safetensors: a pickle can run code when read",
            fix="convert it with safetensors' convert tool, or take the safetensors version",
        )
    for needed, there in (
        ("*.safetensors", bool(weights)),
        ("config.json", "config.json" in taken),
        ("tokenizer.json", any(name in taken for name in TOKENIZERS)),
    ):
        if not there:
            raise InputError(
                f"{place}: found {len(names)} files, needed also {needed}",
                fix=f"put {needed} of the same model into {place}",
            )
    return taken


def inspect(
    folder: str, names: Sequence[str], *, id: str, source: Source, at_s: float, shell: Shell
) -> Manifest:
    """The manifest of the model in `folder`; InputError where it is damaged or incoherent."""
    sizes = sizes_bytes(folder, names, shell=shell)
    tensors = {n: _tensors(folder, n, sizes[n], shell) for n in names if n.endswith(".safetensors")}
    all_tensors = tuple(tensor for per_file in tensors.values() for tensor in per_file)
    for name in names:
        if name.endswith(".safetensors.index.json"):
            listed = {n: tuple(t.name for t in per_file) for n, per_file in tensors.items()}
            check_index(_text(folder, name, shell), listed, place=f"{folder}/{name}")
    config = f"{folder}/config.json"
    settings = read_config(_text(folder, "config.json", shell), config)
    packed, cannot = quantization(settings), unfit(settings)
    dtype = None if packed else coherence.stored_dtype(all_tensors, place=folder)
    shape = parse_shape(_text(folder, "config.json", shell), dtype=dtype, place=config)
    check = coherence.check_layers if cannot else coherence.check
    check(shape, all_tensors, place=folder)
    for name in TOKENIZERS:
        if name in names:
            _text(folder, name, shell)
    if cannot is None and "tokenizer.json" not in names:
        cannot = "found no tokenizer.json, needed one"
    parameters = coherence.count(all_tensors)
    sums = hashes(folder, names, shell=shell)
    return Manifest(
        schema=1,
        id=id,
        source=source,
        created_s=at_s,
        files=tuple(ModelFile(name=n, size_bytes=sizes[n], sha256=sums[n]) for n in names),
        architecture=shape.architecture,
        dtype=shape.dtype,
        parameters=_total(shape, parameters) if packed else parameters.total,
        embedding_parameters=parameters.embedding,
        matrix_parameters=parameters.matrix,
        weights_bytes=parameters.data_bytes,
        shape=shape,
        quantization=packed,
        unfit=cannot,
    )


def _total(shape: ModelShape, stored: coherence.Parameters) -> int:
    """Weights of a packed checkpoint: several share one stored element, so config.json counts."""
    return shape.parameters.total if shape.parameters else stored.total


def sizes_bytes(folder: str, names: Sequence[str], *, shell: Shell) -> dict[str, int]:
    """Size of each file in bytes, links followed; a file that is not there is left out."""
    paths = [f"{folder}/{name}" for name in names]
    ended = shell.run(["stat", "-L", "-c", "%s %n", "--", *paths], timeout_s=60)
    lines = (line.split(" ", 1) for line in ended.stdout.splitlines())
    return {path.removeprefix(f"{folder}/"): int(size) for size, path in lines}


def hashes(folder: str, names: Sequence[str], *, shell: Shell) -> dict[str, str]:
    """SHA-256 of each file, read piece by piece on its host; InputError for an unreadable one."""
    paths = [f"{folder}/{name}" for name in names]
    ended = shell.run(["sha256sum", "--", *paths], timeout_s=HASH_TIMEOUT_S)
    if ended.exit_code:
        raise InputError(
            f"{folder}: cannot be hashed: {ended.stderr.strip()}",
            fix="check that this user may read every file of the folder",
        )
    lines = (line.split("  ", 1) for line in ended.stdout.splitlines())
    return {path.removeprefix(f"{folder}/"): digest for digest, path in lines}


def _tensors(folder: str, name: str, size_bytes: int, shell: Shell) -> tuple[Tensor, ...]:
    place = f"{folder}/{name}"
    start = shell.read_from(place, offset_bytes=0, limit_bytes=len(LFS_POINTER))
    length_bytes = header_bytes(start, size_bytes=size_bytes, place=place)
    header = shell.read_from(place, offset_bytes=LENGTH_BYTES, limit_bytes=length_bytes)
    return parse_header(header, size_bytes=size_bytes, place=place)


def _text(folder: str, name: str, shell: Shell) -> str:
    content = shell.read_from(f"{folder}/{name}", offset_bytes=0, limit_bytes=SMALL_BYTES)
    if content.startswith(LFS_POINTER):
        raise InputError(
            f"{folder}/{name}: found a Git LFS pointer of {len(content)} bytes, needed the file",
            fix="run `git lfs pull` in the model's repository, then add it again",
        )
    return content.decode(errors="replace")

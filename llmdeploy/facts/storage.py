"""Disks, their read speed and the model in the store, parsed from the probe's sections."""

import json
import re
from typing import Any

from pydantic import ValidationError

from llmdeploy.document import Document
from llmdeploy.model import ModelShape


class Disk(Document):
    """The file system behind one path; the path itself need not exist yet."""

    purpose: str
    """`state_root`, `model_store`, `log`."""
    path: str
    nearest: str
    """The path, or its nearest parent that exists."""
    filesystem: str | None
    mount: str | None
    read_only: bool | None
    total_bytes: int | None
    free_bytes: int | None
    free_inodes: int | None
    """None: the file system counts none."""
    writable: bool
    """Whether this user may create files in `nearest`."""
    mode: int | None
    """Permission bits of `nearest`."""
    owner_uid: int | None
    source: str | None = None
    """The device or export that is mounted there."""
    no_exec: bool | None = None
    """Whether nothing may be run from it."""


class StoredFile(Document):
    """One file of the model: the manifest's size, and the size found."""

    name: str
    manifest_bytes: int
    found_bytes: int | None
    """None: there is no such file."""


class StoredModel(Document):
    """The service's model as it lies in the store."""

    folder: str
    problem: str | None
    """Why there is no usable manifest; None where there is one."""
    files: tuple[StoredFile, ...] = ()
    weights_bytes: int | None = None
    parameters: int | None = None
    shape: ModelShape | None = None
    chat_template: bool = False
    mode: int | None = None
    """Permission bits of the folder."""


def parse_pairs(text: str) -> dict[str, str]:
    """Lines `key=value` as a mapping; other lines are left out."""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def parse_disk(purpose: str, text: str) -> Disk:
    """A disk from `path nearest df inodes mount writable stat` lines of the probe."""
    pairs = parse_pairs(text)
    blocks, inodes = _df_row(pairs.get("df", "")), _df_row(pairs.get("inodes", ""))
    mount = pairs.get("mount", "").split()
    mode, _, uid = pairs.get("stat", "").partition(" ")
    return Disk(
        purpose=purpose,
        path=pairs.get("path", ""),
        nearest=pairs.get("nearest", ""),
        filesystem=mount[2] if len(mount) > 3 else None,
        mount=mount[1] if len(mount) > 3 else None,
        read_only="ro" in mount[3].split(",") if len(mount) > 3 else None,
        total_bytes=blocks[0] * 1024 if blocks else None,
        free_bytes=blocks[1] * 1024 if blocks else None,
        free_inodes=inodes[1] if inodes and inodes[0] > 0 else None,
        writable=pairs.get("writable") == "yes",
        mode=int(mode, 8) if re.fullmatch("[0-7]+", mode) else None,
        owner_uid=int(uid) if uid.isdigit() else None,
        source=mount[0] if len(mount) > 3 else None,
        no_exec="noexec" in mount[3].split(",") if len(mount) > 3 else None,
    )


def parse_shm(text: str) -> tuple[int, int] | None:
    """Size and free bytes of /dev/shm from its `df -Pk` row."""
    row = _df_row(text.strip())
    return (row[0] * 1024, row[1] * 1024) if row else None


def parse_read_bytes_per_s(text: str) -> float | None:
    """Bytes per second that dd reports, from its bytes and seconds (GNU and busybox wording)."""
    match = re.search(r"(\d+) bytes.* copied, ([0-9.e+-]+) s", text)
    if match is None or float(match[2]) <= 0 or int(match[1]) == 0:
        return None
    return int(match[1]) / float(match[2])


def parse_model(text: str) -> StoredModel:
    """The stored model from the probe's `folder=`, `stat=`, `size=`, `manifest=` lines."""
    pairs = parse_pairs(text)
    folder = pairs.get("folder", "")
    sizes = {}
    for line in text.splitlines():
        if line.startswith("size="):
            size, _, name = line.removeprefix("size=").partition(" ")
            sizes[name] = int(size)
    mode = pairs.get("stat", "").partition(" ")[0]
    permissions = int(mode, 8) if re.fullmatch("[0-7]+", mode) else None
    if not any(line.startswith("manifest=") for line in text.splitlines()):
        return StoredModel(folder=folder, problem="it is not in the store", mode=permissions)
    lines = [line[9:] for line in text.splitlines() if line.startswith("manifest=")]
    try:
        manifest = json.loads("\n".join(lines))
        return _stored(manifest, folder=folder, sizes=sizes, mode=permissions, pairs=pairs)
    except (ValueError, KeyError, TypeError, AttributeError, ValidationError) as error:
        words = " ".join(str(error).split())[:200]
        problem = f"its manifest.json cannot be read: {type(error).__name__}: {words}"
        return StoredModel(folder=folder, problem=problem, mode=permissions)


def _stored(
    manifest: Any, *, folder: str, sizes: dict[str, int], mode: int | None, pairs: dict[str, str]
) -> StoredModel:
    return StoredModel(
        folder=folder,
        problem=None,
        files=tuple(
            StoredFile(
                name=file["name"],
                manifest_bytes=file["size_bytes"],
                found_bytes=sizes.get(file["name"]),
            )
            for file in manifest["files"]
        ),
        weights_bytes=manifest["weights_bytes"],
        parameters=manifest["parameters"],
        shape=ModelShape.model_validate_json(json.dumps(manifest["shape"])),
        chat_template="chat_template.jinja" in sizes or pairs.get("template") == "yes",
        mode=mode,
    )


def _df_row(row: str) -> tuple[int, int] | None:
    """Total and free of the numbers in a POSIX df row: total, used, free, per cent."""
    match = re.search(r"\s(\d+)\s+(\d+|-)\s+(\d+)\s+(\d+%|-)\s", f" {row} ")
    return (int(match[1]), int(match[3])) if match else None

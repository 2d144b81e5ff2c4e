"""Sent to a host: reads from a file system past the page cache, and says how fast that was.

    python - '{"folder": …, "file": …, "limit_s": …, "read_s": …, "most_bytes": …}'

Without a file to read it writes one that never has a name, so nothing is left whatever happens.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import sys
import tempfile
import time
from typing import Any

from llmdeploy.facts.active.program_watch import arm, show

BLOCK_BYTES = 4 << 20
LEAST_FREE_RATIO = 0.1  # of the file system, which is left free


def main() -> None:
    asked = json.loads(sys.argv[1])
    arm(asked["limit_s"])
    path = os.path.expanduser(asked["file"]) if asked["file"] else ""
    try:
        if path and os.path.exists(path) and os.path.getsize(path) >= BLOCK_BYTES:
            handle, written = os.open(path, os.O_RDONLY), 0
        else:
            handle, written = nameless(nearest(os.path.expanduser(asked["folder"])), asked)
        measure(handle, written, asked)
    except OSError as error:
        show("problem", reason=f"{error.filename or asked['folder']}: {error.strerror or error}")


def nearest(folder: str) -> str:
    """The folder itself, else the nearest one above it that is there."""
    while not os.path.isdir(folder) and folder not in ("/", ""):
        folder = os.path.dirname(folder)
    return folder or "/"


def nameless(folder: str, asked: dict[str, Any]) -> tuple[int, int]:
    """A file without a name, filled for at most the asked time, and its size."""
    space = os.statvfs(folder)
    room_bytes = (space.f_bavail - LEAST_FREE_RATIO * space.f_blocks) * space.f_frsize
    count = int(min(asked["most_bytes"], room_bytes) // BLOCK_BYTES)
    if count < 1:
        raise OSError(errno.ENOSPC, "no room for a file to read, and no model to read", folder)
    handle = opened(folder)
    end_s = time.perf_counter() + asked["read_s"]
    filler = os.urandom(BLOCK_BYTES - 8)
    written = 0
    while written < count and (written == 0 or time.perf_counter() < end_s):
        os.write(handle, written.to_bytes(8, "little") + filler)
        written += 1
    os.fsync(handle)
    return handle, written


def opened(folder: str) -> int:
    """A file of the folder's disk that has no name: it is gone when this program ends."""
    try:
        return os.open(folder, os.O_RDWR | os.O_TMPFILE, 0o600)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT):
            raise
    handle, path = tempfile.mkstemp(dir=folder, prefix=".llmdeploy-read-")
    os.unlink(path)
    return handle


def past_cache(handle: int) -> tuple[int, str]:
    """The file opened anew for direct reads, else the same with its pages dropped."""
    try:
        return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_DIRECT), "O_DIRECT"
    except OSError:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        return handle, "posix_fadvise"


def measure(handle: int, written: int, asked: dict[str, Any]) -> None:
    """Reads blocks past the cache until the budget is over, and shows the rate."""
    blocks = written or min(asked["most_bytes"], os.fstat(handle).st_size) // BLOCK_BYTES
    reader, how = past_cache(handle)
    buffer = mmap.mmap(-1, BLOCK_BYTES)  # page-aligned, as direct reads need it
    wrong = done = 0
    begun_s = time.perf_counter()
    while done < blocks and (done == 0 or time.perf_counter() < begun_s + asked["read_s"]):
        got = os.preadv(reader, [buffer], done * BLOCK_BYTES)
        if got != BLOCK_BYTES:
            raise OSError(errno.EIO, f"block {done}: {got} of {BLOCK_BYTES} bytes came")
        wrong += bool(written) and int.from_bytes(buffer[:8], "little") != done
        done += 1
    took_s = time.perf_counter() - begun_s
    show("disk", read_bytes=done * BLOCK_BYTES, duration_s=took_s, past_cache=how,
         own=bool(written), wrong=wrong)  # fmt: skip


if __name__ == "__main__":
    main()

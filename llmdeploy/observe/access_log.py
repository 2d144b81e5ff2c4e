"""Reading the access log: only what is new, across rotations; and putting a full one aside."""

from collections.abc import Sequence
from dataclasses import dataclass

from llmdeploy.edge import Http, Shell
from llmdeploy.observe.requests import RequestRecord, parse_access_line
from llmdeploy.release.layout import ServiceLayout

LIMIT_BYTES = 64 * 2**20
"""About 130,000 requests."""
KEEP = 3
"""Former logs that are kept, as `access.jsonl.1` (the newest) and so on."""
BLOCK_BYTES = 2**18
ORDER_SLACK_S = 5.0
"""How far lines may be out of the order in which their requests ended: they wait in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """A place in the log: the file by its inode, and the bytes of it that are read."""

    inode: int
    offset_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fresh:
    """Records in the order their requests ended, and where to read on."""

    records: tuple[RequestRecord, ...]
    cursor: Cursor


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFile:
    """One of the log's files."""

    path: str
    inode: int
    size_bytes: int


def read_requests(
    layout: ServiceLayout, *, since_s: float, shell: Shell
) -> tuple[RequestRecord, ...]:
    """The requests that started at `since_s` (seconds since 1970) or later and have ended."""
    return read_since(layout, since_s=since_s, shell=shell).records


def read_since(layout: ServiceLayout, *, since_s: float, shell: Shell) -> Fresh:
    """The requests that started at `since_s` or later and have ended, and where to read on.

    Only the end of the log is read, as far back as requests of that time can stand.
    """
    found: list[RequestRecord] = []
    cursor: Cursor | None = None
    for file in log_files(layout, shell=shell):  # the newest first
        offset_bytes = _start(file, since_s=since_s, shell=shell)
        data = _whole_lines(shell.read_from(file.path, offset_bytes=offset_bytes))
        cursor = cursor or Cursor(inode=file.inode, offset_bytes=offset_bytes + len(data))
        found = [r for r in _parsed(data) if r.started_s >= since_s] + found
        if offset_bytes > 0:
            break
    return Fresh(records=tuple(found), cursor=cursor or Cursor(inode=0, offset_bytes=0))


def read_new(layout: ServiceLayout, *, cursor: Cursor, shell: Shell) -> Fresh:
    """The requests whose lines came after `cursor`, also where the log was rotated since."""
    files = log_files(layout, shell=shell)
    at = next((i for i, file in enumerate(files) if file.inode == cursor.inode), len(files) - 1)
    records: list[RequestRecord] = []
    for file in reversed(files[: at + 1]):  # the oldest first
        same = file.inode == cursor.inode
        offset_bytes = cursor.offset_bytes if same else 0
        data = _whole_lines(shell.read_from(file.path, offset_bytes=offset_bytes))
        records += _parsed(data)
        cursor = Cursor(inode=file.inode, offset_bytes=offset_bytes + len(data))
    return Fresh(records=tuple(records), cursor=cursor)


def rotate(
    layout: ServiceLayout, *, limit_bytes: int = LIMIT_BYTES, shell: Shell, http: Http
) -> bool:
    """Puts the log aside when it is larger than `limit_bytes`, so that a new one begins; whether
    it did. No line is lost: Envoy writes to the renamed file until it opens the new one."""
    files = log_files(layout, shell=shell)
    if not files or files[0].path != layout.access_log or files[0].size_bytes <= limit_bytes:
        return False
    shell.remove(f"{layout.access_log}.{KEEP}")
    for number in range(KEEP - 1, 0, -1):
        former = f"{layout.access_log}.{number}"
        if any(file.path == former for file in files):
            shell.run(["mv", former, f"{layout.access_log}.{number + 1}"], timeout_s=10)
    shell.run(["mv", layout.access_log, f"{layout.access_log}.1"], timeout_s=10)
    http.request("POST", "http://admin/reopen_logs", timeout_s=5, socket_path=layout.admin_socket)
    return True


def log_files(layout: ServiceLayout, *, shell: Shell) -> tuple[LogFile, ...]:
    """The log's files, the one that is written to first."""
    paths = [layout.access_log, *(f"{layout.access_log}.{n}" for n in range(1, KEEP + 1))]
    done = shell.run(["stat", "--format=%i %s %n", *paths], timeout_s=10)
    found = []
    for line in done.stdout.splitlines():  # those that do not exist are on stderr
        inode, size_bytes, path = line.split(" ", 2)
        found.append(LogFile(path=path, inode=int(inode), size_bytes=int(size_bytes)))
    return tuple(found)


def _start(file: LogFile, *, since_s: float, shell: Shell) -> int:
    """Where to begin reading: before it no line is of a request that started since then.

    Blocks from the end, each twice as long as the one before, until one starts early enough.
    """
    length_bytes = BLOCK_BYTES
    while length_bytes < file.size_bytes:
        offset_bytes = file.size_bytes - length_bytes
        head = shell.read_from(file.path, offset_bytes=offset_bytes, limit_bytes=BLOCK_BYTES)
        skipped = head.find(b"\n") + 1
        first = next(iter(_parsed(_whole_lines(head[skipped:]))), None)
        if first and first.started_s + first.duration_s < since_s - ORDER_SLACK_S:
            return offset_bytes + skipped
        length_bytes *= 2
    return 0


def _whole_lines(data: bytes) -> bytes:
    """Without the last line while it is being written."""
    return data[: data.rfind(b"\n") + 1]


def _parsed(data: bytes) -> Sequence[RequestRecord]:
    lines = data.decode(errors="replace").split("\n")
    return [record for line in lines if (record := parse_access_line(line))]

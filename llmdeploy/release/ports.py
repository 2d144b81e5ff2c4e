"""Which ports are taken on a host, and which block of them a release gets."""

from collections.abc import Collection
from posixpath import basename

from llmdeploy.edge import Shell
from llmdeploy.errors import Refused
from llmdeploy.inventory import Ports

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTEN = "0A"
"""State TCP_LISTEN. Source: Linux include/net/tcp_states.h, as /proc/net/tcp shows it."""
_FIND = 'find /proc/[0-9]*/fd -lname "socket:\\[$1\\]" -print -quit'


def block(index: int, ports: Ports) -> range:
    """The ports of a block; the last block ends below `first + block_size x blocks`."""
    start = ports.first + index * ports.block_size
    return range(start, start + ports.block_size)


def parse_listening(table: str) -> dict[int, str]:
    """Port to socket inode of the listening sockets in the text of /proc/net/tcp or tcp6."""
    found = {}
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 9 and fields[3] == _LISTEN:
            found[int(fields[1].rpartition(":")[2], 16)] = fields[9]
    return found


def listening(*, shell: Shell) -> dict[int, str]:
    """Port to socket inode of everything that listens on the host, any address."""
    found: dict[int, str] = {}
    for path in _TABLES:
        found |= parse_listening((shell.read(path) or b"").decode())
    return found


def holder(port: int, *, shell: Shell) -> str | None:
    """Who listens on the port, like `process 812 (python3 serve.py)`, or None; no folders."""
    inode = listening(shell=shell).get(port)
    if inode is None:
        return None
    found = shell.run(("sh", "-c", _FIND, "sh", inode), timeout_s=20).stdout.split("/")
    if len(found) < 3:
        return "a process of another user"
    command = (shell.read(f"/proc/{found[2]}/cmdline") or b"?").decode(errors="replace")
    words = (basename(word) for word in command.split(chr(0)) if word)
    return f"process {found[2]} ({' '.join(words)[:60]})"


def free_block(ports: Ports, *, taken: Collection[int], listening_ports: Collection[int]) -> int:
    """The lowest block that no release has and where nothing listens; Refused without one."""
    for index in range(ports.blocks):
        if index not in taken and not any(p in listening_ports for p in block(index, ports)):
            return index
    last = ports.first + ports.blocks * ports.block_size - 1
    raise Refused(
        f"ports {ports.first}-{last}: all {ports.blocks} blocks of {ports.block_size} are taken, "
        "needed one free",
        fix="stop a release (llmdeploy stop NAME --release ID) or widen `ports` in cluster.yaml",
    )


def engine_port(index: int, position: int, ports: Ports) -> int:
    """The port of the replica at `position` in the plan; Refused past the block's end."""
    if position >= ports.block_size:
        raise Refused(
            f"replica {position + 1} needs a port, a block has {ports.block_size}",
            fix="raise ports.block_size in cluster.yaml and plan again",
        )
    return block(index, ports)[position]

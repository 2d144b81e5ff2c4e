"""How much memory new processes can take on a host now, in its own words."""

import re

from llmdeploy.edge import Shell

_V2 = "/sys/fs/cgroup"
_V1 = "/sys/fs/cgroup/memory"


def available_bytes(*, shell: Shell) -> int | None:
    """Bytes that new processes can take: free memory, and no more than the cgroups leave.

    None where the host does not say.
    """
    rooms = [
        parse_available(_text(shell, "/proc/meminfo")),
        *(_cgroup_room(shell, folder) for folder in _folders(_text(shell, "/proc/self/cgroup"))),
    ]
    known = [room for room in rooms if room is not None]
    return min(known) if rooms[0] is not None else None


def parse_available(meminfo: str) -> int | None:
    """MemAvailable of /proc/meminfo, in bytes."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", meminfo, flags=re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def parse_room(limit: str, used: str, statistics: str) -> int | None:
    """Bytes a cgroup leaves: limit minus use, where clean file pages count as free.

    None without a limit (`max`, or v1's number near 2^63).
    """
    if not limit.strip().isdigit() or int(limit) >= 2**60 or not used.strip().isdigit():
        return None
    found = re.search(r"^(?:total_)?inactive_file (\d+)$", statistics, flags=re.MULTILINE)
    reclaimable_bytes = int(found[1]) if found else 0
    return max(0, int(limit) - int(used) + reclaimable_bytes)


def _folders(membership: str) -> list[str]:
    """The cgroup folders that bound this process, from its own up to the root."""
    found: list[str] = []
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        top = _V1 if controllers else _V2
        parts = [part for part in path.split("/") if part]
        found += ["/".join((top, *parts[:depth])) for depth in range(len(parts), -1, -1)]
    return found


def _cgroup_room(shell: Shell, folder: str) -> int | None:
    if folder.startswith(_V1):
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat")
    else:
        names = ("memory.max", "memory.current", "memory.stat")
    limit, used, statistics = (_text(shell, f"{folder}/{name}") for name in names)
    return parse_room(limit, used, statistics)


def _text(shell: Shell, path: str) -> str:
    return (shell.read(path) or b"").decode()

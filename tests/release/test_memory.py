"""Memory that is there is what the kernel can give, within every cgroup's limit."""

import pytest

from llmdeploy.release.memory import available_bytes, parse_available, parse_room

from ..fakes import FakeShell

MEMINFO = b"MemTotal:       16000000 kB\nMemFree:  100 kB\nMemAvailable:    8000000 kB\n"


def host(files: dict[str, bytes]) -> FakeShell:
    return FakeShell(files={"/proc/meminfo": MEMINFO, **files})


def test_available_is_in_bytes():
    assert parse_available(MEMINFO.decode()) == 8_000_000 * 1024
    assert parse_available("MemFree: 1 kB\n") is None


@pytest.mark.parametrize(
    ("limit", "room_bytes"), [("max\n", None), ("9223372036854771712\n", None), ("1000\n", 650)]
)
def test_a_cgroup_leaves_its_limit_minus_use_plus_clean_pages(limit, room_bytes):
    # 1000 - 400 + 50 = 650
    assert parse_room(limit, "400\n", "anon 350\ninactive_file 50\n") == room_bytes


def test_a_cgroup_v2_limit_above_the_process_bounds_it():
    files = {
        "/proc/self/cgroup": b"0::/user.slice/app\n",
        "/sys/fs/cgroup/user.slice/memory.max": b"5000\n",
        "/sys/fs/cgroup/user.slice/memory.current": b"1000\n",
        "/sys/fs/cgroup/user.slice/memory.stat": b"inactive_file 200\n",
        "/sys/fs/cgroup/user.slice/app/memory.max": b"max\n",
        "/sys/fs/cgroup/user.slice/app/memory.current": b"900\n",
    }
    assert available_bytes(shell=host(files)) == 4200


def test_a_cgroup_v1_limit_bounds_it():
    files = {
        "/proc/self/cgroup": b"9:cpu:/x\n5:memory:/docker/x\n",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes": b"7000\n",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes": b"3000\n",
        "/sys/fs/cgroup/memory/memory.stat": b"total_inactive_file 0\n",
    }
    assert available_bytes(shell=host(files)) == 4000


def test_a_host_without_meminfo_does_not_say():
    assert available_bytes(shell=FakeShell()) is None

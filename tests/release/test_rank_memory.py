"""What ranks hold of memory, from what their hosts print."""

import os

from llmdeploy.edge.local import LocalShell
from llmdeploy.release.rank_memory import Held, held, parse_held
from llmdeploy.release.supervise import marker


def test_memory_is_summed_over_a_programs_processes_on_host_and_cards() -> None:
    text = "process 10 2048\nprocess 11 1024\ncards\n10 70000\n11 500\n99 3000\n"
    assert parse_held(text) == Held(memory_bytes=3 * 2**20, device_memory_bytes=70500 << 20)


def test_without_cards_or_where_they_tell_nothing_by_process_it_is_not_known() -> None:
    assert parse_held("process 10 2048\n") == Held(memory_bytes=2**21, device_memory_bytes=None)
    told = parse_held("process 10 2048\ncards\n10 [N/A]\n99 3000\n")
    assert told == Held(memory_bytes=2**21, device_memory_bytes=None)


def test_a_process_that_ended_meanwhile_does_not_count() -> None:
    assert parse_held("process 10 \nprocess 11 4\n") == Held(
        memory_bytes=4096, device_memory_bytes=None
    )
    assert parse_held("") is None


def test_a_real_process_is_found_by_its_program() -> None:
    name, value = marker("/state/memory", f"engine-{os.getpid()}")
    shell = LocalShell()
    begin = ("sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!")
    pid = shell.run(begin, timeout_s=10, env={name: value}).stdout.strip()
    try:
        found = held("/state/memory", f"engine-{os.getpid()}", cards=False, shell=shell)
    finally:
        shell.run(("kill", pid), timeout_s=10)
    assert found is not None
    assert 4096 <= found.memory_bytes < 2**24

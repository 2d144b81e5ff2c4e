"""Sections, disks, holders of ports: what a single section's case cannot show."""

from llmdeploy.facts.bundle import HostFacts
from llmdeploy.facts.read import read_facts
from llmdeploy.facts.section import split

from .hosts import ASKED

DISK = """|path=/var/lib/llm/chat/runs
|nearest=/var/lib
|df=/dev/vda 1000 400 600 40% /
|inodes=/dev/vda 100 10 90 10% /
|mount=/dev/vda / ext4 rw,relatime 0 0
|stat=1777 0
|writable=yes
"""


def _read(text: str) -> HostFacts:
    return read_facts(split(text), host="local", asked=ASKED, collected_s=1.0, duration_s=1.0)


def _disks(text: str) -> str:
    names = ("state_root", "log", "model_store")
    return "".join(f"@begin disk-{name} 5 df\n{text}@end 0\n" for name in names)


def test_a_disk_is_that_of_the_nearest_folder_that_exists() -> None:
    disks = _read(_disks(DISK)).disks
    assert disks is not None
    log = disks[1]
    assert (log.purpose, log.nearest, log.filesystem, log.read_only) == (
        "log", "/var/lib", "ext4", False,
    )  # fmt: skip
    assert (log.free_bytes, log.free_inodes, log.mode) == (600 * 1024, 90, 0o1777)


def test_a_file_system_that_counts_no_inodes_has_none() -> None:
    disks = _read(_disks(DISK.replace("100 10 90 10%", "0 0 0 -"))).disks
    assert disks is not None
    assert disks[0].free_inodes is None


def test_a_device_name_with_spaces_and_digits_does_not_shift_the_columns() -> None:
    disks = _read(_disks(DISK.replace("df=/dev/vda", "df=//nas/share 12 34"))).disks
    assert disks is not None
    assert disks[0].free_bytes == 600 * 1024


def test_disks_are_unknown_when_the_probe_ended_between_them() -> None:
    facts = _read(f"@begin disk-state_root 5 df\n{DISK}@end 0\n")
    assert facts.disks is None
    assert facts.problem("disks") == "the probe ended before"


def test_an_unfinished_section_is_left_out() -> None:
    facts = _read("@begin uname 5 uname\n|Linux 6.1 x86_64\n")
    assert facts.problem("kernel") == "the probe ended before it was asked"


def test_output_cannot_pass_for_a_marker() -> None:
    facts = _read("@begin os-release 5 cat\n|@end 0\n|PRETTY_NAME=x\n@end 0\n")
    assert facts.os_name == "x"


def test_a_port_knows_its_holder_and_whether_it_is_ours() -> None:
    row = "0: 0100007F:1F90 00000000:0000 0A 0:0 00:0 0 0 0 77 1"
    holder = '{"kind": "holder", "port": 8080, "process": "envoy (pid 7)", "ours": true}'
    facts = _read(
        f"@begin listening 5 /proc/net/tcp\n|{row}\n@end 0\n"
        f"@begin runtime 5 python\n|{holder}\n@end 0\n"
    )
    assert facts.listeners is not None
    assert facts.listeners[0].process == "envoy (pid 7)"
    assert facts.listeners[0].ours


def test_pynvml_comes_before_the_tool_and_the_tool_where_there_is_no_pynvml() -> None:
    row = "0, NVIDIA A40, GPU-1, 00000000:4F:00.0, 46068, 45634, 8.6, 550.127.05, 0"
    smi = f"@begin nvidia-smi 5 nvidia-smi\n|{row}\n@end 0\n"
    nothing = '|{"kind": "nvml", "error": "ModuleNotFoundError: No module named \'pynvml\'"}\n'
    facts = _read(f"{smi}@begin runtime 5 python\n{nothing}@end 0\n")
    assert facts.accelerators is not None
    assert facts.accelerators[0].name == "NVIDIA A40"
    assert facts.accelerator_errors == ()


def test_every_fact_has_exactly_one_source() -> None:
    facts = _read("")
    said = [source.fact for source in facts.sources]
    unsaid = {"host", "asked", "collected_s", "duration_s", "sources"}
    assert sorted(said) == sorted(set(HostFacts.model_fields) - unsaid)
    assert all(facts.problem(fact) for fact in said)


def test_usable_memory_is_what_the_cgroup_leaves() -> None:
    memory = "|MemTotal: 100 kB\n|MemAvailable: 80 kB\n|SwapTotal: 0 kB\n|SwapFree: 0 kB\n"
    limit = "|/g memory.max 61440\n|/g memory.current 20480\n"
    text = f"@begin meminfo 5 m\n{memory}@end 0\n@begin cgroup 5 c\n{limit}@end 0\n"
    assert _read(text).usable_memory_bytes == 61440 - 20480
    assert _read(text.replace("61440", "max")).usable_memory_bytes == 80 * 1024
    assert _read(f"@begin meminfo 5 m\n{memory}@end 0\n").usable_memory_bytes is None

"""The probe in other shells, with other tools and as a user without rights: the same sections."""

import os
import pathlib
import shutil
import subprocess

import pytest

from llmdeploy.facts.bundle import HostFacts
from llmdeploy.facts.collect import script
from llmdeploy.facts.read import read_facts
from llmdeploy.facts.section import Section, marked, split

from ..facts.hosts import ASKED

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TOLD = (
    "kernel", "memory_total_bytes", "disks", "addresses", "cpu_cores", "python_version",
    "packages", "imports", "interfaces", "hostname", "cache_disks", "open_files",
    "stuck_processes", "clock_offset_s", "accelerators",
)  # fmt: skip
FOR_ROOT = {
    "acs_bridges": "ACSCtl",
    "drive_wear": "health log",
    "firewall_rules": "rules",
}


def _asked(*shell: str, path: str = PATH) -> dict[str, Section]:
    words = ("-s", "--", "/usr/bin/python3", "~/state", "/srv/models", "chat", "tiny", "no", "", "")
    done = subprocess.run(
        [*shell, *words],
        input=script(),
        capture_output=True,
        text=True,
        env={"PATH": path, "HOME": "/nonexistent", "HF_TOKEN": "canary", "NCCL_DEBUG": "WARN"},
        check=False,
    )
    assert "canary" not in done.stdout + done.stderr
    return split(marked(done.stdout))


def _read(sections: dict[str, Section]) -> HostFacts:
    return read_facts(sections, host="a", asked=ASKED, collected_s=1.0, duration_s=1.0)


def _lacks(sections: dict[str, Section]) -> list[str]:
    """What the probe should have told of any host and did not, or told wrongly."""
    facts = _read(sections)
    lacks = [f"{fact}: {why}" for fact in TOLD if (why := facts.problem(fact)) is not None]
    if facts.environment_names != ("NCCL_DEBUG",):
        lacks.append(f"environment_names: {facts.environment_names}")
    disks = [(d.purpose, d.nearest) for d in facts.disks or ()]
    if disks[2:3] != [("model_store", "/srv")]:
        lacks.append(f"disks: {disks}")
    return lacks


def test_any_posix_shell_gives_the_same_sections() -> None:
    by_sh, by_bash = _asked("/bin/sh"), _asked("/bin/bash", "--posix")
    assert _lacks(by_sh) == []
    assert _lacks(by_bash) == []
    assert set(by_bash) >= set(by_sh)


@pytest.mark.skipif(not shutil.which("busybox"), reason="busybox is not there")
def test_busybox_has_all_that_it_needs(tmp_path: pathlib.Path) -> None:
    busybox = str(shutil.which("busybox"))
    for name in subprocess.run([busybox, "--list"], capture_output=True, text=True).stdout.split():
        (tmp_path / name).symlink_to(busybox)
    assert _lacks(_asked(str(tmp_path / "sh"), path=str(tmp_path))) == []


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root, setpriv")
def test_what_only_root_could_tell_is_unknown_with_the_reason() -> None:
    drop = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    sections = _asked(*drop, "/bin/sh")
    assert _lacks(sections) == []
    facts = _read(sections)
    assert facts.uid == 65534
    for fact, word in FOR_ROOT.items():
        assert getattr(facts, fact) is None
        assert word in (facts.problem(fact) or ""), fact


def test_disks_are_asked_one_by_one_where_one_of_them_fails(tmp_path: pathlib.Path) -> None:
    (tmp_path / "df").write_text(
        '#!/bin/sh\ncase $* in *srv*) exit 1 ;; esac\nexec /usr/bin/df "$@"\n'
    )
    (tmp_path / "df").chmod(0o755)
    sections = _asked("/bin/sh", path=f"{tmp_path}:{PATH}")
    assert sections["disk-model_store"].exit_code == 1
    assert sections["disk-model_store"].text == "df did not answer for /srv"
    facts = _read(sections)
    assert facts.disks is not None
    roomy = {disk.purpose: bool(disk.free_bytes) for disk in facts.disks}
    assert roomy == {"state_root": True, "log": True, "model_store": False}


def test_a_python_that_dies_in_its_first_part_is_asked_for_the_second(
    tmp_path: pathlib.Path,
) -> None:
    """`pynvml` ends the process, as a broken driver's library does."""
    (tmp_path / "pynvml.py").write_text("import os\nos.abort()\n")
    words = ("-s", "--", "python", "/s", "/srv/models", "chat", "tiny", "no", "", "")
    (tmp_path / "python").write_text(
        f'#!/bin/sh\nPYTHONPATH={tmp_path} exec /usr/bin/python3 "$@"\n'
    )
    (tmp_path / "python").chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", *words],
        input=script(),
        capture_output=True,
        text=True,
        env={"PATH": f"{tmp_path}:{PATH}", "HOME": "/nonexistent"},
        check=False,
    )
    sections = split(marked(done.stdout))
    assert sections["runtime"].exit_code == 134
    assert _read(sections).python_version is not None
    assert next(entry.name for entry in _read(sections).imports or ()) == "torch"
